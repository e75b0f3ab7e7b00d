package publish

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
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
	if s.own.Spec.Withdrawn {
		if err := r.restartRetention(ctx, s); err != nil {
			return 0, err
		}
		if again = r.retention(&s.own.Spec.Origin); again <= 0 {
			return 0, r.deleteExport(ctx, s.own)
		}
	}
	if s.published == nil {
		if wait := r.recreateIn(s.own.Name, r.Now()); wait > 0 {
			return wait, nil
		}
		rec := &hubv1alpha1.ServiceExportRecord{Spec: s.own.Spec}
		rec.Namespace, rec.Name = r.HubNamespace, s.own.Name
		return again, r.write(ctx, s, rec, s.own.Spec)
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

// nextRevision makes the own record's revision higher than the hub's, which other members have seen, and returns
// whether it changed anything.
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
	rec := s.own.DeepCopy()
	clusterset.SetPublished(rec, s.published)
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
	err := kube.Delete(ctx, r.Hub(), s.published)
	s.published = nil
	return err
}

// withdrawUnknown withdraws a record that the hub has and this cluster has not.
func (r *reconciler) withdrawUnknown(ctx context.Context, s *state) (again time.Duration, err error) {
	if s.published == nil {
		return 0, nil
	}
	if s.published.Spec.Withdrawn {
		if again = r.retention(&s.published.Spec.Origin); again > 0 {
			return again, nil
		}
		return 0, r.deleteExport(ctx, s.published)
	}
	rec := s.published.DeepCopy()
	rec.Spec = hubv1alpha1.ServiceExportRecordSpec{Origin: clusterset.Withdrawn(s.published.Spec.Origin, r.Now())}
	return clusterset.Retention, r.write(ctx, s, rec, rec.Spec)
}

// restartRetention gives other members a full retention time to see a withdrawal that the hub has not shown yet.
func (r *reconciler) restartRetention(ctx context.Context, s *state) error {
	shown := s.published == nil || s.published.Spec.Withdrawn
	if shown || r.retention(&s.own.Spec.Origin) >= clusterset.Retention/2 {
		return nil
	}
	rec := s.own.DeepCopy()
	rec.Spec.Origin = clusterset.Withdrawn(rec.Spec.Origin, r.Now())
	if err := r.Local.Update(ctx, rec); err != nil {
		return err
	}
	s.own = rec
	return nil
}

// retention returns how much longer a withdrawn record stays on the hub.
func (r *reconciler) retention(o *hubv1alpha1.Origin) time.Duration {
	if o.WithdrawnAt == nil {
		return 0
	}
	return o.WithdrawnAt.Add(clusterset.Retention).Sub(r.Now())
}

// deleteExport deletes a withdrawn record from the hub, and then from this cluster if rec is the local one.
func (r *reconciler) deleteExport(ctx context.Context, rec *hubv1alpha1.ServiceExportRecord) error {
	remote := metav1.ObjectMeta{Namespace: r.HubNamespace, Name: rec.Name}
	err := kube.DeleteNamed(ctx, r.Hub(), r.Hub(), &hubv1alpha1.ServiceExportRecord{ObjectMeta: remote})
	if err != nil {
		return err
	}
	r.forget(rec.Name)
	log.FromContext(ctx).Info("deleted a withdrawn record", "record", rec.Name)
	if rec.Namespace != kube.SystemNamespace {
		return nil
	}
	return kube.Delete(ctx, r.Local, rec)
}
