package serviceimport

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
)

// importer is the reconciler with a memory.
type importer struct {
	*reconciler
	memory
}

// memory is what the hub has shown of the records of each name. An imported slice remembers its own record; nothing does for one that is not
// imported: where a name is exported anew, and the hub was restored meanwhile, endpoints of the earlier export would be imported until the
// owner's word arrives. And it is how long each has waited for its VIP, and what the API server does not know.
type memory struct {
	mu    sync.Mutex
	shown map[types.NamespacedName]map[string]endpoints.Version
	busy  map[types.NamespacedName]time.Duration // how long a name waited for its VIP last
	older map[string]time.Time                   // values of trafficDistribution that the API server refused, and when
}

// behind takes in what the hub shows now, and tells which records are behind what it has shown. One that it does not show is forgotten.
func (m *memory) behind(name types.NamespacedName, records []*hubv1alpha1.EndpointRecord, now time.Time) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.shown[name]
	if len(records) == 0 {
		delete(m.shown, name)
		return nil
	}
	if m.shown == nil {
		m.shown = map[types.NamespacedName]map[string]endpoints.Version{}
	}
	is, behind := make(map[string]endpoints.Version, len(records)), map[string]bool{}
	for _, rec := range records {
		word := was[rec.Name].Next(rec.CreationTimestamp.Unix(), rec.Spec.Revision, now)
		is[rec.Name], behind[rec.Name] = word, !word.RevertedSince.IsZero()
	}
	m.shown[name] = is
	return behind
}

// forget drops a name whose namespace is gone.
func (m *memory) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.shown, name)
	delete(m.busy, name)
}

// How long an import waits before it asks for its VIP again. Most have it at the second time; thousands that wait for a range are not to
// ask five times a second each.
const (
	busyAtFirst = 200 * time.Millisecond
	busyAtMost  = 2 * time.Second
)

// wait is how long this name waits now: twice as long as before.
func (m *memory) wait(name types.NamespacedName) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy == nil {
		m.busy = map[types.NamespacedName]time.Duration{}
	}
	m.busy[name] = min(max(busyAtFirst, 2*m.busy[name]), busyAtMost)
	return m.busy[name]
}

// answered ends the waiting of a name.
func (m *memory) answered(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, name)
}

// upgrade is how long a value that the API server did not know is not asked for again: a settled pass writes nothing (DESIGN §7), and an API
// server may be upgraded.
const upgrade = time.Hour

// unknown tells whether the API server has refused this trafficDistribution of late.
func (m *memory) unknown(distribution string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, refused := m.older[distribution]
	return refused && now.Sub(at) < upgrade
}

// unknownTo takes note that the API server does not know this trafficDistribution; there are only a few.
func (m *memory) unknownTo(distribution string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.older == nil {
		m.older = map[string]time.Time{}
	}
	m.older[distribution] = now
}
