package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// ensureImport returns the import. It creates the import without VIPs if there is none, because slices need its UID.
// One that a finalizer of another program keeps from being deleted is used until it is gone, because clients use it.
func (r *reconciler) ensureImport(
	ctx context.Context, s *snapshot, m *conflict.Merged,
) (*mcsv1beta1.ServiceImport, error) {
	if s.imp != nil {
		if s.imp.DeletionTimestamp != nil && slices.Contains(s.imp.Finalizers, metav1.FinalizerDeleteDependents) {
			return nil, fmt.Errorf( // the garbage collector deletes its slices
				"ServiceImport %s is being deleted, although clusters export it. The agent creates it again afterwards",
				s.name,
			)
		}
		return s.imp, nil
	}
	imp := &mcsv1beta1.ServiceImport{}
	imp.Namespace, imp.Name = s.name.Namespace, s.name.Name
	imports.Metadata(imp, m, s.derivedName(), kube.Manager)
	imp.Spec = imports.Spec(m, nil, nil)
	log.FromContext(ctx).Info("creating the import", "type", m.Type, "clusters", m.Clusters)
	return imp, r.Local.Create(ctx, imp)
}

// updateImport updates metadata, spec and status of the import. failed is why the derived Service could not be
// written; nil if it could.
func (r *reconciler) updateImport(
	ctx context.Context, existing *mcsv1beta1.ServiceImport, m *conflict.Merged, families []corev1.IPFamily,
	svc *corev1.Service, failed error,
) error {
	ips, shown := vips(existing, m, families, svc, failed)
	imp, declared := existing.DeepCopy(), !kube.Writable(existing)
	if declared {
		imports.Fill(imp, ips)
		ips = imp.Spec.IPs
	} else {
		imports.Metadata(imp, m, derived.Name(imp.Namespace, imp.Name), kube.Manager)
		imp.Spec = imports.Spec(m, shown, ips)
		// Clients of a Headless import have its endpoints until there is a VIP (C9).
		if m.Type == mcsv1beta1.ClusterSetIP && failed != nil && len(ips) == 0 && len(existing.Status.Clusters) > 0 {
			imp.Spec.Type = existing.Spec.Type
			if imp.Spec.Type != m.Type {
				imp.Annotations[imports.AnnotationAwaitsVIP] = "true"
			}
		}
		// No client is to learn of a port that the VIP does not have.
		if failed != nil && !errors.Is(failed, ipam.ErrPending) && len(ips) > 0 && svc != nil {
			imp.Spec.Ports = slices.DeleteFunc(imp.Spec.Ports, func(p mcsv1beta1.ServicePort) bool {
				return !slices.ContainsFunc(svc.Spec.Ports, func(has corev1.ServicePort) bool {
					return has.Port == p.Port && has.Protocol == p.Protocol
				})
			})
		}
	}
	if !equality.Semantic.DeepEqual(imp.Spec, existing.Spec) ||
		!equality.Semantic.DeepEqual(imp.ObjectMeta, existing.ObjectMeta) {
		log.FromContext(ctx).Info("changing the import", "type", imp.Spec.Type, "ips", ips, "clusters", m.Clusters)
		var err error
		if declared { // only what differs, so that no other field becomes the agent's
			err = r.Local.Patch(ctx, imp, kube.Changes(existing))
		} else {
			err = r.Local.Update(ctx, imp)
		}
		if err != nil {
			return err
		}
	}
	before := imp.DeepCopy()
	ready := imports.Ready(m, families, ips, failed)
	if declared {
		ready = imports.Declared(ready, imp, m)
	}
	isFailure := failed != nil && !errors.Is(failed, ipam.ErrPending) // a name that only waits has not failed
	if r.reported.Repeats(kube.Key(client.ObjectKeyFromObject(imp)), isFailure, r.Now()) {
		was := meta.FindStatusCondition(imp.Status.Conditions, ready.Type)
		if was != nil && was.Status == ready.Status && was.Reason == ready.Reason {
			ready.Message = was.Message
		}
	}
	status := imports.Status(m)
	var flipped bool
	status.Conditions, flipped = conditions.Set(
		imp.Status.Conditions, []metav1.Condition{ready}, imp.Generation, metav1.NewTime(r.Now()),
	)
	if equality.Semantic.DeepEqual(status, imp.Status) {
		return nil
	}
	imp.Status = status
	if err := r.Local.Status().Patch(ctx, imp, kube.StatusChanges(before)); err != nil {
		return err
	}
	waits := failed == nil && ready.Reason == string(mcsv1beta1.ServiceImportReasonPending) ||
		errors.Is(failed, ipam.ErrPending)
	if flipped && ready.Status == metav1.ConditionFalse && !waits {
		if ready.Reason == imports.ReasonFull {
			r.Events.Event(imp, kube.Warning, imports.ReasonFull, ready.Message)
		} else {
			r.Events.Event(imp, kube.Warning, "NotReady", ready.Message)
		}
	}
	return nil
}

// vips returns the VIPs of the import and their families. The import keeps its VIPs while the derived Service is
// missing or waits for some of them: they are requested again (I6), except those that belong to another Service by now.
// Otherwise a family without an address is left out.
func vips(
	existing *mcsv1beta1.ServiceImport, m *conflict.Merged, families []corev1.IPFamily, svc *corev1.Service,
	failed error,
) ([]string, []corev1.IPFamily) {
	if m.Type != mcsv1beta1.ClusterSetIP || len(families) == 0 {
		return nil, families
	}
	kept, shown := existing.Spec.DeepCopy(), families
	for i, ip := range slices.Backward(existing.Spec.IPs) {
		if errors.Is(failed, ipam.LostError(ip)) {
			kept.IPs = slices.Delete(kept.IPs, i, i+1)
			if i < len(kept.IPFamilies) { // a declared import has none
				kept.IPFamilies = slices.Delete(kept.IPFamilies, i, i+1)
			}
		}
	}
	if failed != nil {
		shown = derived.Held(svc, families)
	}
	has := svc != nil && len(shown) > 0
	isNew := func(ip string) bool { return !slices.Contains(existing.Spec.IPs, ip) }
	waits := errors.Is(failed, ipam.ErrPending) && !slices.ContainsFunc(derived.IPs(svc, shown), isNew)
	switch {
	case existing.Spec.Type == m.Type && len(kept.IPs) > 0 && (!has || waits):
		return kept.IPs, kept.IPFamilies
	case has:
		return derived.IPs(svc, shown), shown
	}
	return nil, families
}

// retire deletes the import and its slices when nobody exports the name any more (I2). The derived Service stays for
// the quarantine, so that an exporter that returns gets the same VIP (DESIGN §5). retire returns the rest of the
// quarantine. What was given to the agent (I10) waits for an export, and so does what another program declared (I11):
// what the agent wrote there goes first, because a VIP without endpoints is of no use. The mark goes last, because
// without it no pass comes here again. What the API server refuses to end keeps nothing else.
func (r Config) retire(ctx context.Context, s *snapshot) (again time.Duration, err error) {
	var errs []error
	failed := func(o client.Object, err error) {
		if kube.Refused(err) && len(errs) == 0 {
			r.Events.Event(o, kube.Warning, hubv1alpha1.ReasonChangeRefused, fmt.Sprintf(
				"This cluster no longer imports the name, and its API server refuses to remove what is left: %v", err))
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	filled := s.imp != nil && kube.Filled(s.imp)
	switch {
	case filled && !kube.Emptied(s.imp):
		log.FromContext(ctx).Info("emptying the declared import", "clusters", s.imp.Status.Clusters)
		_, err := kube.Empty(ctx, r.Local, s.imp)
		if !kube.Refused(err) { // the next pass goes on
			return 0, client.IgnoreNotFound(err)
		}
		failed(s.imp, err)
	case s.imp != nil && s.imp.DeletionTimestamp == nil && kube.Owned(s.imp):
		// A pass whose cache did not show the import yet has begun the quarantine. It begins when the import is gone.
		if isQuarantined(s.svc) {
			err := r.endQuarantine(ctx, s.svc)
			if !kube.Refused(err) {
				return time.Second, err
			}
			failed(s.svc, err)
		}
		log.FromContext(ctx).Info("deleting the import: nobody exports it", "clusters", s.imp.Status.Clusters)
		err := kube.DeleteUnchanged(ctx, r.Local, s.imp)
		if err != nil && !kube.Refused(err) {
			return 0, err
		}
		failed(s.imp, err)
	}
	for _, slice := range slices.Concat(s.imported, s.orphans, byName(s.projected)) { // what is held goes first (S6)
		if kube.Owned(slice) {
			failed(slice, kube.DeleteUnchanged(ctx, r.Local, slice))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	if s.imp != nil && kube.Owned(s.imp) && len(s.imp.Finalizers) > 0 { // DNS names the VIP until the import is gone
		if isQuarantined(s.svc) {
			err = r.endQuarantine(ctx, s.svc)
		}
		return 0, err
	}
	if again, err = r.quarantine(ctx, s); err != nil || !filled {
		return again, err
	}
	// The controller external deletes its slices of an import that is emptied, and of none that is another program's.
	outside, err := r.listSlices(ctx, s.name, kube.ByExternal)
	owned := func(slice *discoveryv1.EndpointSlice) bool { return kube.Owned(slice) }
	if err != nil || slices.ContainsFunc(outside, owned) {
		return time.Second, err
	}
	return again, kube.TakeBack(ctx, r.Local, s.imp)
}

// isQuarantined returns whether a derived Service is the agent's and unused.
func isQuarantined(svc *corev1.Service) bool {
	return svc != nil && kube.Owned(svc) && svc.Annotations[derived.AnnotationUnusedSince] != ""
}

// quarantine keeps the unused derived Service for the quarantine, returns the rest of it, and deletes it then.
func (r Config) quarantine(ctx context.Context, s *snapshot) (left time.Duration, err error) {
	if s.svc == nil || !kube.Owned(s.svc) || s.svc.DeletionTimestamp != nil {
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
	log.FromContext(ctx).
		Info("deleting the derived Service after its quarantine", "service", s.svc.Name, "ips", s.svc.Spec.ClusterIPs)
	err = kube.DeleteUnchanged(ctx, r.Local, s.svc)
	if apierrors.IsConflict(err) { // it may be in use again
		return time.Second, nil
	}
	return 0, err
}
