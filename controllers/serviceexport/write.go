package serviceexport

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// memory is what this agent remembers about what it wrote. Everything in it may be lost at a restart.
type memory struct {
	mu       sync.Mutex
	records  map[string]*history // by the name of a record or page
	reported kube.Reported       // by the name of a record
}

// history is what this agent remembers about one record or page.
type history struct {
	revision int64        // the highest that the hub has shown or taken
	written  kube.Written // of the last write
	deleted  time.Time    // when it was deleted: it is not created again within recreateAfter

	// Of a record: the revisions that passes over its name have written and the hub has not shown yet, by the name of
	// the record or page; and when the last was written.
	unseen  map[string]int64
	wroteAt time.Time
}

// of returns the history of a record. The caller holds mu.
func (m *memory) of(record string) *history {
	h := m.records[record]
	if h == nil {
		h = &history{}
		m.records[record] = h
	}
	return h
}

func (m *memory) forget(record string) {
	m.reported.Forget(record)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, record)
}

func (m *memory) remember(record string, written kube.Written, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.of(record)
	h.revision, h.written = max(h.revision, revision), written
}

// rewriteIn returns after how long to write content to an object that the API server shows otherwise
// (kube.Written): each write is an event for all members. A result of 0 or less means: write it now.
func (m *memory) rewriteIn(record, version string, content any, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(record).written.RetryIn(version, content, now)
}

// noteShown notes the revisions that the hub shows. It returns how long to wait until the hub's caches show what this
// agent has written of the name; 0 if they do, or have not for too long: a hub that was restored never will.
func (r *reconciler) noteShown(s *state) time.Duration {
	if s.shown != nil {
		r.noteRevision(s.shown.Name, s.shown.Spec.Revision)
	}
	for _, page := range s.pages {
		r.noteRevision(page.Name, page.Spec.Revision)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.of(r.recordName(s))
	for name, revision := range h.unseen {
		shown := int64(0)
		if s.shown != nil && s.shown.Name == name {
			shown = s.shown.Spec.Revision
		}
		for _, page := range s.pages {
			if page.Name == name {
				shown = page.Spec.Revision
			}
		}
		if shown >= revision {
			delete(h.unseen, name)
		}
	}
	wait := h.wroteAt.Add(kube.CacheDelay).Sub(r.Now())
	if len(h.unseen) == 0 || wait <= 0 {
		h.unseen = nil
		return 0
	}
	return wait
}

// nextRevision returns a revision above all that other members may have seen of the name.
func (r *reconciler) nextRevision(s *state) int64 {
	var last int64
	see := func(revision int64) { last = max(last, revision) }
	if s.own != nil {
		see(s.own.Spec.Revision)
	}
	see(r.highest(r.recordName(s)))
	if s.shown != nil {
		see(s.shown.Spec.Revision)
	}
	for _, page := range s.pages {
		see(page.Spec.Revision)
		see(r.highest(page.Name))
	}
	// Also if the hub seems to have lost nothing: it may have been restored to this member's last renewal.
	_, written := r.Lease.HubMayHaveLost()
	see(written.UnixMilli())
	return clusterset.NextRevision(last, r.Now())
}

// highest returns the highest revision of a record or page that the hub has shown or taken.
func (m *memory) highest(record string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(record).revision
}

// noteRevision notes the revision of a record or page that the hub shows, and returns whether it has shown or taken a
// higher one: then it was restored, and other members do not follow it, even if its content is right.
func (r *reconciler) noteRevision(record string, shown int64) (restored bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.of(record)
	if lost, _ := r.Lease.HubMayHaveLost(); shown > 0 && shown <= lost.UnixMilli() {
		h.revision = max(h.revision, lost.UnixMilli()+1)
	}
	restored = shown > 0 && shown < h.revision
	h.revision = max(h.revision, shown)
	return restored
}

// prove makes sure that this cluster's API server answers, and that the cached copy is current, before this agent
// creates anything on the hub, or overwrites what another process has written: its successor, or its predecessor, which
// may still lead where it is cut off from its own API server only. If an emptied hub is then restored, the successor
// does not know what its predecessor created meanwhile, and its own revisions are lower.
func (r *reconciler) prove(ctx context.Context, s *state, shown client.Object) error {
	r.mu.Lock()
	mine := r.of(shown.GetName()).written.Version == kube.Version(shown)
	r.mu.Unlock()
	if mine || s.proved {
		return nil
	}
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: r.recordName(s)}
	is, err := kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, r.LocalNow, name)
	if err != nil {
		return err
	}
	if (is == nil) != (s.own == nil) || is != nil && is.ResourceVersion != s.own.ResourceVersion {
		return apierrors.NewConflict(
			hubv1alpha1.GroupVersion.WithResource("serviceexportrecords").GroupResource(),
			name.Name,
			errors.New("the cache is not current"),
		)
	}
	s.proved = true
	return nil
}

// hubTimeout is how long the writes of one pass to the hub may take; the next one goes on. A hub that does not answer
// must not hold up what passes write in this cluster.
const hubTimeout = 10 * time.Second

// write creates or updates a record or page on the hub. content is what it says, without what changes at each write.
func (r *reconciler) write(ctx context.Context, s *state, o client.Object, content any) error {
	if err := r.prove(ctx, s, o); err != nil {
		return err
	}
	s.wrote = true
	revision := kube.Origin(o).Revision
	log.FromContext(ctx).Info("publishing", "record", o.GetName(), "revision", revision)
	written := kube.NewWritten(content, r.Now())
	if err := kube.Put(ctx, r.Hub(), o); err != nil {
		return err
	}
	written.Version = kube.Version(o)
	r.remember(o.GetName(), written, revision)
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.of(r.recordName(s))
	if h.unseen == nil {
		h.unseen = map[string]int64{}
	}
	h.unseen[o.GetName()], h.wroteAt = revision, r.Now()
	return nil
}

// deleteFromHub deletes a record or page of this member, unless it has changed.
func (r *reconciler) deleteFromHub(ctx context.Context, s *state, o client.Object) error {
	s.wrote = true
	if err := kube.DeleteUnchanged(ctx, r.Hub(), o); err != nil {
		return err
	}
	r.forget(o.GetName())
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of(r.recordName(s)).unseen, o.GetName())
	return nil
}

// recreateAfter is how long a record stays deleted before it is created again. Other members follow the younger of two
// records, and a creationTimestamp has whole seconds.
const recreateAfter = time.Second

// deleted notes that a record was deleted. It is not created again before recreateAfter.
func (m *memory) deleted(record string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records[record] = &history{deleted: at}
}

// recreateIn returns how much longer a record stays deleted.
func (m *memory) recreateIn(record string, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.of(record).deleted.Add(recreateAfter).Sub(now), 0)
}
