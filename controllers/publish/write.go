package publish

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// memory is what this agent remembers about its own records on the hub. Everything in it may be lost at a restart.
type memory struct {
	mu      sync.Mutex
	records map[string]*history // by name
}

// history is what this agent remembers about one record.
type history struct {
	revision int64        // the highest that the hub has shown or taken
	written  kube.Written // of the last write
	deleted  time.Time    // when the record was deleted: it is not created again within recreateAfter
	failed   time.Time    // when the last failure was reported
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
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, record)
}

// write creates or updates rec on the hub. wanted is its content without what changes at each write.
func (r *reconciler) write(ctx context.Context, s *state, rec client.Object, wanted any) error {
	s.wrote = true
	log.FromContext(ctx).Info("publishing", "record", rec.GetName(), "revision", kube.Origin(rec).Revision)
	written := kube.NewWritten(wanted, r.Now())
	var err error
	if rec.GetResourceVersion() == "" {
		err = r.Hub().Create(ctx, rec)
	} else {
		err = r.Hub().Update(ctx, rec)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.of(rec.GetName())
	h.revision = max(h.revision, kube.Origin(rec).Revision)
	written.Version = kube.Version(rec)
	h.written = written
	return nil
}

// alteredByHub returns for how long to leave a record as the hub shows it, though it differs from wanted
// (kube.Written): each write is an event for all members. A result of 0 or less means: write the record.
func (m *memory) alteredByHub(published client.Object, wanted any, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(published.GetName()).written.Leave(kube.Version(published), wanted, now)
}

// recreateAfter is how long a record stays deleted before it is created again. Other members follow the younger of two
// records, and a creationTimestamp has whole seconds.
const recreateAfter = time.Second

// recreate deletes an own record whose revision cannot grow; a later pass creates it. No agent writes such a revision:
// somebody else has used this member's token.
func (r *reconciler) recreate(ctx context.Context, s *state, rec client.Object) (again time.Duration, err error) {
	log.FromContext(ctx).Info("recreating a record", "record", rec.GetName(), "revision", kube.Origin(rec).Revision)
	s.wrote = true
	if err := kube.Delete(ctx, r.Hub(), rec); err != nil {
		return 0, err
	}
	r.deleted(rec.GetName(), r.Now())
	return recreateAfter, nil
}

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
