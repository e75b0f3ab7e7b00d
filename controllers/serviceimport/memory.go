package serviceimport

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// memory is what the process remembers between passes. A restart may lose it: it saves requests and bridges seconds.
type memory struct {
	mu       sync.Mutex
	waits    workqueue.TypedRateLimiter[types.NamespacedName] // of names that wait for their VIPs
	reported kube.Reported                                    // by kube.Key of a name
	unknown  map[string]time.Time                             // trafficDistributions that the API server refused
	settled  map[types.NamespacedName]*settled
	orders   map[types.NamespacedName]*endpoints.Order // of names whose preference has several tiers
	unseen   map[types.NamespacedName]*unseen
}

// unseen is what passes over a name have changed or deleted and the cache has not shown yet: a pass that decides from
// older slices gives the Service a port without endpoints (C9). What they have created is no part of it: the API
// server refuses to create it again.
type unseen struct {
	objects map[string]write // by the names of slices and of the derived Service
	at      time.Time        // of the last write
}

// lookAgain is how soon the cache is asked again for a write.
const lookAgain = 50 * time.Millisecond

// write is the version of an object that a write made; "" if it deleted the object.
type write struct {
	uid     types.UID
	version string
}

// wrote notes a change of a slice or of the derived Service; version is "" if it was deleted.
func (m *memory) wrote(name types.NamespacedName, o client.Object, version string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.unseen[name]
	if u == nil {
		u = &unseen{objects: map[string]write{}}
		m.unseen[name] = u
	}
	u.objects[o.GetName()], u.at = write{o.GetUID(), version}, now
}

// isOwnWrite is the Alike of EndpointSlices: with many exporters, a pass for each write of a pass would cost more than
// all others.
func (m *memory) isOwnWrite(_, is client.Object) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.unseen[kube.ImportOf(is)]
	return u != nil && u.objects[is.GetName()] == write{is.GetUID(), is.GetResourceVersion()}
}

// lags returns when to look again whether the cache shows what passes have written, because no event says so
// (isOwnWrite); 0 if it does, or has not for too long.
func (m *memory) lags(s *snapshot, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.unseen[s.name]
	if u == nil {
		return 0
	}
	there := map[string]client.Object{}
	for _, slice := range slices.Concat(s.imported, byName(s.projected), s.strays, s.orphans) {
		there[slice.Name] = slice
	}
	if s.svc != nil {
		there[s.svc.Name] = s.svc
	}
	maps.DeleteFunc(u.objects, func(name string, w write) bool {
		o := there[name]
		if o == nil || o.GetUID() != w.uid {
			return true
		}
		order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), w.version)
		return w.version != "" && (err != nil || order >= 0)
	})
	if len(u.objects) == 0 || !now.Before(u.at.Add(kube.CacheDelay)) {
		delete(m.unseen, s.name)
		return 0
	}
	return lookAgain
}

// forget drops a name whose namespace is gone.
func (m *memory) forget(name types.NamespacedName) {
	m.reported.Forget(kube.Key(name))
	m.waits.Forget(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.settled, name)
	delete(m.orders, name)
	delete(m.unseen, name)
}

func (m *memory) order(name types.NamespacedName) *endpoints.Order {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.orders[name]
}

func (m *memory) setOrder(name types.NamespacedName, order *endpoints.Order) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if order == nil {
		delete(m.orders, name)
		return
	}
	m.orders[name] = order
}

// A name that waits for its VIP is tried again after firstWait, then after twice as long each time, because thousands
// may wait at once.
const (
	firstWait = 200 * time.Millisecond
	maxWait   = 2 * time.Second
)

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
	m.unknown[distribution] = now
}
