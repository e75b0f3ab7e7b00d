package serviceimport

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
)

// memory is what the process remembers between passes. A restart may lose it: it saves requests and bridges seconds.
type memory struct {
	mu       sync.Mutex
	versions map[types.NamespacedName]map[string]endpoints.Version // of the records of a name, by record
	waits    map[types.NamespacedName]time.Duration                // how long a name waited for its VIP last
	unknown  map[string]time.Time                                  // trafficDistributions that the API server refused
}

// reverted returns the records that a restored hub shows in an earlier version than before. An imported slice
// remembers its version itself. Without this, a name that is exported again during a restore would get the endpoints
// of its earlier export.
func (m *memory) reverted(
	name types.NamespacedName, records []*hubv1alpha1.EndpointRecord, now time.Time,
) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	previous := m.versions[name]
	if len(records) == 0 {
		delete(m.versions, name)
		return nil
	}
	if m.versions == nil {
		m.versions = map[types.NamespacedName]map[string]endpoints.Version{}
	}
	current, reverted := make(map[string]endpoints.Version, len(records)), map[string]bool{}
	for _, rec := range records {
		v := previous[rec.Name].Next(rec.CreationTimestamp.Unix(), rec.Spec.Revision, now)
		current[rec.Name], reverted[rec.Name] = v, !v.RevertedSince.IsZero()
	}
	m.versions[name] = current
	return reverted
}

// forget drops a name whose namespace is gone.
func (m *memory) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.versions, name)
	delete(m.waits, name)
}

// A name that waits for its VIP is tried again after firstWait, then after twice as long each time, because thousands
// may wait at once.
const (
	firstWait = 200 * time.Millisecond
	maxWait   = 2 * time.Second
)

// wait returns how long a name waits now.
func (m *memory) wait(name types.NamespacedName) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waits == nil {
		m.waits = map[types.NamespacedName]time.Duration{}
	}
	m.waits[name] = min(max(firstWait, 2*m.waits[name]), maxWait)
	return m.waits[name]
}

func (m *memory) stopWaiting(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waits, name)
}

// unknownFor is how long a refused trafficDistribution is not tried again: the API server may be upgraded.
const unknownFor = time.Hour

// isUnknown reports whether the API server has refused this trafficDistribution recently.
func (m *memory) isUnknown(distribution string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, refused := m.unknown[distribution]
	return refused && now.Sub(at) < unknownFor
}

func (m *memory) setUnknown(distribution string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unknown == nil {
		m.unknown = map[string]time.Time{}
	}
	m.unknown[distribution] = now
}
