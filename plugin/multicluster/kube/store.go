package kube

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
)

// store joins imports and slices, and publishes the Service of each change. It is the only copy of the objects.
type store struct {
	index    *catalog.Index
	topology catalog.Topology
	synced   atomic.Bool
	done     chan struct{} // closed when synced

	mu         sync.Mutex
	waiting    map[*feed]bool                 // feeds without a complete list
	services   map[string]*service            // by "<svc>.<ns>"
	slices     map[string]*sliceObject        // by sliceObject.key
	namespaces map[string]*namespaceObject    // with option namespace_labels, else nil
	within     map[string]map[string]*service // services by namespace, where namespaces are selected
	warnings   int
}

// service is what is known of one namespaced name.
type service struct {
	imp    *importObject
	slices []*sliceObject
}

func newStore(selectNamespaces bool) *store {
	s := &store{
		index:    catalog.NewIndex(),
		waiting:  make(map[*feed]bool),
		done:     make(chan struct{}),
		services: make(map[string]*service),
		slices:   make(map[string]*sliceObject),
	}
	if selectNamespaces {
		s.namespaces = make(map[string]*namespaceObject)
		s.within = make(map[string]map[string]*service)
	}
	return s
}

// service returns that of a key, and makes it if there is none.
func (s *store) service(key string) *service {
	g := s.services[key]
	if g != nil {
		return g
	}
	g = new(service)
	s.services[key] = g
	if s.within != nil {
		_, ns := splitKey(key)
		if s.within[ns] == nil {
			s.within[ns] = make(map[string]*service)
		}
		s.within[ns][key] = g
	}
	return g
}

// drop forgets a service without objects.
func (s *store) drop(key string, g *service) {
	if g.imp != nil || len(g.slices) > 0 {
		return
	}
	delete(s.services, key)
	_, ns := splitKey(key)
	if in := s.within[ns]; in != nil {
		if delete(in, key); len(in) == 0 {
			delete(s.within, ns)
		}
	}
}

// setImport replaces the import of a key. One with the same content stays, with the new version.
func (s *store) setImport(o *importObject, round uint32) {
	key := o.key()
	if o.content.service != nil {
		key = o.content.service.Key() // one copy of it
	}
	g := s.service(key)
	if old := g.imp; old != nil && old.content.kind == o.content.kind &&
		old.content.service.Same(o.content.service) {
		old.version, old.round = o.version, round
		return
	}
	o.round = round
	g.imp = o
	s.publish(key, g, s.versionOf(g), 0) // slices that came before their import count from now on
}

func (s *store) removeImport(key string, version uint64) {
	g := s.services[key]
	if g == nil || g.imp == nil {
		return
	}
	g.imp = nil
	s.publish(key, g, version, 0)
	s.drop(key, g)
}

// setSlice replaces the slice of a key. One with the same content stays, with the new version.
func (s *store) setSlice(o *sliceObject, round uint32) {
	key := o.key()
	old := s.slices[key]
	if old != nil && old.content.same(o.content) && (o.version == old.version || o.content.skipped == notSkipped) {
		old.version, old.round = o.version, round
		return
	}
	o.round = round
	s.slices[key] = o
	if o.content.skipped != notSkipped {
		s.skip(o, old)
	}
	if o.content.slice != nil {
		g := s.service(o.content.service)
		if i := slices.Index(g.slices, old); old != nil && i >= 0 {
			g.slices[i], old = o, nil
		} else {
			g.slices = append(g.slices, o)
		}
		s.publishSlices(o.content.service, g, o.version, o.content.trigger)
	}
	// A slice that moved to another Service is there before it is gone here.
	s.detach(old, o.version)
}

func (s *store) removeSlice(key string, version uint64) {
	old := s.slices[key]
	delete(s.slices, key)
	s.detach(old, version)
}

// detach takes a slice, nil for none, out of its Service.
func (s *store) detach(o *sliceObject, version uint64) {
	if o == nil || o.content.slice == nil {
		return
	}
	key := o.content.service
	g := s.services[key]
	i := slices.Index(g.slices, o)
	g.slices = slices.Delete(g.slices, i, i+1)
	s.publishSlices(key, g, version, 0)
	s.drop(key, g)
}

func (s *store) setNamespace(o *namespaceObject, round uint32) {
	if old := s.namespaces[o.name]; old != nil { // nothing but its existence counts
		old.version, old.round = o.version, round
		return
	}
	o.round = round
	s.namespaces[o.name] = o
	s.publishNamespace(o.name, o.version)
}

func (s *store) removeNamespace(name string, version uint64) {
	if s.namespaces[name] != nil {
		delete(s.namespaces, name)
		s.publishNamespace(name, version)
	}
}

// publishNamespace publishes all Services of a namespace.
func (s *store) publishNamespace(name string, version uint64) {
	for key, g := range s.within[name] {
		if g.imp != nil {
			s.publish(key, g, version, 0)
		}
	}
}

// selected reports whether a Service's import counts.
func (s *store) selected(g *service) bool {
	return g.imp != nil && (s.namespaces == nil || s.namespaces[g.imp.namespace] != nil)
}

// publishSlices publishes a change of slices. Only Headless Services answer from them.
func (s *store) publishSlices(key string, g *service, version uint64, trigger int64) {
	if g.imp != nil && g.imp.content.kind == catalog.Headless {
		s.publish(key, g, version, trigger)
	}
}

// publish makes what is known of a Service the answer. Before the first build nothing is answered, and listed does
// it.
func (s *store) publish(key string, g *service, version uint64, trigger int64) {
	if !s.synced.Load() {
		return
	}
	start := time.Now()
	altered := s.put(key, g, version)
	observe(start, trigger, altered)
}

func (s *store) put(key string, g *service, version uint64) (altered bool) {
	return s.index.Set(key, s.build(g, s.index.Service(key)), version)
}

func (s *store) build(g *service, before *catalog.Service) *catalog.Service {
	if !s.selected(g) {
		return nil
	}
	if g.imp.content.kind != catalog.Headless {
		return g.imp.content.service
	}
	from := make([]*catalog.Slice, len(g.slices))
	for i, o := range g.slices {
		from[i] = o.content.slice
	}
	imp := catalog.Import{Type: catalog.Headless, Name: g.imp.name, Namespace: g.imp.namespace}
	return catalog.Rebuild(before, &imp, from, s.topology)
}

// listed notes that a feed has its first complete list, and does the first build after the last of them (L1).
func (s *store) listed(f *feed) {
	if !s.waiting[f] {
		return
	}
	if delete(s.waiting, f); len(s.waiting) > 0 {
		return
	}
	for key, g := range s.services {
		if g.imp != nil {
			start := time.Now()
			s.put(key, g, s.versionOf(g))
			observe(start, 0, false)
		}
	}
	s.synced.Store(true)
	close(s.done)
}

// versionOf is the highest resourceVersion of the objects that the answer of a Service with an import depends on.
func (s *store) versionOf(g *service) uint64 {
	v := g.imp.version
	if g.imp.content.kind == catalog.Headless {
		for _, o := range g.slices {
			v = max(v, o.version)
		}
	}
	if n := s.namespaces[g.imp.namespace]; n != nil {
		v = max(v, n.version)
	}
	return v
}

// count adds the Services that answer by type, and the ready endpoints of Headless ones by source cluster.
func (s *store) count(services map[catalog.Type]int, endpoints map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.services {
		if !s.selected(g) {
			continue
		}
		if g.imp.content.kind != catalog.Headless {
			if g.imp.content.service != nil {
				services[g.imp.content.kind]++
			}
			continue
		}
		ready := 0
		for _, o := range g.slices {
			n := o.content.slice.Len()
			if ready += n; n > 0 {
				endpoints[o.content.slice.Cluster()] += n
			}
		}
		if ready > 0 {
			services[catalog.Headless]++
		}
	}
}
