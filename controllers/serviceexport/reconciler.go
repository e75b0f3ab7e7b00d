// Package serviceexport looks after this cluster's ServiceExports: what is exported becomes this member's own record, in its own
// cluster, and what became of it the conditions of the ServiceExport (SPEC E1–E8). It needs no hub: publishing is another's work.
package serviceexport

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Controller is this room's entry in the list of controllers. Requests are namespace/name of a Service.
func Controller(env *kube.Env) kube.Controller {
	r := &reconciler{env}
	return kube.Controller{
		Name: "serviceexport",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &mcsv1beta1.ServiceExport{}, Requests: kube.Named(kube.Itself)},
			{Side: kube.Local, Object: &corev1.Service{}, Requests: kube.Named(kube.Itself)},
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(kube.Exported)},
			{Side: kube.Local, Object: &coordinationv1.Lease{}, Requests: r.ofRefusal, Alike: func(_, _ client.Object) bool { return true }},
		},
		Reconciler: r,
	}
}

type reconciler struct{ *kube.Env }

// state is what one pass goes by.
type state struct {
	export *mcsv1beta1.ServiceExport        // nil if there is none, or it is going
	svc    *corev1.Service                  // the same
	own    *hubv1alpha1.ServiceExportRecord // this member's record, nil if there is none
	peers  []clusterset.Export              // what other clusters export under the name
	refuse string                           // why the hub takes nothing from this member; "" where it does
}

// ofRefusal asks for every export when the hub begins to refuse this member, or ends it.
func (r *reconciler) ofRefusal(ctx context.Context, o client.Object) (out []reconcile.Request) {
	if o.GetName() != clusterset.LeaseRefused {
		return nil
	}
	var exports mcsv1beta1.ServiceExportList
	if err := r.Local.List(ctx, &exports, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache answers; it fails only when the agent stops
	}
	for i := range exports.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&exports.Items[i])})
	}
	return out
}

// Reconcile is one pass over one name.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.gather(ctx, req.NamespacedName)
	if err != nil || (s.export == nil && s.own == nil) {
		return reconcile.Result{}, err
	}
	spec, valid := decide(r.Cluster, s)
	if err := r.record(ctx, req.NamespacedName, s.own, spec); err != nil {
		return reconcile.Result{}, err
	}
	if s.export == nil {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.report(ctx, s, spec, valid)
}

func (r *reconciler) gather(ctx context.Context, name types.NamespacedName) (s state, err error) {
	if s.export, err = kube.Get[*mcsv1beta1.ServiceExport](ctx, r.Local, name); err != nil {
		return s, err
	}
	if s.export != nil && s.export.DeletionTimestamp != nil {
		s.export = nil
	}
	if s.svc, err = kube.Get[*corev1.Service](ctx, r.Local, name); err != nil {
		return s, err
	}
	if s.svc != nil && s.svc.DeletionTimestamp != nil {
		s.svc = nil
	}
	refusal, err := kube.Get[*coordinationv1.Lease](ctx, r.Local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRefused})
	if err != nil {
		return s, err
	}
	if refusal != nil {
		s.refuse = refusal.Annotations[clusterset.AnnotationRefused]
	}
	var records hubv1alpha1.ServiceExportRecordList
	if err := r.Local.List(ctx, &records, client.InNamespace(kube.SystemNamespace), client.MatchingFields{kube.ByService: kube.Key(name)}); err != nil {
		return s, err
	}
	for i := range records.Items {
		rec := &records.Items[i]
		if rec.Spec.ClusterID == r.Cluster {
			s.own = rec
		} else if !rec.Spec.Withdrawn {
			if e, err := clusterset.ParseExport(rec); err == nil { // what is wrong is reported where records are imported
				s.peers = append(s.peers, e)
			}
		}
	}
	return s, nil
}

// decide says what is exported, nil for nothing, and why.
func decide(cluster string, s state) (*hubv1alpha1.ServiceExportRecordSpec, metav1.Condition) {
	switch {
	case s.export == nil:
		return nil, metav1.Condition{}
	case s.svc == nil:
		return nil, conditions.Invalid(mcsv1beta1.ServiceExportReasonNoService,
			fmt.Sprintf("There is no Service %s/%s; the export begins once there is.", s.export.Namespace, s.export.Name))
	case s.svc.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, conditions.Invalid(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"A Service of type ExternalName cannot be exported; create it in each cluster instead.")
	case derived.Is(s.svc, kube.Manager):
		return nil, conditions.Invalid(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"This is the derived Service of an import, which is never exported again; export the Service it comes from.")
	}
	spec := clusterset.RecordOf(cluster, s.export, s.svc)
	probe := hubv1alpha1.ServiceExportRecord{Spec: spec}
	probe.Name = clusterset.RecordName(s.svc.Name, s.svc.Namespace, cluster)
	if _, err := clusterset.ParseExport(&probe); err != nil {
		return nil, conditions.Invalid("InvalidExport", fmt.Sprintf("Other clusters would refuse this export: %v. Correct the Service or the ServiceExport.", err))
	}
	valid := conditions.Valid()
	_, noPreference := clusterset.PreferenceOf(s.export)
	_, noProbe := clusterset.ProbeOf(s.export)
	for _, err := range []error{noPreference, noProbe} {
		if err != nil {
			valid.Message = fmt.Sprintf("%s But %v.", valid.Message, err)
		}
	}
	return &spec, valid
}

// record makes this member's own record what is exported. Nothing exported withdraws it: absence is not deletion.
func (r *reconciler) record(ctx context.Context, name types.NamespacedName, own *hubv1alpha1.ServiceExportRecord, spec *hubv1alpha1.ServiceExportRecordSpec) error {
	if own == nil {
		if spec == nil {
			return nil
		}
		rec := &hubv1alpha1.ServiceExportRecord{Spec: *spec}
		rec.Namespace, rec.Name = kube.SystemNamespace, clusterset.RecordName(name.Name, name.Namespace, r.Cluster)
		// The last one may be forgotten, by the hub as well, and the clock put back since.
		kept, err := kube.Get[*coordinationv1.Lease](ctx, r.Local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed})
		if err != nil {
			return err
		}
		if kept != nil && kept.Spec.RenewTime != nil {
			rec.Spec.Revision = kept.Spec.RenewTime.UnixMilli()
		}
		rec.Spec.Revision = clusterset.NextRevision(rec.Spec.Revision, r.Now())
		log.FromContext(ctx).Info("exporting", "record", rec.Name, "type", rec.Spec.Type)
		return r.Local.Create(ctx, rec)
	}
	rec := own.DeepCopy()
	if spec != nil {
		rec.Spec = *spec
	} else if !own.Spec.Withdrawn {
		now := metav1.NewTime(r.Now())
		rec.Spec = hubv1alpha1.ServiceExportRecordSpec{Origin: own.Spec.Origin}
		rec.Spec.Withdrawn, rec.Spec.WithdrawnAt = true, &now
	}
	rec.Spec.Revision = own.Spec.Revision
	if equality.Semantic.DeepEqual(rec.Spec, own.Spec) {
		return nil
	}
	rec.Spec.Revision = clusterset.NextRevision(own.Spec.Revision, r.Now())
	log.FromContext(ctx).Info("changed the export", "record", rec.Name, "withdrawn", rec.Spec.Withdrawn)
	return r.Local.Update(ctx, rec)
}

// report writes the conditions, and an Event for each that flips for the worse.
func (r *reconciler) report(ctx context.Context, s state, spec *hubv1alpha1.ServiceExportRecordSpec, valid metav1.Condition) error {
	wanted := []metav1.Condition{valid, ready(s.own, spec, s.refuse), conditions.Conflict(nil)}
	if spec != nil {
		probe := hubv1alpha1.ServiceExportRecord{Spec: *spec}
		probe.Name = clusterset.RecordName(s.svc.Name, s.svc.Namespace, r.Cluster)
		if own, err := clusterset.ParseExport(&probe); err == nil {
			_, conflicts := conflict.Merge(append(s.peers, own))
			wanted[2] = conditions.Conflict(conflicts)
		}
	}
	out, changed := conditions.Set(s.export.Status.Conditions, wanted, s.export.Generation, metav1.NewTime(r.Now()))
	if !changed {
		return nil
	}
	updated := s.export.DeepCopy()
	updated.Status.Conditions = out
	if err := r.Local.Status().Update(ctx, updated); err != nil {
		return err
	}
	for _, c := range wanted {
		was := meta.FindStatusCondition(s.export.Status.Conditions, c.Type)
		if was != nil && was.Status == c.Status && was.Reason == c.Reason {
			continue
		}
		switch {
		case c.Type == string(mcsv1beta1.ServiceExportConditionConflict) && c.Status == metav1.ConditionTrue,
			c.Type == string(mcsv1beta1.ServiceExportConditionValid) && c.Status == metav1.ConditionFalse,
			c.Type == string(mcsv1beta1.ServiceExportConditionReady) && c.Reason == string(mcsv1beta1.ServiceExportReasonFailed):
			r.Events.Event(updated, kube.Warning, kube.EventReason(c), c.Message)
		case was != nil && c.Type == string(mcsv1beta1.ServiceExportConditionConflict):
			r.Events.Event(updated, kube.Normal, "ConflictResolved", c.Message)
		}
	}
	return nil
}

// ready is E4, by what publishing has left on the own record, and by why the hub refuses this member, if it does.
func ready(own *hubv1alpha1.ServiceExportRecord, spec *hubv1alpha1.ServiceExportRecordSpec, refuse string) metav1.Condition {
	if spec == nil {
		return conditions.ExportReady(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonPending, "Not exported; condition Valid says why.")
	}
	if refuse != "" {
		return conditions.ExportReady(metav1.ConditionUnknown, mcsv1beta1.ServiceExportReasonPending, refuse)
	}
	pending := conditions.ExportReady(metav1.ConditionUnknown, mcsv1beta1.ServiceExportReasonPending,
		"Exported in this cluster; not on the hub yet. If this lasts, the agent's log says why it does not reach the hub.")
	if own == nil {
		return pending
	}
	c := meta.FindStatusCondition(own.Status.Conditions, hubv1alpha1.ConditionPublished)
	switch {
	case c == nil:
		return pending
	case c.Status == metav1.ConditionFalse:
		return conditions.ExportReady(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonFailed, c.Message)
	case c.ObservedGeneration != own.Generation:
		return conditions.ExportReady(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonPending, "A change is on its way to the hub.")
	}
	return conditions.ExportReady(metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported, "Other clusters can import this Service.")
}
