package publish

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// publishExport makes the hub's ServiceExportRecord equal to this cluster's own one. It returns when to look again.
func (r *reconciler) publishExport(ctx context.Context, s *state) (again time.Duration, err error) {
	if s.own == nil {
		return r.withdrawUnknown(ctx, s)
	}
	if next, changed, err := r.nextRevision(ctx, s); changed || err != nil {
		return next, err
	}
	if changed, err := r.setPublished(ctx, s); changed || err != nil {
		return 0, err
	}
	if isReplaced(s) {
		if err := r.deletePrevious(ctx, s); err != nil {
			return 0, err
		}
	}
	switch {
	case s.own.Spec.Withdrawn:
		err = r.restartRetention(ctx, s)
	default:
		err = r.stateEndpoints(ctx, s)
	}
	if err != nil {
		return 0, err
	}
	if s.published == nil {
		if wait := r.recreateIn(s.own.Name, r.Now()); wait > 0 {
			return wait, nil
		}
		rec := &hubv1alpha1.ServiceExportRecord{Spec: s.own.Spec}
		rec.Namespace, rec.Name = r.HubNamespace, s.own.Name
		return 0, r.write(ctx, s, rec, s.own.Spec)
	}
	if s.own.Spec.Withdrawn && s.isWithdrawn() {
		if again, err = r.retain(ctx, s); s.published == nil || err != nil {
			return again, err
		}
	}
	if equality.Semantic.DeepEqual(s.published.Spec, s.own.Spec) {
		return again, nil
	}
	if wait := r.alteredByHub(s.published, s.own.Spec, r.Now()); wait > 0 {
		return sooner(again, wait), nil
	}
	rec := s.published.DeepCopy()
	rec.Spec = s.own.Spec
	return again, r.write(ctx, s, rec, s.own.Spec)
}

// isWithdrawn returns whether the hub shows that the own record is withdrawn. It may show an earlier withdrawal of the
// same record, from a backup: members that saw the export since do not believe that one.
func (s *state) isWithdrawn() bool {
	return s.published != nil && s.published.Spec.Withdrawn && s.published.Spec.Revision == s.own.Spec.Revision
}

// nextRevision makes the own record's revision higher than the hub's, which other members have seen, and returns
// whether it changed anything. A record whose revision cannot grow is recreated.
func (r *reconciler) nextRevision(ctx context.Context, s *state) (again time.Duration, changed bool, err error) {
	last := s.own.Spec.Revision
	spent := clusterset.Spent(last)
	switch {
	case s.published != nil && (spent || clusterset.Spent(s.published.Spec.Revision)):
		again, err = r.recreate(ctx, s, s.published)
		return again, true, err
	case spent:
		last = 0
	case s.published != nil && s.published.Spec.Revision > last:
		last = s.published.Spec.Revision
	default:
		return 0, false, nil
	}
	rec := s.own.DeepCopy()
	rec.Spec.Revision = clusterset.NextRevision(last, r.Now())
	return 0, true, r.Local.Update(ctx, rec)
}

// setPublished writes to the own record when the hub created it, by which it ranks among the exports of its name (C1).
// It returns whether it changed anything.
func (r *reconciler) setPublished(ctx context.Context, s *state) (changed bool, err error) {
	if s.published == nil || s.own.Spec.Withdrawn || s.published.Spec.Withdrawn ||
		!s.published.Spec.ExportedAt.Equal(s.own.Spec.ExportedAt) {
		return false, nil
	}
	departures, err := kube.Departures(ctx, r.Hub(), r.HubNamespace)
	if err != nil {
		return false, err
	}
	rec := s.own.DeepCopy()
	clusterset.SetPublished(rec, s.published, departures[r.Cluster])
	if maps.Equal(rec.Annotations, s.own.Annotations) {
		return false, nil
	}
	return true, r.Local.Update(ctx, rec)
}

// isReplaced returns whether the own record needs a new one on the hub. The hub's policy lets no record return from a
// withdrawal or state an earlier exportedAt: its creation time says since when it counts (C1).
func isReplaced(s *state) bool {
	if s.published == nil || s.own.Spec.Withdrawn {
		return false
	}
	was, is := s.published.Spec.ExportedAt, s.own.Spec.ExportedAt
	return s.published.Spec.Withdrawn || was != nil && is != nil && is.Before(was)
}

// deletePrevious deletes the record on the hub. This pass creates the next one.
func (r *reconciler) deletePrevious(ctx context.Context, s *state) error {
	log.FromContext(ctx).Info("an export begins again with a new record", "record", s.published.Name)
	s.wrote = true
	err := r.deleteRecord(ctx, s.published)
	s.published = nil
	return err
}

// stateEndpoints makes the own record state which EndpointRecords it has, so that other members can tell an
// EndpointRecord that has gone from one that the hub has lost. They believe it only about endpoints with a lower
// revision.
func (r *reconciler) stateEndpoints(ctx context.Context, s *state) error {
	stated := clusterset.EndpointSet(s.endpointNames())
	if s.own.Spec.EndpointRecords == stated && !s.losesNewer() {
		return nil
	}
	rec := s.own.DeepCopy()
	rec.Spec.EndpointRecords = stated
	last := rec.Spec.Revision
	for _, e := range s.endpoints {
		if !clusterset.Spent(e.Spec.Revision) {
			last = max(last, e.Spec.Revision)
		}
	}
	if before, lost := r.Lease.HubMayHaveLost(); lost {
		last = max(last, before.UnixMilli())
	}
	rec.Spec.Revision = clusterset.NextRevision(last, r.Now())
	if err := r.Local.Update(ctx, rec); err != nil {
		return err
	}
	s.own = rec
	return nil
}

// losesNewer returns whether the hub has an EndpointRecord that must go and that the own record says nothing about,
// because it is as new: an agent that ended before it stated what it had just published leaves such a record.
func (s *state) losesNewer() bool {
	names := s.endpointNames()
	for name, e := range s.endpoints {
		newer := e.Spec.Revision >= s.own.Spec.Revision && !clusterset.Spent(e.Spec.Revision)
		if newer && !slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// withdrawUnknown withdraws a record that the hub has and this cluster has not.
func (r *reconciler) withdrawUnknown(ctx context.Context, s *state) (again time.Duration, err error) {
	if s.published == nil {
		return 0, nil
	}
	if s.published.Spec.Withdrawn {
		return r.retain(ctx, s)
	}
	rec := s.published.DeepCopy()
	rec.Spec = clusterset.Withdrawn(s.published.Spec.Origin, r.Now())
	return withdrawal.MinRetention, r.write(ctx, s, rec, rec.Spec)
}

// restartRetention gives other members the full retention to see a withdrawal that the hub has not shown yet.
func (r *reconciler) restartRetention(ctx context.Context, s *state) error {
	if s.isWithdrawn() || age(s.own, r.Now()) < withdrawal.MaxRetention/2 {
		return nil
	}
	rec := s.own.DeepCopy()
	rec.Spec = clusterset.Withdrawn(rec.Spec.Origin, r.Now())
	rec.Spec.ExportedAt = s.own.Spec.ExportedAt
	if err := r.Local.Update(ctx, rec); err != nil {
		return err
	}
	s.own = rec
	return nil
}

// age returns how long ago a record was withdrawn.
func age(rec *hubv1alpha1.ServiceExportRecord, now time.Time) time.Duration {
	if rec.Spec.WithdrawnAt == nil {
		return withdrawal.MaxRetention
	}
	return now.Sub(rec.Spec.WithdrawnAt.Time)
}

// retain deletes a withdrawn record once every other member has acknowledged it, or returns when to look again. It
// deletes the own record, too, because nothing needs it any more.
func (r *reconciler) retain(ctx context.Context, s *state) (again time.Duration, err error) {
	since, acknowledged := age(s.published, r.Now()), false
	if since >= withdrawal.MinRetention {
		members, err := kube.Members(ctx, r.Hub(), r.HubNamespace)
		if err != nil {
			return 0, err
		}
		find := func(version string) *hubv1alpha1.ServiceExportRecord {
			return tombstone(ctx, r.Hub(), r.HubNamespace, version)
		}
		acknowledged = withdrawal.Acknowledged(s.published, members, find)
	}
	if again = withdrawal.Wait(since, acknowledged); again > 0 {
		return again, nil
	}
	if s.own != nil {
		if err := kube.DeleteUnchanged(ctx, r.Local, s.own); err != nil {
			return 0, err
		}
		s.own = nil
	}
	log.FromContext(ctx).Info("deleting a withdrawn record", "record", s.published.Name, "acknowledged", acknowledged)
	err = r.deleteRecord(ctx, s.published)
	r.deleted(s.published.Name, r.Now()) // the cache may show the own record a little longer
	s.published = nil
	return 0, err
}

// tombstone returns the withdrawn record on the hub with this version, or nil.
func tombstone(ctx context.Context, hub client.Reader, namespace, version string) *hubv1alpha1.ServiceExportRecord {
	var found hubv1alpha1.ServiceExportRecordList
	err := hub.List(ctx, &found, client.InNamespace(namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{kube.ByTombstone: version})
	if err != nil || len(found.Items) == 0 {
		return nil
	}
	return &found.Items[0]
}

// deleteRecord deletes an own record from the hub, unless it has changed.
func (r *reconciler) deleteRecord(ctx context.Context, rec client.Object) error {
	if err := kube.DeleteUnchanged(ctx, r.Hub(), rec); err != nil {
		return err
	}
	r.forget(rec.GetName())
	return nil
}
