// Package publish keeps the hub at what this member says: its own records, as serviceexport wrote them here, and one EndpointRecord
// per EndpointSlice of what is exported (DESIGN §2). It writes this member's records only.
package publish

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

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
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Controller is this room's entry in the list of controllers. Requests are namespace/name of a Service.
func Controller(env *kube.Env) kube.Controller {
	own := func(o client.Object) (n types.NamespacedName) {
		if kube.Origin(o).ClusterID == env.Cluster {
			n = kube.Exported(o)
		}
		return n
	}
	r := &reconciler{Env: env, said: map[string]int64{}, ended: map[string]time.Time{}, told: map[string]time.Time{}, waiting: map[types.NamespacedName]bool{}}
	return kube.Controller{
		Name:     "publish",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(own)},
			{Side: kube.Local, Object: &mcsv1beta1.ServiceExport{}, Requests: kube.Named(kube.Itself)},
			{Side: kube.Local, Object: &discoveryv1.EndpointSlice{}, Requests: kube.Named(kube.SourceOf)},
			{Side: kube.Hub, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(own)},
			{Side: kube.Hub, Object: &hubv1alpha1.EndpointRecord{}, Requests: kube.Named(own)},
		},
		Reconciler: r,
		Wakes:      r.wakes,
	}
}

type reconciler struct {
	*kube.Env

	mu    sync.Mutex
	said  map[string]int64     // the highest revision of each own EndpointRecord that the hub has shown or taken
	ended map[string]time.Time // own records that were deleted to be created anew, and when
	told  map[string]time.Time // own records of which a failure was told, and when
	still time.Time            // since when nothing may be said

	waiting map[types.NamespacedName]bool // for the first own renewal to be seen; nil once it was
}

// overtaken takes note of a revision that the hub shows, and tells the highest one if that is higher: a restored hub shows an older one,
// which peers that have imported the higher one do not follow, even where its content is right again. What was the highest is not known of
// a hub that may have been restored before this agent began.
func (r *reconciler) overtaken(record string, revision int64) (highest int64, by bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	highest, known := r.said[record]
	if !known && revision > 0 {
		if then, lapsed := r.Lapsed(); lapsed {
			return max(revision, then.UnixMilli()), true
		}
	}
	if revision < highest {
		return highest, true
	}
	r.said[record] = revision
	return revision, false
}

// took takes note of a revision that the hub has taken.
func (r *reconciler) took(record string, revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said[record] = max(r.said[record], revision)
}

func (r *reconciler) forget(record string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.said, record)
}

// state is what one pass goes by.
type state struct {
	own       *hubv1alpha1.ServiceExportRecord // what this member says, nil if it says nothing
	published *hubv1alpha1.ServiceExportRecord // what the hub has of it
	slices    discoveryv1.EndpointSliceList
	endpoints map[string]*hubv1alpha1.EndpointRecord // this member's on the hub
	wrote     bool                                   // something of it, in this pass
}

// Reconcile is one pass over one name.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if r.Rival() {
		return reconcile.Result{RequeueAfter: 2 * time.Second}, nil
	}
	if r.waits(req.NamespacedName) {
		return reconcile.Result{RequeueAfter: r.patience()}, nil
	}
	s, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.own == nil {
		if s.published == nil && len(s.endpoints) == 0 {
			return reconcile.Result{}, nil
		}
		// Records of this member that it knows nothing of: its own cluster lost its memory, or the hub has found old ones again. Where
		// there is an export, serviceexport is about to say so.
		export, err := kube.Get[*mcsv1beta1.ServiceExport](ctx, r.Local, req.NamespacedName)
		if err != nil || export != nil && !invalid(export) {
			return reconcile.Result{}, err
		}
	}
	again, err := r.say(ctx, req.Name, &s)
	if s.own != nil {
		err = errors.Join(err, r.report(ctx, s.own, err))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.wrote && (again == 0 || again > lost) {
		again = lost
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// lost is when to look again whether the hub still has what was written: one that is restored before its watch has shown that makes no
// event of it.
const lost = 30 * time.Second

// invalid tells whether serviceexport has looked at this export and found nothing to export.
func invalid(export *mcsv1beta1.ServiceExport) bool {
	c := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == export.Generation
}

func (r *reconciler) gather(ctx context.Context, name types.NamespacedName) (s state, err error) {
	record := clusterset.RecordName(name.Name, name.Namespace, r.Cluster)
	if s.own, err = kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, r.Local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: record}); err != nil {
		return s, err
	}
	hub := r.Hub()
	if s.published, err = kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, hub, types.NamespacedName{Namespace: r.HubNamespace, Name: record}); err != nil {
		return s, err
	}
	var records hubv1alpha1.EndpointRecordList
	if err := hub.List(ctx, &records, client.InNamespace(r.HubNamespace), client.MatchingFields{kube.ByService: kube.Key(name)}); err != nil {
		return s, err
	}
	s.endpoints = map[string]*hubv1alpha1.EndpointRecord{}
	for i := range records.Items {
		if records.Items[i].Spec.ClusterID == r.Cluster {
			s.endpoints[records.Items[i].Name] = &records.Items[i]
		}
	}
	if s.own != nil && !s.own.Spec.Withdrawn {
		err = r.Local.List(ctx, &s.slices, client.InNamespace(name.Namespace), client.MatchingFields{kube.ByService: kube.Key(name)})
	}
	return s, err
}

// say publishes endpoints before the export that they are of, and takes them back after it. So who follows an export finds them; and on a
// hub that was restored, where the backup had an earlier export of the name, theirs and not those. What fails does not stop the other.
func (r *reconciler) say(ctx context.Context, service string, s *state) (again time.Duration, err error) {
	steps := []func() (time.Duration, error){
		func() (time.Duration, error) { return r.publishEndpoints(ctx, service, s) },
		func() (time.Duration, error) { return r.record(ctx, s) },
	}
	if s.own == nil || s.own.Spec.Withdrawn {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		next, failed := step()
		if err = errors.Join(err, failed); next > 0 && (again == 0 || next < again) {
			again = next
		}
	}
	return again, err
}

// record makes the hub's record this member's own, and tells when to look at a withdrawn one again.
func (r *reconciler) record(ctx context.Context, s *state) (again time.Duration, err error) {
	if s.own == nil {
		if s.published == nil || s.published.Spec.Withdrawn {
			return r.expire(ctx, s.published)
		}
		rec := s.published.DeepCopy()
		rec.Spec = hubv1alpha1.ServiceExportRecordSpec{Origin: clusterset.Withdrawn(s.published.Spec.Origin, r.Now())}
		return clusterset.Retention, r.write(ctx, s, rec)
	}
	spent := clusterset.Spent(s.own.Spec.Revision)
	switch {
	case s.published != nil && (spent || clusterset.Spent(s.published.Spec.Revision)):
		return r.anew(ctx, s, s.published)
	case spent: // by overtaking one that was almost the last
		rec := s.own.DeepCopy()
		rec.Spec.Revision = clusterset.NextRevision(0, r.Now())
		return 0, r.Local.Update(ctx, rec)
	}
	if s.published != nil && s.published.Spec.Revision > s.own.Spec.Revision {
		// What others have seen is ahead of what this cluster remembers: it must overtake before anyone listens.
		rec := s.own.DeepCopy()
		rec.Spec.Revision = clusterset.NextRevision(s.published.Spec.Revision, r.Now())
		return 0, r.Local.Update(ctx, rec)
	}
	if s.own.Spec.Withdrawn && s.published != nil && !s.published.Spec.Withdrawn && r.left(&s.own.Spec.Origin) < clusterset.Retention/2 {
		// The hub was away since: the time that others have to see it begins when it can show it.
		rec := s.own.DeepCopy()
		rec.Spec.Origin = clusterset.Withdrawn(rec.Spec.Origin, r.Now())
		if err := r.Local.Update(ctx, rec); err != nil {
			return 0, err
		}
		s.own = rec
	}
	if s.own.Spec.Withdrawn {
		if again, err = r.expire(ctx, s.own); err != nil || again <= 0 {
			return 0, err
		}
	}
	if s.published == nil {
		if wait := r.tooSoon(s.own.Name); wait > 0 {
			return wait, nil
		}
		rec := &hubv1alpha1.ServiceExportRecord{Spec: s.own.Spec}
		rec.Namespace, rec.Name = r.HubNamespace, s.own.Name
		log.FromContext(ctx).Info("publishing", "record", rec.Name)
		s.wrote = true
		return again, r.Hub().Create(ctx, rec)
	}
	if equality.Semantic.DeepEqual(s.published.Spec, s.own.Spec) {
		return again, nil
	}
	rec := s.published.DeepCopy()
	rec.Spec = s.own.Spec
	return again, r.write(ctx, s, rec)
}

// expire removes a withdrawn record, here and on the hub, once everyone has had the time to see it; again is what is left of it.
func (r *reconciler) expire(ctx context.Context, rec *hubv1alpha1.ServiceExportRecord) (again time.Duration, err error) {
	if rec == nil {
		return 0, nil
	}
	if again = r.left(&rec.Spec.Origin); again > 0 {
		return again, nil
	}
	on := &hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: r.HubNamespace, Name: rec.Name}}
	if err := kube.Gone(r.Hub().Delete(ctx, on)); err != nil {
		return 0, err
	}
	log.FromContext(ctx).Info("removed a record withdrawn a day ago", "record", rec.Name)
	if rec.Namespace != kube.SystemNamespace {
		return 0, nil
	}
	return 0, kube.Gone(r.Local.Delete(ctx, rec))
}

func (r *reconciler) left(o *hubv1alpha1.Origin) time.Duration {
	if o.WithdrawnAt == nil {
		return 0
	}
	return o.WithdrawnAt.Add(clusterset.Retention).Sub(r.Now())
}

// publishEndpoints makes the hub's EndpointRecords those of the slices: what there is first, then withdrawals.
func (r *reconciler) publishEndpoints(ctx context.Context, service string, s *state) (again time.Duration, err error) {
	kept := map[string]bool{}
	var errs []error
	for _, slice := range byName(s.slices.Items) { // failures are told in this order
		spec, ok := clusterset.EndpointsOf(r.Cluster, service, slice)
		if !ok {
			continue
		}
		name := clusterset.EndpointRecordName(string(slice.UID), r.Cluster)
		kept[name] = true
		wait, err := r.publishOne(ctx, s, name, spec)
		again = max(again, wait)
		errs = append(errs, err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.endpoints)) { // in an order, so that a seed of the simulation replays
		rec := s.endpoints[name]
		if kept[name] {
			continue
		}
		if !rec.Spec.Withdrawn {
			gone := rec.DeepCopy()
			gone.Spec = hubv1alpha1.EndpointRecordSpec{Origin: clusterset.Withdrawn(rec.Spec.Origin, r.Now())}
			highest, _ := r.overtaken(name, rec.Spec.Revision)
			gone.Spec.Revision = max(gone.Spec.Revision, clusterset.NextRevision(highest, r.Now()))
			errs = append(errs, r.write(ctx, s, gone))
			if again == 0 {
				again = clusterset.Retention
			}
			continue
		}
		left := r.left(&rec.Spec.Origin)
		if left <= 0 {
			errs = append(errs, kube.Gone(r.Hub().Delete(ctx, rec, client.Preconditions{UID: &rec.UID}))) // not that of another Service
			r.forget(name)
		} else if again == 0 || left < again {
			again = left
		}
	}
	return again, errors.Join(errs...)
}

// byName are slices in the order of their names; the list stays as it is.
func byName(list []discoveryv1.EndpointSlice) (out []*discoveryv1.EndpointSlice) {
	for i := range list {
		out = append(out, &list[i])
	}
	slices.SortFunc(out, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (r *reconciler) publishOne(ctx context.Context, s *state, name string, spec hubv1alpha1.EndpointRecordSpec) (again time.Duration, err error) {
	published := s.endpoints[name]
	if published == nil {
		if wait := r.tooSoon(name); wait > 0 {
			return wait, nil
		}
		if err := r.takeOver(ctx, s, name, &spec.Origin); err != nil {
			return 0, err
		}
		rec := &hubv1alpha1.EndpointRecord{Spec: spec}
		rec.Namespace, rec.Name = r.HubNamespace, name
		highest, _ := r.overtaken(name, 0)
		rec.Spec.Revision = clusterset.NextRevision(highest, r.Now())
		s.wrote = true
		if err := r.Hub().Create(ctx, rec); err != nil {
			return 0, err
		}
		r.took(name, rec.Spec.Revision)
		return 0, nil
	}
	if clusterset.Spent(published.Spec.Revision) {
		return r.anew(ctx, s, published)
	}
	spec.Revision = published.Spec.Revision
	highest, behind := r.overtaken(name, spec.Revision)
	if !behind && equality.Semantic.DeepEqual(spec, published.Spec) {
		return 0, nil
	}
	rec := published.DeepCopy()
	rec.Spec = spec
	rec.Spec.Revision = clusterset.NextRevision(highest, r.Now())
	if err := r.write(ctx, s, rec); err != nil {
		return 0, err
	}
	r.took(name, rec.Spec.Revision)
	return 0, nil
}

func (r *reconciler) write(ctx context.Context, s *state, rec client.Object) error {
	s.wrote = true
	log.FromContext(ctx).Info("publishing a change", "record", rec.GetName(), "withdrawn", kube.Origin(rec).Withdrawn)
	return r.Hub().Update(ctx, rec)
}
