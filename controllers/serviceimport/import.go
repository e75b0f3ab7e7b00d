package serviceimport

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// ensure returns the import, made without VIPs where there is none yet: slices need its UID.
func (r *reconciler) ensure(ctx context.Context, s state, m *conflict.Merged) (*mcsv1beta1.ServiceImport, error) {
	if s.imp != nil {
		if s.imp.DeletionTimestamp != nil {
			return nil, fmt.Errorf("ServiceImport %s is being deleted, though clusters export it; it is made again once it is gone", s.name)
		}
		return s.imp, nil
	}
	imp := &mcsv1beta1.ServiceImport{}
	imp.Namespace, imp.Name = s.name.Namespace, s.name.Name
	imports.Metadata(imp, m, s.derivedName(), kube.Manager)
	imp.Spec = imports.Spec(m, nil, nil)
	log.FromContext(ctx).Info("importing", "type", m.Type, "clusters", m.Clusters)
	return imp, r.Local.Create(ctx, imp)
}

// update makes the import's spec and status what they ought to be. failed is why there is no (current) derived Service.
func (r *reconciler) update(ctx context.Context, was *mcsv1beta1.ServiceImport, m *conflict.Merged, families []corev1.IPFamily, svc *corev1.Service, failed error) error {
	ips, shown := vips(was, m, families, svc, failed)
	imp := was.DeepCopy()
	imports.Metadata(imp, m, derived.Name(imp.Namespace, imp.Name), kube.Manager)
	imp.Spec = imports.Spec(m, shown, ips)
	if !equality.Semantic.DeepEqual(imp.Spec, was.Spec) || !equality.Semantic.DeepEqual(imp.ObjectMeta, was.ObjectMeta) {
		log.FromContext(ctx).Info("changing the import", "type", m.Type, "ips", ips, "clusters", m.Clusters)
		if err := r.Local.Update(ctx, imp); err != nil {
			return err
		}
	}
	status := imports.Status(m)
	var flipped bool
	ready := imports.Ready(m, families, ips, failed)
	status.Conditions, flipped = conditions.Set(imp.Status.Conditions, []metav1.Condition{ready}, imp.Generation, metav1.NewTime(r.Now()))
	if equality.Semantic.DeepEqual(status, imp.Status) {
		return nil
	}
	imp.Status = status
	if err := r.Local.Status().Update(ctx, imp); err != nil {
		return err
	}
	if flipped && ready.Status == metav1.ConditionFalse && (failed != nil || ready.Reason != string(mcsv1beta1.ServiceImportReasonPending)) {
		if ready.Reason == imports.ReasonFull {
			r.Events.Event(imp, kube.Warning, imports.ReasonFull, ready.Message)
		} else {
			r.Events.Event(imp, kube.Warning, "NotReady", ready.Message)
		}
	}
	return nil
}

// vips are those that the import has, and their families. What was given out stays true while it is not to be seen, and is asked for again
// (I6); a family that has to wait for room is left out.
func vips(was *mcsv1beta1.ServiceImport, m *conflict.Merged, families []corev1.IPFamily, svc *corev1.Service, failed error) ([]string, []corev1.IPFamily) {
	if m.Type != mcsv1beta1.ClusterSetIP || len(families) == 0 {
		return nil, families
	}
	shown := families
	if failed != nil {
		shown = derived.Held(svc, families)
	}
	switch {
	case svc != nil && len(shown) > 0:
		return derived.IPs(svc, shown), shown
	case was.Spec.Type == m.Type && len(was.Spec.IPs) > 0:
		return was.Spec.IPs, was.Spec.IPFamilies
	}
	return nil, families
}

// retire takes down what nobody exports any more (I2). The derived Service stays for the quarantine, so that an exporter that comes back
// finds its VIP (DESIGN §5); again is what is left of that.
func (r *reconciler) retire(ctx context.Context, s state) (again time.Duration, err error) {
	if s.imp != nil && s.imp.DeletionTimestamp == nil && imports.Ours(s.imp, kube.Manager, s.svc, s.slices) {
		log.FromContext(ctx).Info("nobody exports this any more", "clusters", s.imp.Status.Clusters)
		if err := kube.Gone(r.Local.Delete(ctx, s.imp, client.Preconditions{UID: &s.imp.UID})); err != nil {
			return 0, err
		}
	}
	for _, slice := range s.slices {
		if err := kube.Gone(r.Local.Delete(ctx, slice, client.Preconditions{UID: &slice.UID})); err != nil {
			return 0, err
		}
	}
	if s.svc == nil || !derived.Is(s.svc, kube.Manager) || s.svc.DeletionTimestamp != nil {
		return 0, nil
	}
	left, dated := derived.QuarantineLeft(s.svc, r.Now())
	if !dated {
		svc := s.svc.DeepCopy()
		metav1.SetMetaDataAnnotation(&svc.ObjectMeta, derived.AnnotationUnusedSince, r.Now().UTC().Format(time.RFC3339))
		return left, r.Local.Update(ctx, svc)
	}
	if left > 0 {
		return left, nil
	}
	log.FromContext(ctx).Info("giving up the VIP", "service", s.svc.Name, "ips", s.svc.Spec.ClusterIPs)
	r.VIPs.GiveUp(client.ObjectKeyFromObject(s.svc))
	err = r.Local.Delete(ctx, s.svc, client.Preconditions{UID: &s.svc.UID, ResourceVersion: &s.svc.ResourceVersion})
	if apierrors.IsConflict(err) { // somebody uses it again
		return time.Second, nil
	}
	return 0, kube.Gone(err)
}
