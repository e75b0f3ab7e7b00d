package serviceimport

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// endpointSliceController is what Kubernetes' own controller calls itself on the slices of Services that have a selector.
const endpointSliceController = "endpointslice-controller.k8s.io"

// expel deletes slices of the derived Service that are not the agent's: kube-proxy would send the VIP's traffic there (I9). Kubernetes' own
// controller leaves them behind when a selector, which somebody gave the Service, is taken away again. Those of other controllers stay, since
// these would make them again.
func (r *reconciler) expel(ctx context.Context, s state) error {
	if s.svc != nil && len(s.svc.Spec.Selector) > 0 {
		return nil // that goes first, else they are made again
	}
	strays, err := r.list(ctx, types.NamespacedName{Namespace: s.name.Namespace, Name: s.derivedName()}, kube.ByService)
	if err != nil {
		return err
	}
	var errs []error
	for _, slice := range strays {
		if by := slice.Labels[discoveryv1.LabelManagedBy]; by != "" && by != endpointSliceController {
			continue
		}
		log.FromContext(ctx).Info("deleting endpoints of a derived Service that are no import's", "slice", slice.Name)
		errs = append(errs, kube.Gone(r.Local.Delete(ctx, slice, client.Preconditions{UID: &slice.UID})))
	}
	return errors.Join(errs...)
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
