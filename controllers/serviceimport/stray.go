package serviceimport

import (
	"context"
	"errors"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// endpointSliceController is what Kubernetes' own controller calls itself on the slices of Services that have a selector.
const endpointSliceController = "endpointslice-controller.k8s.io"

// expel deletes slices of the derived Service that are not the agent's: kube-proxy would send the VIP's traffic there (I9). Kubernetes' own
// controller leaves them behind when a selector, which somebody gave the Service, is taken away again. Those of other controllers stay, since
// these would make them again. One of the agent's that somebody took labels from gets them back: it may be all that is known of its endpoints.
func (r *reconciler) expel(ctx context.Context, s *state) error {
	if s.svc != nil && len(s.svc.Spec.Selector) > 0 {
		return nil // that goes first, else they are made again
	}
	var errs []error
	for _, slice := range s.strays {
		if owner := s.owner(slice); owner != "" {
			labelled := slice.DeepCopy()
			if labelled.Labels == nil {
				labelled.Labels = map[string]string{}
			}
			maps.Copy(labelled.Labels, endpoints.Labels(s.name.Name, s.derivedName(), owner, kube.Manager))
			log.FromContext(ctx).Info("giving an imported slice its labels back", "slice", slice.Name)
			errs = append(errs, kube.Gone(r.Local.Update(ctx, labelled)))
			continue
		}
		l := slice.Labels
		if by := l[discoveryv1.LabelManagedBy]; by != "" && by != endpointSliceController || l[discoveryv1.LabelServiceName] == "" || l[mcsv1beta1.LabelServiceName] != "" {
			continue
		}
		log.FromContext(ctx).Info("deleting endpoints of a derived Service that are no import's", "slice", slice.Name)
		errs = append(errs, kube.Gone(r.Local.Delete(ctx, slice, client.Preconditions{UID: &slice.UID})))
	}
	return errors.Join(errs...)
}

// owner is the cluster that a slice of this import is of, by its name, which cannot be edited; "" where that is not the name of its record.
func (s *state) owner(slice *discoveryv1.EndpointSlice) string {
	record := slice.Annotations[endpoints.AnnotationRecord]
	if slice.Name != endpoints.SliceName(s.derivedName(), record, slice.AddressType) {
		return ""
	}
	return clusterset.RecordOwner("EndpointRecord", record)
}

// ofSource names the Service of a slice that somebody else made, and the import where that Service is a derived one.
func (r *reconciler) ofSource(ctx context.Context, o client.Object) []reconcile.Request {
	name := kube.SourceOf(o)
	out := requestOf(name)
	if !strings.HasPrefix(name.Name, "derived-") {
		return out
	}
	svc, err := kube.Get[*corev1.Service](ctx, r.Local, name)
	if err != nil || svc == nil { // the cache answers; without the Service nothing goes there
		return out
	}
	return append(out, r.ofDerived(ctx, svc)...)
}
