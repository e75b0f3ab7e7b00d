package serviceexport

import (
	"context"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// copyOf names a copy in memory.
func copyOf(record string) string { return "copy of " + record }

// copy makes this cluster's copy of its own record say what is decided, and returns when to try again. It sets s.own to
// what it wrote.
func (r *reconciler) copy(ctx context.Context, s *state, d *decision) (again time.Duration, err error) {
	switch {
	case s.own == nil && !d.exports: // nothing here needs the withdrawal of a record that only the hub has
		return 0, nil
	case s.own == nil:
		return 0, r.createCopy(ctx, s, d)
	case clusterset.SameFacts(&s.own.Spec, &d.record):
		return 0, nil
	}
	content := d.record
	content.Revision = 0
	key := copyOf(s.own.Name)
	if wait := r.rewriteIn(key, version(s.own), content, r.Now()); wait > 0 {
		return wait, nil // the API server stores something else; each write would cause the next pass
	}
	rec := s.own.DeepCopy()
	rec.Spec = *d.record.DeepCopy()
	rec.Spec.Revision = r.nextRevision(s)
	if d.record.Withdrawn || !d.record.ExportedAt.Equal(s.own.Spec.ExportedAt) {
		delete(rec.Annotations, clusterset.AnnotationPublished) // another export: setPublished learns its time
	}
	log.FromContext(ctx).Info("changed the export", "record", rec.Name, "withdrawn", rec.Spec.Withdrawn)
	written := kube.NewWritten(content, r.Now())
	if err := r.Local.Update(ctx, rec); err != nil {
		return 0, err
	}
	written.Version = version(rec)
	r.remember(key, written, 0)
	s.own, s.proved = rec, true
	return 0, nil
}

// version identifies a spec of a copy: importing changes the status.
func version(rec *hubv1alpha1.ServiceExportRecord) string {
	return fmt.Sprint(rec.Generation, " of ", rec.UID)
}

// createCopy creates the copy. If the hub does not show the same, its revision follows this member's last renewal on
// the hub: this cluster may have lost an earlier copy of a record that other members have seen, and its clock may have
// been set back.
func (r *reconciler) createCopy(ctx context.Context, s *state, d *decision) error {
	rec := &hubv1alpha1.ServiceExportRecord{Spec: *d.record.DeepCopy()}
	rec.Namespace, rec.Name = kube.SystemNamespace, r.recordName(s)
	renewed, err := kube.Get[*coordinationv1.Lease](ctx, r.Local, inSystem(clusterset.LeaseRenewed))
	if err != nil {
		return err
	}
	rec.Spec.Revision = r.nextRevision(s)
	if s.shown != nil && clusterset.SameFacts(&s.shown.Spec, &d.record) {
		rec.Spec.Revision = s.shown.Spec.Revision
	} else if renewed != nil && renewed.Spec.RenewTime != nil {
		rec.Spec.Revision = max(rec.Spec.Revision, renewed.Spec.RenewTime.UnixMilli()+1)
	}
	log.FromContext(ctx).Info("exporting", "record", rec.Name, "type", rec.Spec.Type)
	if err := r.Local.Create(ctx, rec); err != nil {
		return err
	}
	s.own, s.proved = rec, true
	return nil
}

// setPublished writes to the copy when the hub created the record, by which it ranks among the exports of its name
// (C1).
func (r *reconciler) setPublished(ctx context.Context, s *state) error {
	if s.shown == nil || s.own == nil || s.own.Spec.Withdrawn || s.shown.Spec.Withdrawn ||
		!s.shown.Spec.ExportedAt.Equal(s.own.Spec.ExportedAt) {
		return nil
	}
	rec := s.own.DeepCopy()
	clusterset.SetPublished(rec, s.shown, s.departed)
	if maps.Equal(rec.Annotations, s.own.Annotations) {
		return nil
	}
	rec.Spec.Revision = max(rec.Spec.Revision, s.shown.Spec.Revision) // a later process sees by it a restored hub
	if err := r.Local.Update(ctx, rec); err != nil {
		return err
	}
	s.own = rec
	return nil
}
