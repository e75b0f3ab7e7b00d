package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// service makes the derived Service what the import needs, and returns it as it is then; nil where there is none. A Headless import has
// no use for one, and leaves it, so that the VIP is there when the import becomes a ClusterSetIP again (I6).
func (r *reconciler) service(ctx context.Context, s state, imp *mcsv1beta1.ServiceImport, m *conflict.Merged, families []corev1.IPFamily) (*corev1.Service, error) {
	if m.Type == mcsv1beta1.Headless || len(families) == 0 || len(m.Ports) == 0 {
		return s.svc, r.keep(ctx, s.svc)
	}
	if s.svc != nil && s.svc.DeletionTimestamp != nil {
		return nil, nil // its going is an event, and the next pass makes it anew with the same VIP
	}
	if s.svc != nil && s.svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil, kube.Gone(r.Local.Delete(ctx, s.svc)) // made by hand under our name; a VIP cannot be added to it
	}
	var previous []string
	if s.svc == nil && s.imp != nil {
		previous = s.imp.Spec.IPs
	}
	svc := derived.Service(s.name.Namespace, s.name.Name, kube.Manager, m, families, s.svc, previous)
	if s.svc != nil {
		if derived.Same(svc, s.svc) {
			return s.svc, nil
		}
		log.FromContext(ctx).Info("changing the derived Service", "service", svc.Name)
		if err := r.Local.Update(ctx, svc); err != nil {
			return s.svc, err
		}
		return svc, nil
	}
	err := r.Local.Create(ctx, svc)
	if apierrors.IsInvalid(err) && previous != nil {
		if r.patient(s.name) {
			return nil, errBusy
		}
		r.Events.Event(imp, kube.Warning, "VIPLost", fmt.Sprintf("%v cannot be had again: %v. The import gets another address.", previous, err))
		svc = derived.Service(s.name.Namespace, s.name.Name, kube.Manager, m, families, nil, nil)
		err = r.Local.Create(ctx, svc)
	}
	if err != nil {
		return nil, err
	}
	r.busy.Delete(s.name)
	log.FromContext(ctx).Info("made the derived Service", "service", svc.Name, "ips", svc.Spec.ClusterIPs)
	return svc, nil
}

// errBusy is the error of a VIP that cannot be had again yet.
var errBusy = errors.New("the import's address is not free yet")

// patience is how long a VIP is asked for again: an API server frees the address of a deleted Service only after its watches have shown
// the deletion.
const patience = 10 * time.Second

// patient tells whether to ask once more for the VIPs of an import.
func (r *reconciler) patient(name types.NamespacedName) bool {
	since, _ := r.busy.LoadOrStore(name, r.Now())
	if r.Now().Sub(since.(time.Time)) < patience {
		return true
	}
	r.busy.Delete(name)
	return false
}

// keep ends the quarantine of a derived Service whose import is there again, though without use for it.
func (r *reconciler) keep(ctx context.Context, svc *corev1.Service) error {
	if svc == nil || svc.Annotations[derived.AnnotationUnusedSince] == "" {
		return nil
	}
	kept := svc.DeepCopy()
	delete(kept.Annotations, derived.AnnotationUnusedSince)
	return r.Local.Update(ctx, kept)
}
