// Package record keeps this cluster's copies of its peers' ServiceExportRecords (docs/decisions/0005). It is where "absence is not
// deletion" and "a peer is not to be trusted" hold (DESIGN §2): a copy changes only by a newer, valid revision or by its owner's word,
// so that whatever becomes of the hub, imports stand on what was last said.
package record

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Backdated is how much older than its record on the hub an export may claim to be before it is reported (E9). Resolution goes by the
// claim all the same.
const Backdated = 10 * time.Minute

// recheck is how often a held record is looked at again: its owner's word comes with a Lease renewal, not with an event of the record.
const recheck = 10 * time.Second

// Controller is this room's entry in the list of controllers. Requests are the names of records.
func Controller(env *kube.Env) kube.Controller {
	peers := func(o client.Object) types.NamespacedName {
		if kube.Origin(o).ClusterID == env.Cluster {
			return types.NamespacedName{}
		}
		return types.NamespacedName{Name: o.GetName()}
	}
	return kube.Controller{
		Name:     "record",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(peers)},
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(peers)},
		},
		Reconciler: &reconciler{env},
	}
}

type reconciler struct{ *kube.Env }

// verdict is what is to become of the copy.
type verdict int

const (
	keep   verdict = iota // as it is
	follow                // as the hub has it
	hold                  // as it is, though the hub says otherwise
	drop
)

// decide goes by the hub's record and the copy, either of which may be nil. gone says that it is so by its owner's word.
// reason and message are for the condition Held, or for the Event where a record is refused.
func decide(shown, copied *hubv1alpha1.ServiceExportRecord, gone bool) (v verdict, reason, message string) {
	switch {
	case shown == nil && copied == nil:
		return keep, "", ""
	case shown == nil && (copied.Spec.Withdrawn || gone):
		return drop, "", ""
	case shown == nil:
		return hold, "Absent", "The hub no longer shows this record, and its owner has neither withdrawn it nor stated a set without it: it stays in effect."
	case copied == nil && shown.Spec.Withdrawn:
		return keep, "", ""
	case copied != nil && shown.Spec.Revision < copied.Spec.Revision && !shown.CreationTimestamp.After(created(copied)):
		return hold, "OlderRevision", fmt.Sprintf("The hub shows revision %d, older than the %d seen before, as after a restore: this one stays until its owner publishes again.",
			shown.Spec.Revision, copied.Spec.Revision)
	}
	if !shown.Spec.Withdrawn {
		if _, err := clusterset.ParseExport(shown); err != nil {
			return hold, "Refused", fmt.Sprintf("What the hub shows is not imported: %v.", err)
		}
	}
	return follow, "", ""
}

// Reconcile is one pass over one record.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	shown, err := kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, r.Hub(), types.NamespacedName{Namespace: r.HubNamespace, Name: req.Name})
	if err != nil {
		return reconcile.Result{}, err
	}
	copied, err := kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, r.Local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: req.Name})
	if err != nil {
		return reconcile.Result{}, err
	}
	gone := shown == nil && copied != nil && r.Gone(copied.Spec.ClusterID, copied.Name, created(copied))
	switch v, reason, message := decide(shown, copied, gone); v {
	case follow:
		return reconcile.Result{}, r.follow(ctx, shown, copied)
	case drop:
		log.FromContext(ctx).Info("a peer's export is gone", "record", copied.Name, "withdrawn", copied.Spec.Withdrawn)
		return reconcile.Result{}, kube.Gone(r.Local.Delete(ctx, copied))
	case hold:
		if copied == nil {
			// The hub's objects are not this cluster's: the Event is about the copy that there would be.
			about := shown.DeepCopy()
			about.Namespace = kube.SystemNamespace
			r.Events.Event(about, kube.Warning, "RecordRefused", message)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{RequeueAfter: recheck}, r.held(ctx, copied, metav1.ConditionTrue, reason, message)
	}
	return reconcile.Result{}, nil
}

// annotationCreated on a copy is when the hub's record was created, by the hub's clock.
const annotationCreated = "clusterset-dns.io/created"

// created is that of a copy; a time that nothing precedes where it is not known, so that no departure ends it.
func created(copied *hubv1alpha1.ServiceExportRecord) time.Time {
	at, err := time.Parse(time.RFC3339, copied.Annotations[annotationCreated])
	if err != nil {
		return time.Unix(1<<40, 0)
	}
	return at
}

// follow makes the copy what the hub has; once it is, what is backdated is reported, and its being held ends.
func (r *reconciler) follow(ctx context.Context, shown, copied *hubv1alpha1.ServiceExportRecord) error {
	if copied != nil && equality.Semantic.DeepEqual(shown.Spec, copied.Spec) && created(copied).Equal(shown.CreationTimestamp.Time) {
		if claim := backdated(copied); claim != "" {
			return r.tell(ctx, copied, claim) // its mark is an event that brings the next pass
		}
		return r.held(ctx, copied, metav1.ConditionFalse, "Current", "As the hub shows it.")
	}
	rec := &hubv1alpha1.ServiceExportRecord{}
	if copied != nil {
		rec = copied.DeepCopy()
	}
	rec.Namespace, rec.Name, rec.Spec = kube.SystemNamespace, shown.Name, shown.Spec
	metav1.SetMetaDataAnnotation(&rec.ObjectMeta, annotationCreated, shown.CreationTimestamp.UTC().Format(time.RFC3339))
	log.FromContext(ctx).Info("following a peer's export", "record", rec.Name, "revision", rec.Spec.Revision, "withdrawn", rec.Spec.Withdrawn)
	if copied == nil {
		return r.Local.Create(ctx, rec)
	}
	return r.Local.Update(ctx, rec)
}

// annotationBackdated on a copy is the claim, exportedAt, of which an Event was raised.
const annotationBackdated = "clusterset-dns.io/backdated"

// backdated is what a copy claims that is older than it can be (E9), where that is still to be reported.
func backdated(copied *hubv1alpha1.ServiceExportRecord) (claim string) {
	at := copied.Spec.ExportedAt
	if at == nil || copied.Spec.Withdrawn || created(copied).Sub(at.Time) <= Backdated {
		return ""
	}
	if claim = at.UTC().Format(time.RFC3339); copied.Annotations[annotationBackdated] == claim {
		return ""
	}
	return claim
}

// tell reports a backdated export, and marks the copy only then: an answer that was lost, or an end in between, costs a second Event, and
// never the first.
func (r *reconciler) tell(ctx context.Context, copied *hubv1alpha1.ServiceExportRecord, claim string) error {
	s := &copied.Spec
	r.Events.Event(copied, kube.Warning, "BackdatedExport", fmt.Sprintf(
		"Cluster %s says that it exports %s/%s since %s, but published it only at %s: the older export wins conflicts. It may have joined late, its clock may be wrong, or its backup edited.",
		s.ClusterID, s.ServiceNamespace, s.ServiceName, claim, created(copied).UTC().Format(time.RFC3339)))
	told := copied.DeepCopy()
	metav1.SetMetaDataAnnotation(&told.ObjectMeta, annotationBackdated, claim)
	return r.Local.Update(ctx, told)
}

// held sets or clears the condition Held. A copy that was never held bears none.
func (r *reconciler) held(ctx context.Context, copied *hubv1alpha1.ServiceExportRecord, status metav1.ConditionStatus, reason, message string) error {
	if status == metav1.ConditionFalse && !meta.IsStatusConditionTrue(copied.Status.Conditions, hubv1alpha1.ConditionHeld) {
		return nil
	}
	c := metav1.Condition{Type: hubv1alpha1.ConditionHeld, Status: status, Reason: reason, Message: message}
	out, changed := conditions.Set(copied.Status.Conditions, []metav1.Condition{c}, copied.Generation, metav1.NewTime(r.Now()))
	if !changed {
		return nil
	}
	rec := copied.DeepCopy()
	rec.Status.Conditions = out
	if err := r.Local.Status().Update(ctx, rec); err != nil {
		return err
	}
	if status == metav1.ConditionTrue {
		r.Events.Event(rec, kube.Warning, "RecordHeld", message)
	}
	return nil
}
