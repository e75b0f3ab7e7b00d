package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"maps"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// repairSlices restores the labels of imported slices, which are known by their names, and reports slices of the
// derived Service that belong to others: they stay (I10), and kube-proxy sends the traffic of the VIP there as well.
func (r *reconciler) repairSlices(ctx context.Context, s *snapshot) error {
	if s.foreign() != nil || s.svc != nil && len(s.svc.Spec.Selector) > 0 {
		return nil // nothing is written, or the selector goes first
	}
	var errs []error
	for _, slice := range s.strays {
		owner := s.ownerByName(slice)
		switch {
		case !kube.Writable(slice):
			if s.svc != nil {
				r.Events.Event(s.svc, kube.Warning, hubv1alpha1.ReasonNotOwned, fmt.Sprintf(
					"EndpointSlice %s/%s belongs to another program, and the VIP leads to its endpoints as well; "+
						"if it should not: kubectl -n %[1]s delete endpointslice %[2]s", slice.Namespace, slice.Name))
			}
		case owner != "":
			labelled := slice.DeepCopy()
			if labelled.Labels == nil {
				labelled.Labels = make(map[string]string)
			}
			maps.Copy(labelled.Labels, endpoints.Labels(s.name.Name, s.derivedName(), owner, kube.Manager))
			delete(labelled.Annotations, kube.AnnotationAdopt)
			log.FromContext(ctx).Info("restoring the labels of an imported slice", "slice", slice.Name)
			errs = append(errs, client.IgnoreNotFound(r.Local.Update(ctx, labelled)))
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
