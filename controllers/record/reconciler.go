// Package record copies the ServiceExportRecords of other members from the hub to clusterset-system, where
// serviceimport reads them. Absence is not deletion (DESIGN §2): a copy changes only for a newer, valid revision, and
// is deleted only if its owner withdrew it or departed. So imports survive whatever happens to the hub. Own records are
// the work of serviceexport and publish.
package record

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// BackdateTolerance is how much older than its record on the hub an export may claim to be before an Event reports it
// (E9). The claim decides conflicts only among records that the hub created within conflict.Window of the first.
const BackdateTolerance = 10 * time.Minute

// recheck is how often a held record is checked again, because a departure is no event of the record, and a withdrawn
// one whose endpoints are still imported.
const recheck = 10 * time.Second

// Config is what the controller needs.
type Config struct {
	Cluster      string // cluster ID of this member
	HubNamespace string

	Local client.Client
	Hub   func() client.Client // the hub's caches

	Now    func() time.Time
	Events kube.Events
}

// New returns the controller. Its requests are names of records.
func New(c Config) kube.Controller {
	r := &reconciler{c}
	names := kube.Named(r.others)
	return kube.Controller{
		Name:     "record",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: names},
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: names},
			{
				Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: r.allRecords,
				Alike: func(was, is client.Object) bool {
					before, after := was.(*hubv1alpha1.ClusterSet), is.(*hubv1alpha1.ClusterSet)
					return kube.SameRules(was, is) && equality.Semantic.DeepEqual(
						before.Status.Departed, after.Status.Departed)
				},
			},
		},
		Reconciler: r,
	}
}

type reconciler struct{ Config }

// others returns the name of a record of another member.
func (r *reconciler) others(record client.Object) (n types.NamespacedName) {
	if kube.Origin(record).ClusterID != r.Cluster {
		n.Name = record.GetName()
	}
	return n
}

// allRecords requests a pass over every record of other members, because the namespace rules have changed.
func (r *reconciler) allRecords(ctx context.Context, _ client.Object) []reconcile.Request {
	records := &hubv1alpha1.ServiceExportRecordList{}
	return kube.Requests(ctx, r.Hub(), records, r.others, client.InNamespace(r.HubNamespace))
}

// action is what to do with the copy.
type action int

const (
	keep   action = iota // nothing
	follow               // update it from the hub
	hold                 // keep it, although the hub says otherwise, and report that
	drop                 // delete it
)

// decide returns what to do with a copy. shown is the record on the hub; either may be nil. departed says that the
// owner departed after it published the copied record. With hold, reason and message are those of the condition Held,
// or of the Event if there is no copy.
func decide(shown, copied *hubv1alpha1.ServiceExportRecord, departed bool) (a action, reason, message string) {
	switch {
	case shown == nil && copied == nil:
		return keep, "", ""
	case shown == nil && (copied.Spec.Withdrawn || departed):
		return drop, "", ""
	case shown == nil:
		return hold, "Absent", "The hub does not show this record, but its owner has not withdrawn it. It stays."
	case copied == nil && shown.Spec.Withdrawn:
		return keep, "", ""
	case copied != nil && shown.Spec.Revision < copied.Spec.Revision &&
		!shown.CreationTimestamp.After(clusterset.Created(copied)):
		return hold, "OlderRevision", fmt.Sprintf(
			"The hub shows revision %d, which is older than %d, as after a restore. "+
				"Revision %[2]d stays in effect until its owner publishes again.",
			shown.Spec.Revision,
			copied.Spec.Revision,
		)
	}
	if !shown.Spec.Withdrawn {
		if _, err := clusterset.ParseExport(shown); err != nil {
			return hold, "Refused", fmt.Sprintf("The record on the hub is not imported: %v.", err)
		}
	}
	return follow, "", ""
}

// Reconcile is one pass over one record.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := types.NamespacedName{Namespace: r.HubNamespace, Name: req.Name}
	shown, err := kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, r.Hub(), name)
	if err != nil {
		return reconcile.Result{}, err
	}
	name.Namespace = kube.SystemNamespace
	copied, err := kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, r.Local, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if excluded, err := r.exclude(ctx, shown, copied); excluded || err != nil {
		return reconcile.Result{}, err
	}
	departures, err := kube.Departures(ctx, r.Hub(), r.HubNamespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	departed := false
	if shown == nil && copied != nil {
		departed = clusterset.Created(copied).Before(departures[copied.Spec.ClusterID])
	}
	a, reason, message := decide(shown, copied, departed)
	if copied == nil && shown != nil && shown.Spec.Withdrawn { // a user may have deleted the copy at that moment
		if imported, err := r.isImported(ctx, shown); err != nil {
			return reconcile.Result{}, err
		} else if imported {
			a = follow
		}
	}
	switch {
	case a == follow:
		return reconcile.Result{}, r.follow(ctx, shown, copied, departures[shown.Spec.ClusterID])
	case a == drop:
		// Without the copy, serviceimport would hold what is still imported from this cluster.
		if imported, err := r.isImported(ctx, copied); imported && !departed || err != nil {
			return reconcile.Result{RequeueAfter: recheck}, err
		}
		log.FromContext(ctx).Info("an export ended", "record", copied.Name, "withdrawn", copied.Spec.Withdrawn)
		return reconcile.Result{}, kube.Delete(ctx, r.Local, copied)
	case a == hold && copied == nil:
		about := shown.DeepCopy()
		about.Namespace = kube.SystemNamespace // where the copy would be
		r.Events.Event(about, kube.Warning, "RecordRefused", message)
	case a == hold:
		return reconcile.Result{RequeueAfter: recheck}, r.setHeld(ctx, copied, metav1.ConditionTrue, reason, message)
	}
	return reconcile.Result{}, nil
}

// exclude reports whether a record belongs to a namespace that must not be used (S5). It deletes the copy of such a
// record, unless the rules are only assumed.
func (r *reconciler) exclude(
	ctx context.Context, shown, copied *hubv1alpha1.ServiceExportRecord,
) (excluded bool, err error) {
	either := copied
	if shown != nil {
		either = shown
	}
	rules, known, err := kube.RulesOf(ctx, r.Hub(), r.HubNamespace)
	if err != nil || either == nil || clusterset.MayUse(rules.Namespaces, either.Spec.ServiceNamespace) {
		return false, err
	}
	switch {
	case copied != nil && known:
		log.FromContext(ctx).Info("an export ended: its namespace must not be used", "record", copied.Name)
		return true, kube.Delete(ctx, r.Local, copied)
	case copied != nil:
		return false, nil
	case !shown.Spec.Withdrawn:
		about := shown.DeepCopy()
		about.Namespace = kube.SystemNamespace // where the copy would be
		r.Events.Event(about, kube.Warning, "RecordRefused", fmt.Sprintf(
			"The record on the hub is not imported: the ClusterSet's spec.namespaces excludes namespace %s.",
			shown.Spec.ServiceNamespace))
	}
	return true, nil
}

// annotationBackdated on a copy is the exportedAt that an Event BackdatedExport has reported.
const annotationBackdated = "clusterset-dns.io/backdated"

// isImported returns whether an import has something from the record's cluster.
func (r *reconciler) isImported(ctx context.Context, rec *hubv1alpha1.ServiceExportRecord) (bool, error) {
	name := kube.Exported(rec)
	imp, err := kube.Get[*mcsv1beta1.ServiceImport](ctx, r.Local, name)
	if err != nil {
		return false, err
	}
	ofCluster := func(c mcsv1beta1.ClusterStatus) bool { return c.Cluster == rec.Spec.ClusterID }
	if imp != nil && imp.Labels[derived.LabelManagedBy] == kube.Manager &&
		slices.ContainsFunc(imp.Status.Clusters, ofCluster) {
		return true, nil
	}
	var imported discoveryv1.EndpointSliceList
	err = r.Local.List(ctx, &imported, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{kube.ByImport: kube.Key(name)})
	return slices.ContainsFunc(imported.Items, func(s discoveryv1.EndpointSlice) bool {
		return s.Labels[mcsv1beta1.LabelSourceCluster] == rec.Spec.ClusterID
	}), err
}

// Acknowledge sets withdrawal.AnnotationAcknowledged on this member's Lease: the newest withdrawn record on the hub for
// which no copy here is still to follow it or an older one. It reads caches only.
func (c Config) Acknowledge(ctx context.Context, lease *coordinationv1.Lease) error {
	var list hubv1alpha1.ServiceExportRecordList
	if err := c.Hub().List(ctx, &list, client.InNamespace(c.HubNamespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{kube.ByTombstone: kube.AllTombstones}); err != nil {
		return err
	}
	var tombstones []*hubv1alpha1.ServiceExportRecord
	for i := range list.Items {
		if list.Items[i].Spec.ClusterID != c.Cluster {
			tombstones = append(tombstones, &list.Items[i])
		}
	}
	var failed error
	newest := withdrawal.Newest(tombstones, func(rec *hubv1alpha1.ServiceExportRecord) bool {
		name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: rec.Name}
		copied, err := kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, c.Local, name)
		if err != nil {
			failed = err
			return false
		}
		if copied == nil { // Reconcile makes one if something is still imported
			imported, err := (&reconciler{c}).isImported(ctx, rec)
			failed = errors.Join(failed, err)
			return err == nil && !imported
		}
		a, _, _ := decide(rec, copied, false)
		return copied.Spec.Withdrawn || a != follow
	})
	acknowledged := ""
	if newest != nil {
		acknowledged = kube.Version(newest)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, withdrawal.AnnotationAcknowledged, acknowledged)
	return failed
}

// follow updates the copy from the hub. If it is up to date, follow reports a backdated export and ends Held. departed
// is when the owner did last.
func (r *reconciler) follow(
	ctx context.Context, shown, copied *hubv1alpha1.ServiceExportRecord, departed time.Time,
) error {
	rec := &hubv1alpha1.ServiceExportRecord{}
	if copied != nil {
		rec = copied.DeepCopy()
	}
	clusterset.SetPublished(rec, shown, departed)
	rec.Namespace, rec.Name, rec.Spec = kube.SystemNamespace, shown.Name, shown.Spec
	if copied != nil && equality.Semantic.DeepEqual(rec.Spec, copied.Spec) &&
		maps.Equal(rec.Annotations, copied.Annotations) {
		if claim := backdated(copied); claim != "" {
			return r.reportBackdated(ctx, copied, claim) // the annotation triggers the next pass
		}
		return r.setHeld(ctx, copied, metav1.ConditionFalse, "Current", "The copy is up to date.")
	}
	log.FromContext(ctx).
		Info("copying a record", "record", rec.Name, "revision", rec.Spec.Revision, "withdrawn", rec.Spec.Withdrawn)
	if copied == nil {
		return r.Local.Create(ctx, rec)
	}
	return r.Local.Update(ctx, rec)
}

// backdated returns the exportedAt of a copy if it is older than it can be (E9) and not yet reported, else "".
func backdated(copied *hubv1alpha1.ServiceExportRecord) (claim string) {
	at := copied.Spec.ExportedAt
	if at == nil || copied.Spec.Withdrawn || clusterset.Published(copied).Sub(at.Time) <= BackdateTolerance {
		return ""
	}
	if claim = at.UTC().Format(time.RFC3339); copied.Annotations[annotationBackdated] == claim {
		return ""
	}
	return claim
}

// reportBackdated raises the Event before it annotates the copy, so that a crash in between repeats the Event instead
// of losing it.
func (r *reconciler) reportBackdated(ctx context.Context, copied *hubv1alpha1.ServiceExportRecord, claim string) error {
	s := &copied.Spec
	published := clusterset.Published(copied).UTC().Format(time.RFC3339)
	r.Events.Event(
		copied,
		kube.Warning,
		"BackdatedExport",
		fmt.Sprintf("Cluster %s states that it has exported %s/%s since %s, but "+
			"published it at %s. It may have joined late, or its clock is wrong. In conflicts, that age counts "+
			"only if the export was published within %v of the first one of the name. Otherwise it ranks last.",
			s.ClusterID, s.ServiceNamespace, s.ServiceName, claim, published, conflict.Window),
	)
	reported := copied.DeepCopy()
	metav1.SetMetaDataAnnotation(&reported.ObjectMeta, annotationBackdated, claim)
	return r.Local.Update(ctx, reported)
}

// setHeld sets the condition Held. It does not add Held False to a copy that was never held.
func (r *reconciler) setHeld(
	ctx context.Context, copied *hubv1alpha1.ServiceExportRecord, status metav1.ConditionStatus, reason, message string,
) error {
	if status == metav1.ConditionFalse &&
		!meta.IsStatusConditionTrue(copied.Status.Conditions, hubv1alpha1.ConditionHeld) {
		return nil
	}
	c := metav1.Condition{Type: hubv1alpha1.ConditionHeld, Status: status, Reason: reason, Message: message}
	all, changed := conditions.Set(
		copied.Status.Conditions, []metav1.Condition{c}, copied.Generation, metav1.NewTime(r.Now()),
	)
	if !changed {
		return nil
	}
	rec := copied.DeepCopy()
	rec.Status.Conditions = all
	if err := r.Local.Status().Patch(ctx, rec, kube.Changes(copied)); err != nil {
		return err
	}
	if status == metav1.ConditionTrue {
		r.Events.Event(rec, kube.Warning, "RecordHeld", message)
	}
	return nil
}
