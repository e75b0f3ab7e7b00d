package serviceimport

import (
	"context"
	"errors"
	"maps"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// endpointSliceController is the manager of the slices of Services with a selector.
const endpointSliceController = "endpointslice-controller.k8s.io"

// repairSlices restores the labels of imported slices and deletes other slices of the derived Service: kube-proxy
// would send the VIP's traffic there (I9). Kubernetes' controller leaves such slices when somebody adds a selector to
// the Service and removes it again. Slices of other controllers stay, because these would create them again.
func (r *reconciler) repairSlices(ctx context.Context, s *snapshot) error {
	if s.svc != nil && len(s.svc.Spec.Selector) > 0 {
		return nil // the selector goes first
	}
	var errs []error
	for _, slice := range s.strays {
		manager := slice.Labels[discoveryv1.LabelManagedBy]
		owner := s.ownerByName(slice)
		switch {
		case owner != "":
			labelled := slice.DeepCopy()
			if labelled.Labels == nil {
				labelled.Labels = map[string]string{}
			}
			maps.Copy(labelled.Labels, endpoints.Labels(s.name.Name, s.derivedName(), owner, kube.Manager))
			log.FromContext(ctx).Info("restoring the labels of an imported slice", "slice", slice.Name)
			errs = append(errs, client.IgnoreNotFound(r.Local.Update(ctx, labelled)))
		case manager != "" && manager != endpointSliceController:
		case slice.Labels[discoveryv1.LabelServiceName] == "" || slice.Labels[mcsv1beta1.LabelServiceName] != "":
		default:
			log.FromContext(ctx).Info("deleting a slice of a derived Service that is not imported", "slice", slice.Name)
			errs = append(
				errs, client.IgnoreNotFound(r.Local.Delete(ctx, slice, client.Preconditions{UID: &slice.UID})),
			)
		}
	}
	return errors.Join(errs...)
}

// ownerByName returns the source cluster of an imported slice from its name, which nobody can edit; "" for other
// slices.
func (s *snapshot) ownerByName(slice *discoveryv1.EndpointSlice) string {
	record := slice.Annotations[endpoints.AnnotationRecord]
	if slice.Name != endpoints.SliceName(s.derivedName(), record, slice.AddressType) {
		return ""
	}
	return clusterset.RecordOwner("EndpointRecord", record)
}
