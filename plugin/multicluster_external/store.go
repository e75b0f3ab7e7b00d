package external

import (
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/endpointslice"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// object is an EndpointSlice, stripped to what answers need. It is immutable.
type object struct {
	namespace, name string
	version         uint64
	endpointslice.Slice
}

// strip returns nil if the object has no name, or no version that is a number.
func strip(s *discoveryv1.EndpointSlice) any {
	version, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
	if err != nil || version == 0 || s.Name == "" {
		return nil
	}
	return &object{s.Namespace, s.Name, version, endpointslice.Read(s)}
}

// table is what is answered at one moment. It is immutable.
type table struct {
	services   map[string]*names.Service // by "<svc>.<ns>"
	namespaces map[string]int            // how many Services each has
	version    uint64                    // M4, in full
}

// serial returns the zones' serial (M4): the low 32 bits of the version, never 0.
func (t *table) serial() uint32 { return max(uint32(t.version), 1) }

// store holds the slices, and publishes a table when a change alters an answer. It is a cache.ReflectorStore: a list
// shows what is gone, whatever its resourceVersion is.
type store struct {
	published atomic.Pointer[table] // empty before the first list
	listed    chan struct{}         // closed by the first list

	mu       sync.Mutex
	slices   map[string]*object            // by "<namespace>/<name>"
	services map[string]map[string]*object // by "<svc>.<ns>", and by the name of the slice
	warnings int
}

func newStore() *store {
	s := &store{
		listed: make(chan struct{}), slices: make(map[string]*object), services: make(map[string]map[string]*object),
	}
	s.published.Store(&table{})
	return s
}

func (s *store) table() *table { return s.published.Load() }

// Synced reports whether the first list is complete (L1).
func (s *store) Synced() bool {
	select {
	case <-s.listed:
		return true
	default:
		return false
	}
}

// Wait returns a channel that is closed when the first list is complete.
func (s *store) Wait() <-chan struct{} { return s.listed }

// Add implements cache.ReflectorStore.
func (s *store) Add(o any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := make(map[string]uint64)
	s.set(o.(*object), changed)
	s.publish(changed)
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(o any) error { return s.Add(o) }

// Delete implements cache.ReflectorStore. The version of a deleted object is that of its deletion.
func (s *store) Delete(o any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := make(map[string]uint64)
	s.remove(o.(*object), o.(*object).version, changed)
	s.publish(changed)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objects []any, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, kept := make(map[string]uint64), make(map[string]bool)
	for _, o := range objects {
		kept[sliceKey(o.(*object))] = true
		s.set(o.(*object), changed)
	}
	v, _ := strconv.ParseUint(version, 10, 64) // 0: one above the last (M4)
	for key, o := range s.slices {
		if !kept[key] {
			s.remove(o, v, changed)
		}
	}
	s.publish(changed)
	if !s.Synced() {
		close(s.listed)
	}
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to repeat.
func (s *store) Resync() error { return nil }

func sliceKey(o *object) string { return o.namespace + "/" + o.name }

// set replaces a slice, and notes in changed which Services may have changed by which version.
func (s *store) set(o *object, changed map[string]uint64) {
	key := sliceKey(o)
	old := s.slices[key]
	s.warn(o, old)
	s.slices[key] = o
	if old != nil && old.Service != o.Service {
		s.detach(old, o.version, changed)
	}
	if o.Service == "" {
		return
	}
	if s.services[o.Service] == nil {
		s.services[o.Service] = make(map[string]*object)
	}
	s.services[o.Service][o.name] = o
	changed[o.Service] = max(changed[o.Service], o.version)
}

func (s *store) remove(o *object, version uint64, changed map[string]uint64) {
	key := sliceKey(o)
	if old := s.slices[key]; old != nil {
		delete(s.slices, key)
		s.detach(old, version, changed)
	}
}

func (s *store) detach(o *object, version uint64, changed map[string]uint64) {
	if o.Service == "" {
		return
	}
	delete(s.services[o.Service], o.name)
	if len(s.services[o.Service]) == 0 {
		delete(s.services, o.Service)
	}
	changed[o.Service] = max(changed[o.Service], version)
}

// publish makes what is known of Services the answer. The serial moves if an answer changed, whatever the version (M4).
func (s *store) publish(changed map[string]uint64) {
	was := s.table()
	var next *table // a copy of was, once an answer changes
	for key, version := range changed {
		old, service := was.services[key], s.build(key)
		if old.Same(service) && old.LeftOut() == service.LeftOut() {
			continue
		}
		if next == nil {
			next = was.copy()
		}
		if !old.Same(service) {
			next.version = max(next.version, version, was.version+1)
		}
		next.put(key, service)
	}
	if next != nil {
		s.published.Store(next)
	}
}

func (t *table) copy() *table {
	c := &table{services: make(map[string]*names.Service), namespaces: make(map[string]int), version: t.version}
	maps.Copy(c.services, t.services)
	maps.Copy(c.namespaces, t.namespaces)
	return c
}

// put is used before the table is published only.
func (t *table) put(key string, service *names.Service) {
	ns := key[strings.LastIndexByte(key, '.')+1:]
	if t.services[key] != nil {
		t.namespaces[ns]--
	}
	delete(t.services, key)
	if service != nil {
		t.services[key] = service
		t.namespaces[ns]++
	}
	if t.namespaces[ns] == 0 {
		delete(t.namespaces, ns)
	}
}

func (s *store) build(key string) *names.Service {
	records := make(map[string]names.Record, len(s.services[key]))
	for name, o := range s.services[key] {
		records[name] = o.Record
	}
	return names.New(key, records)
}

// maxWarnings bounds the lines about slices.
const maxWarnings = 100

// warn logs that parts of a slice are left out, once unless they change.
func (s *store) warn(o, old *object) {
	if o.LeftOut == (endpointslice.LeftOut{}) || old != nil && old.LeftOut == o.LeftOut || s.warnings > maxWarnings {
		return
	}
	if s.warnings++; s.warnings > maxWarnings {
		log.Warning("Parts of more EndpointSlices are left out; from here on they are only counted in " +
			"coredns_multicluster_external_left_out")
		return
	}
	var wrong []string
	for r, n := range o.LeftOut {
		if n > 0 {
			wrong = append(wrong, endpointslice.Reason(r).String())
		}
	}
	log.Warningf("EndpointSlice %s: parts left out: %s", sliceKey(o), strings.Join(wrong, ", "))
}

// leftOut adds up what is left out now.
func (s *store) leftOut() (sum endpointslice.LeftOut) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.slices {
		for r, n := range o.LeftOut {
			sum[r] += n
		}
	}
	for _, service := range s.table().services {
		out := service.LeftOut()
		sum[endpointslice.TooManyClusters] += out.Clusters
		sum[endpointslice.TooManyAddresses] += out.Addresses
	}
	return sum
}
