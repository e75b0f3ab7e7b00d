// Package serviceexport turns this cluster's ServiceExports into this member's own ServiceExportRecords, in its own
// cluster, and reports the outcome in the conditions of the ServiceExports. It never reaches the hub: publish
// copies the records there.
package serviceexport

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Rules returns the rules of the ClusterSet (kube.RulesOf).
type Rules func(context.Context) (rules kube.Rules, known bool, err error)

// New returns the controller of the cluster with this ID. Its requests are namespace/name of a Service.
func New(
	cluster string, local client.Client, rules Rules, events kube.Events, now func() time.Time,
) kube.Controller {
	r := &reconciler{cluster: cluster, local: local, rules: rules, events: events, now: now}
	unchanged := func(_, _ client.Object) bool { return true } // the Lease says the same for as long as it exists
	return kube.Controller{
		Name: "serviceexport",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &mcsv1beta1.ServiceExport{}, Requests: kube.Named(kube.Itself)},
			{Side: kube.Local, Object: &corev1.Service{}, Requests: kube.Named(kube.Itself)},
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(kube.Exported)},
			{Side: kube.Local, Object: &coordinationv1.Lease{}, Requests: r.afterRefusal, Alike: unchanged},
			{
				Side: kube.Local, Object: &aboutv1beta1.ClusterProperty{}, Requests: r.allExports,
				Alike: kube.SameProperty,
			},
			{
				Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: r.allExports,
				Alike: kube.SameRules,
			},
		},
		Reconciler: r,
	}
}

type reconciler struct {
	cluster string
	local   client.Client
	rules   Rules
	events  kube.Events
	now     func() time.Time
}

// state is what one pass works on.
type state struct {
	cluster clusterset.Place                 // this one
	export  *mcsv1beta1.ServiceExport        // nil if there is none, or it is being deleted
	service *corev1.Service                  // nil if there is none, or it is being deleted
	own     *hubv1alpha1.ServiceExportRecord // this member's record; nil if there is none
	others  []clusterset.Export              // what other members export under the name to this cluster
	refused string                           // why the hub refuses this member; "" if it does not
	// excluded is set if the ClusterSet excludes the namespace (S5). Rules that are only assumed end no export.
	excluded bool
	external hubv1alpha1.ExternalNames // of the ClusterSet
	foreign  bool                      // another program owns the import of the name in this cluster (I10)
}

// afterRefusal requests a pass over every ServiceExport when the hub starts or stops to refuse this member.
func (r *reconciler) afterRefusal(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetName() != clusterset.LeaseRefused {
		return nil
	}
	return r.allExports(ctx, o)
}

// allExports requests a pass over every ServiceExport.
func (r *reconciler) allExports(ctx context.Context, _ client.Object) []reconcile.Request {
	return kube.Requests(ctx, r.local, &mcsv1beta1.ServiceExportList{}, kube.Itself)
}

// Reconcile is one pass over one name.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.gather(ctx, req.NamespacedName)
	if err != nil || s.export == nil && s.own == nil {
		return reconcile.Result{}, err
	}
	spec, valid := decide(s)
	if err := r.record(ctx, req.NamespacedName, s.own, spec); err != nil || s.export == nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.report(ctx, s, spec, valid)
}

func (r *reconciler) gather(ctx context.Context, name types.NamespacedName) (s state, err error) {
	if s.cluster, err = kube.Place(ctx, r.local, r.cluster); err != nil {
		return s, err
	}
	if s.export, err = kube.Get[*mcsv1beta1.ServiceExport](ctx, r.local, name); err != nil {
		return s, err
	}
	if s.export != nil && s.export.DeletionTimestamp != nil {
		s.export = nil
	}
	if s.service, err = kube.Get[*corev1.Service](ctx, r.local, name); err != nil {
		return s, err
	}
	if s.service != nil && s.service.DeletionTimestamp != nil {
		s.service = nil
	}
	refusal, err := kube.Get[*coordinationv1.Lease](ctx, r.local, inSystem(clusterset.LeaseRefused))
	if err != nil {
		return s, err
	}
	if refusal != nil {
		s.refused = refusal.Annotations[clusterset.AnnotationRefused]
	}
	var records hubv1alpha1.ServiceExportRecordList
	byService := client.MatchingFields{kube.ByService: kube.Key(name)}
	if err := r.local.List(ctx, &records, client.InNamespace(kube.SystemNamespace), byService); err != nil {
		return s, err
	}
	for i := range records.Items {
		rec := &records.Items[i]
		imported := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionImported)
		s.foreign = s.foreign || imported != nil && imported.Reason == hubv1alpha1.ReasonNotOwned
		if rec.Spec.ClusterID == r.cluster {
			s.own = rec
		} else if !rec.Spec.Withdrawn {
			e, err := clusterset.ParseExport(rec)
			if err == nil && e.GoesTo(s.cluster) { // whoever imports the record reports the error
				s.others = append(s.others, e)
			}
		}
	}
	rules, known, err := r.rules(ctx)
	exporting := s.own != nil && !s.own.Spec.Withdrawn
	s.external = rules.ExternalNames
	s.excluded = !clusterset.MayUse(rules.Namespaces, name.Namespace) && (known || !exporting)
	return s, err
}

func inSystem(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: kube.SystemNamespace, Name: name}
}

// record makes this member's own record equal to spec. If spec is nil, it withdraws the record, since other members
// do not take a missing record for the end of an export.
func (r *reconciler) record(
	ctx context.Context, name types.NamespacedName, own *hubv1alpha1.ServiceExportRecord,
	spec *hubv1alpha1.ServiceExportRecordSpec,
) error {
	if own == nil {
		if spec == nil {
			return nil
		}
		return r.create(ctx, name, *spec)
	}
	rec := own.DeepCopy()
	if spec != nil {
		rec.Spec = *spec
		rec.Spec.EndpointRecords = own.Spec.EndpointRecords // publish sets it
	} else if !own.Spec.Withdrawn {
		rec.Spec = clusterset.Withdrawn(own.Spec.Origin, r.now())
		rec.Spec.ExportedAt = own.Spec.ExportedAt
	}
	rec.Spec.Revision = own.Spec.Revision
	if equality.Semantic.DeepEqual(rec.Spec, own.Spec) {
		return nil
	}
	rec.Spec.Revision = clusterset.NextRevision(own.Spec.Revision, r.now())
	if rec.Spec.Withdrawn || !rec.Spec.ExportedAt.Equal(own.Spec.ExportedAt) {
		delete(rec.Annotations, clusterset.AnnotationPublished) // another export; publish learns its time
	}
	log.FromContext(ctx).Info("changed the export", "record", rec.Name, "withdrawn", rec.Spec.Withdrawn)
	return r.local.Update(ctx, rec)
}

// create creates this member's record. Its revision follows this member's last renewal on the hub: this cluster may
// have lost an earlier record that other members have seen, and its clock may have been set back.
func (r *reconciler) create(
	ctx context.Context, name types.NamespacedName, spec hubv1alpha1.ServiceExportRecordSpec,
) error {
	rec := &hubv1alpha1.ServiceExportRecord{Spec: spec}
	rec.Namespace, rec.Name = kube.SystemNamespace, clusterset.RecordName(name.Name, name.Namespace, r.cluster)
	renewed, err := kube.Get[*coordinationv1.Lease](ctx, r.local, inSystem(clusterset.LeaseRenewed))
	if err != nil {
		return err
	}
	last := int64(0)
	if renewed != nil && renewed.Spec.RenewTime != nil {
		last = renewed.Spec.RenewTime.UnixMilli()
	}
	rec.Spec.Revision = clusterset.NextRevision(last, r.now())
	log.FromContext(ctx).Info("exporting", "record", rec.Name, "type", rec.Spec.Type)
	return r.local.Create(ctx, rec)
}
