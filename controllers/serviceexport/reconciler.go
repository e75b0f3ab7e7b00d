// Package serviceexport turns this cluster's ServiceExports into this member's own ServiceExportRecords, in its own
// cluster, and reports the outcome in the conditions of the ServiceExports. It writes nothing to the hub: publish
// copies the records there. Of the hub it reads the ClusterSet's rules.
package serviceexport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Config is what the controller needs.
type Config struct {
	Cluster      string // cluster ID of this member
	HubNamespace string

	Local client.Client
	Hub   func() client.Client // the hub's caches; nil before they have synced

	Now    func() time.Time
	Events kube.Events
}

// New returns the controller. Its requests are namespace/name of a Service.
func New(c Config) kube.Controller {
	r := &reconciler{Config: c}
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
	Config
	written sync.Map // the last kube.Written of each own record, by its name; a restart may lose it
}

// state is what one pass works on.
type state struct {
	cluster clusterset.Place                 // this one
	export  *mcsv1beta1.ServiceExport        // nil if there is none, or it is being deleted
	service *corev1.Service                  // nil if there is none, or it is being deleted
	own     *hubv1alpha1.ServiceExportRecord // this member's record; nil if there is none
	others  []clusterset.Export              // what other members export under the name to this cluster
	refused string                           // why the hub refuses this member; "" if it does not
	failed  error                            // why this cluster's API server refuses the own record
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
	return kube.Requests(ctx, r.Local, &mcsv1beta1.ServiceExportList{}, kube.Itself)
}

// Reconcile is one pass over one name.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.export == nil && s.own == nil {
		r.written.Delete(clusterset.RecordName(req.Name, req.Namespace, r.Cluster))
		return reconcile.Result{}, nil
	}
	spec, export, valid := decide(s)
	again, err := r.record(ctx, req.NamespacedName, s.own, spec)
	if s.own == nil && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) { // a quota, or a policy
		s.failed = err
	}
	if s.export != nil && (err == nil || s.failed != nil) {
		err = errors.Join(err, r.report(ctx, s, spec, export, valid))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

func (r *reconciler) gather(ctx context.Context, name types.NamespacedName) (s state, err error) {
	if s.cluster, err = kube.Place(ctx, r.Local, r.Cluster); err != nil {
		return s, err
	}
	if s.export, err = kube.Get[*mcsv1beta1.ServiceExport](ctx, r.Local, name); err != nil {
		return s, err
	}
	if s.export != nil && s.export.DeletionTimestamp != nil {
		s.export = nil
	}
	if s.service, err = kube.Get[*corev1.Service](ctx, r.Local, name); err != nil {
		return s, err
	}
	if s.service != nil && s.service.DeletionTimestamp != nil {
		s.service = nil
	}
	refusal, err := kube.Get[*coordinationv1.Lease](ctx, r.Local, inSystem(clusterset.LeaseRefused))
	if err != nil {
		return s, err
	}
	if refusal != nil {
		s.refused = refusal.Annotations[clusterset.AnnotationRefused]
	}
	var records hubv1alpha1.ServiceExportRecordList
	byService := client.MatchingFields{kube.ByService: kube.Key(name)}
	if err := r.Local.List(ctx, &records, client.InNamespace(kube.SystemNamespace), byService); err != nil {
		return s, err
	}
	for i := range records.Items {
		rec := &records.Items[i]
		imported := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionImported)
		s.foreign = s.foreign || imported != nil && imported.Reason == hubv1alpha1.ReasonNotOwned
		if rec.Spec.ClusterID == r.Cluster {
			s.own = rec
		} else if !rec.Spec.Withdrawn {
			e, err := clusterset.ParseExport(rec)
			if err == nil && e.GoesTo(s.cluster) { // whoever imports the record reports the error
				s.others = append(s.others, e)
			}
		}
	}
	rules, known, err := kube.RulesOf(ctx, r.Hub(), r.HubNamespace)
	exporting := s.own != nil && !s.own.Spec.Withdrawn
	s.external = rules.ExternalNames
	s.excluded = !clusterset.MayUse(rules.Namespaces, name.Namespace) && (known || !exporting)
	return s, err
}

func inSystem(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: kube.SystemNamespace, Name: name}
}

// record makes this member's own record equal to spec, and returns when to try again. If spec is nil, it withdraws the
// record, since other members do not take a missing record for the end of an export.
func (r *reconciler) record(
	ctx context.Context, name types.NamespacedName, own *hubv1alpha1.ServiceExportRecord,
	spec *hubv1alpha1.ServiceExportRecordSpec,
) (again time.Duration, err error) {
	if own == nil {
		if spec == nil {
			return 0, nil
		}
		return 0, r.create(ctx, name, *spec)
	}
	rec := own.DeepCopy()
	if spec != nil {
		rec.Spec = *spec
		rec.Spec.EndpointRecords = own.Spec.EndpointRecords // publish sets it
	} else if !own.Spec.Withdrawn {
		rec.Spec = clusterset.Withdrawn(own.Spec.Origin, r.Now())
		rec.Spec.ExportedAt = own.Spec.ExportedAt
	}
	rec.Spec.Revision = own.Spec.Revision
	if equality.Semantic.DeepEqual(rec.Spec, own.Spec) {
		return 0, nil
	}
	content := rec.Spec
	content.Revision, content.EndpointRecords = 0, ""
	if last, ok := r.written.Load(own.Name); ok {
		if wait := last.(kube.Written).Leave(version(own), content, r.Now()); wait > 0 {
			return wait, nil // each change goes to the hub, and is an event for all members
		}
	}
	rec.Spec.Revision = clusterset.NextRevision(own.Spec.Revision, r.Now())
	if rec.Spec.Withdrawn || !rec.Spec.ExportedAt.Equal(own.Spec.ExportedAt) {
		delete(rec.Annotations, clusterset.AnnotationPublished) // another export; publish learns its time
	}
	log.FromContext(ctx).Info("changed the export", "record", rec.Name, "withdrawn", rec.Spec.Withdrawn)
	written := kube.NewWritten(content, r.Now())
	if err := r.Local.Update(ctx, rec); err != nil {
		return 0, err
	}
	written.Version = version(rec)
	r.written.Store(rec.Name, written)
	return 0, nil
}

// version identifies a spec of a record. publish changes the status after each change of the spec.
func version(rec *hubv1alpha1.ServiceExportRecord) string {
	return fmt.Sprint(rec.Generation, " of ", rec.UID)
}

// create creates this member's record. Its revision follows this member's last renewal on the hub: this cluster may
// have lost an earlier record that other members have seen, and its clock may have been set back.
func (r *reconciler) create(
	ctx context.Context, name types.NamespacedName, spec hubv1alpha1.ServiceExportRecordSpec,
) error {
	rec := &hubv1alpha1.ServiceExportRecord{Spec: spec}
	rec.Namespace, rec.Name = kube.SystemNamespace, clusterset.RecordName(name.Name, name.Namespace, r.Cluster)
	renewed, err := kube.Get[*coordinationv1.Lease](ctx, r.Local, inSystem(clusterset.LeaseRenewed))
	if err != nil {
		return err
	}
	last := int64(0)
	if renewed != nil && renewed.Spec.RenewTime != nil {
		last = renewed.Spec.RenewTime.UnixMilli()
	}
	rec.Spec.Revision = clusterset.NextRevision(last, r.Now())
	log.FromContext(ctx).Info("exporting", "record", rec.Name, "type", rec.Spec.Type)
	return r.Local.Create(ctx, rec)
}
