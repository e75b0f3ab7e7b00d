package serviceexport

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// publish brings the hub up to date: first pages, then the record that counts them. Then it deletes pages that the
// record does not count. It returns when to look again, and whether the hub has all of it. A page that the hub refuses
// is not counted, unless the hub has an earlier version of it.
func (r *reconciler) publish(
	ctx context.Context,
	s *state,
	d *decision,
) (again time.Duration, published bool, err error) {
	if r.Hub() == nil {
		return withoutHub, false, nil // the first event of the hub's ClusterSet requests a pass sooner
	}
	// Also while this agent may not publish: it notes what the hub shows, before a restore lowers that.
	wait := r.noteShown(s)
	if !r.Lease.MayPublish() {
		return askAgain, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	if wait > 0 {
		s.waits = true
		return wait, false, nil
	}
	record := d.record
	record.Endpoints, record.Pages = nil, 0
	var refused, failed error // of the page that ended the writes: by the hub's rules, or otherwise
	if d.exports {
		if isReplaced(s.shown, &record) {
			if err := r.deletePrevious(ctx, s); err != nil {
				return 0, false, err
			}
		}
		again, refused, failed = r.setEndpoints(ctx, s, d, &record)
		// After a conflict the next pass sees what is there. After another failure, write no record that counts no
		// page, and none if the hub shows none: others keep the endpoints of all pages until there is a record, and
		// then drop those of pages that it does not count.
		if isStale(failed) || failed != nil && (record.Pages == 0 || s.shown == nil) {
			return again, false, failed
		}
	}
	next, err := r.publishRecord(ctx, s, record)
	if again = sooner(again, next); err == nil && failed == nil {
		err = r.deletePages(ctx, s, record)
	}
	err = errors.Join(refused, failed, err)
	return again, err == nil && s.shown != nil, err
}

// setEndpoints puts the endpoints into the record, or writes pages and sets how many the record counts. It writes pages
// that the hub has before new ones: they may get the endpoints of a page that the hub lost, which other members keep
// until that page is back. It stops at the first page that cannot be written. A page that is on the hub, or was
// counted, stays counted. A refused page that is not on the hub ends the count.
func (r *reconciler) setEndpoints(
	ctx context.Context, s *state, d *decision, record *hubv1alpha1.ServiceExportRecordSpec,
) (again time.Duration, refused, failed error) {
	counted := int32(0)
	if s.shown != nil {
		counted = s.shown.Spec.Pages
	}
	groups := r.Pages.Arrange(s.groups(), d.groups)
	if r.Pages.Inline(groups, counted > 0) {
		record.Endpoints = groups
		return 0, nil, nil
	}
	var has, lacks []int32
	for i := range groups {
		if number := int32(i); s.pages[number] != nil {
			has = append(has, number)
		} else {
			lacks = append(lacks, number)
		}
	}
	end, moving := int32(len(groups)), false // moving: endpoints may be between two pages
	for _, number := range append(has, lacks...) {
		was := s.pages[number]
		wait, err := r.publishPage(ctx, s, number, groups[number])
		again = sooner(again, wait)
		missing := wait > 0 && s.pages[number] == nil // else the hub stores other content than was written
		moving = moving || missing || s.pages[number] != was || err != nil && was != nil
		switch {
		case isStale(err):
			return again, nil, err
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			if refused = err; was == nil {
				end = number
			}
		default:
			failed = err
		}
		if err != nil {
			break
		}
	}
	for record.Pages < end && (s.pages[record.Pages] != nil || record.Pages < counted) {
		record.Pages++
	}
	if moving && record.Pages < counted { // other members see endpoints in their new page before the old one goes
		record.Pages, again = counted, sooner(again, kube.CacheDelay)
	}
	record.Incomplete = refused != nil || failed != nil && s.shown != nil && s.shown.Spec.Incomplete
	if record.Pages == 0 {
		record.Endpoints = r.Pages.Head(groups)
	}
	return again, refused, failed
}

// groups returns the groups that the hub shows, by number.
func (s *state) groups() (out []hubv1alpha1.EndpointGroup) {
	if s.shown != nil && s.shown.Spec.Pages == 0 && !s.shown.Spec.Withdrawn {
		return s.shown.Spec.Endpoints
	}
	for number := range s.pages {
		for len(out) <= int(number) {
			out = append(out, hubv1alpha1.EndpointGroup{})
		}
	}
	for number, page := range s.pages {
		out[number] = page.Spec.EndpointGroup
	}
	return out
}

// publishPage writes one page, if the hub's differs. It sets s.pages to what the hub has then.
func (r *reconciler) publishPage(
	ctx context.Context, s *state, number int32, group hubv1alpha1.EndpointGroup,
) (again time.Duration, err error) {
	origin := hubv1alpha1.Origin{ClusterID: r.Cluster, ServiceNamespace: s.name.Namespace, ServiceName: s.name.Name}
	content := hubv1alpha1.EndpointPageSpec{Origin: origin, Number: number, EndpointGroup: group}
	shown := s.pages[number]
	page := &hubv1alpha1.EndpointPage{}
	page.Namespace = r.HubNamespace
	page.Name = clusterset.PageName(number, s.name.Name, s.name.Namespace, r.Cluster)
	if shown != nil {
		is := shown.Spec
		is.Revision = 0
		// Other members have imported this group at the record's revision. They take a page with a lower one for
		// restored, so it is written again.
		inline := s.shown != nil && s.shown.Spec.Pages == 0 && shown.Spec.Revision < s.shown.Spec.Revision
		if !r.noteRevision(page.Name, shown.Spec.Revision) && !inline {
			if equality.Semantic.DeepEqual(is, content) {
				return 0, nil
			}
			if wait := r.rewriteIn(page.Name, kube.Version(shown), content, r.Now()); wait > 0 {
				return wait, nil
			}
		}
		page = shown.DeepCopy()
	} else if wait := r.recreateIn(page.Name, r.Now()); wait > 0 {
		return wait, nil
	}
	page.Spec = *content.DeepCopy() // the client decodes the answer into it, and content shares memory with caches
	page.Spec.Revision = r.nextRevision(s)
	if err := r.write(ctx, s, page, content); err != nil {
		return 0, err
	}
	s.pages[number] = page
	return 0, nil
}

// publishRecord writes the record, if the hub's differs, and keeps a withdrawal as long as it is needed. It sets
// s.shown to what the hub has then.
func (r *reconciler) publishRecord(
	ctx context.Context, s *state, content hubv1alpha1.ServiceExportRecordSpec,
) (again time.Duration, err error) {
	content.Revision = 0
	name := r.recordName(s)
	if s.shown == nil {
		if content.ServiceName == "" { // there is no record to withdraw, and pages are only deleted
			return 0, nil
		}
		if wait := r.recreateIn(name, r.Now()); wait > 0 {
			return wait, nil
		}
		rec := &hubv1alpha1.ServiceExportRecord{}
		rec.Namespace, rec.Name = r.HubNamespace, name
		return 0, r.writeRecord(ctx, s, rec, content)
	}
	if !r.noteRevision(name, s.shown.Spec.Revision) {
		if content.Withdrawn && s.isWithdrawn(&content) {
			if again, err = r.deleteTombstone(ctx, s); s.shown == nil || err != nil {
				return again, err
			}
		}
		is := s.shown.Spec
		is.Revision = 0
		// If the hub was restored, perhaps before this process started, even the same content is written.
		older := s.own != nil && s.shown.Spec.Revision < s.own.Spec.Revision
		if !older && equality.Semantic.DeepEqual(is, content) {
			return again, nil
		}
		if wait := r.rewriteIn(name, kube.Version(s.shown), content, r.Now()); !older && wait > 0 {
			return sooner(again, wait), nil
		}
	}
	rec := &hubv1alpha1.ServiceExportRecord{ObjectMeta: *s.shown.ObjectMeta.DeepCopy()}
	return again, r.writeRecord(ctx, s, rec, content)
}

func (r *reconciler) writeRecord(
	ctx context.Context, s *state, rec *hubv1alpha1.ServiceExportRecord, content hubv1alpha1.ServiceExportRecordSpec,
) error {
	rec.Spec = *content.DeepCopy() // the client decodes the answer into it, and content shares memory with caches
	rec.Spec.Revision = r.nextRevision(s)
	if err := r.write(ctx, s, rec, content); err != nil {
		return err
	}
	s.shown = rec
	return nil
}

// isReplaced returns whether an export needs a new record on the hub, whose creation time says since when it counts
// (C1): the hub shows a withdrawal, or another export, such as one that has ended since a restored hub was saved.
func isReplaced(shown *hubv1alpha1.ServiceExportRecord, record *hubv1alpha1.ServiceExportRecordSpec) bool {
	if shown == nil {
		return false
	}
	was, is := shown.Spec.ExportedAt, record.ExportedAt
	return shown.Spec.Withdrawn || was != nil && is != nil && !is.Equal(was)
}

// deletePrevious deletes the record on the hub. This pass creates the next one.
func (r *reconciler) deletePrevious(ctx context.Context, s *state) error {
	log.FromContext(ctx).Info("an export begins again with a new record", "record", s.shown.Name)
	if err := r.prove(ctx, s, s.shown); err != nil {
		return err
	}
	last := s.shown.Spec.Revision
	if err := r.deleteFromHub(ctx, s, s.shown); err != nil {
		return err
	}
	r.noteRevision(s.shown.Name, last) // the next one must be higher
	s.shown = nil
	return nil
}

// deletePages deletes the pages that the hub's record does not state.
func (r *reconciler) deletePages(ctx context.Context, s *state, record hubv1alpha1.ServiceExportRecordSpec) error {
	if s.shown != nil && s.shown.Spec.Pages != record.Pages || s.shown == nil && !record.Withdrawn {
		return nil // the hub's record does not have this count yet, or is still missing
	}
	var errs []error
	numbers := make([]int32, 0, len(s.pages))
	for number := range s.pages {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers) // a seed of the simulation must replay
	for _, number := range numbers {
		if page := s.pages[number]; number >= record.Pages {
			if err := r.prove(ctx, s, page); err != nil {
				return err
			}
			log.FromContext(ctx).Info("deleting a page", "page", page.Name)
			errs = append(errs, r.deleteFromHub(ctx, s, page))
		}
	}
	return errors.Join(errs...)
}

// age returns how long ago a record was withdrawn.
func age(rec *hubv1alpha1.ServiceExportRecord, now time.Time) time.Duration {
	if rec.Spec.WithdrawnAt == nil {
		return withdrawal.MaxRetention
	}
	return now.Sub(rec.Spec.WithdrawnAt.Time)
}

// deleteTombstone deletes a withdrawn record and its copy once every other member has acknowledged it, or after
// MaxRetention. Until then it returns when to look again.
func (r *reconciler) deleteTombstone(ctx context.Context, s *state) (again time.Duration, err error) {
	since, acknowledged := age(s.shown, r.Now()), false
	if since >= withdrawal.MinRetention {
		members, err := kube.Members(ctx, r.Hub(), r.HubNamespace)
		if err != nil {
			return 0, err
		}
		find := func(version string) *hubv1alpha1.ServiceExportRecord {
			return tombstone(ctx, r.Hub(), r.HubNamespace, version)
		}
		acknowledged = withdrawal.Acknowledged(s.shown, members, find)
	}
	if again = withdrawal.RecheckIn(since, acknowledged); again > 0 {
		return again, nil
	}
	if s.own != nil {
		if err := kube.DeleteUnchanged(ctx, r.Local, s.own); err != nil {
			return 0, err
		}
		s.own = nil
	}
	log.FromContext(ctx).Info("deleting a withdrawn record", "record", s.shown.Name, "acknowledged", acknowledged)
	err = r.deleteFromHub(ctx, s, s.shown)
	r.deleted(s.shown.Name, r.Now()) // the cache may show the copy a little longer
	s.shown = nil
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
