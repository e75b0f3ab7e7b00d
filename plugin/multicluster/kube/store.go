package kube

import (
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
	waiting    map[*feed]bool          // before the first build: feeds without a complete list
	later      map[string]stage        // before the first build: services that it has to make
	early      bool                    // only imports are missing: each Service can be made as its import comes
	filling    bool                    // only slices are missing: each Service can be made once those of the next one come
	filled     string                  // the Service whose slices come
	services   map[string]*service     // by "<svc>.<ns>"
	slices     map[string]*sliceObject // by "<ns>/<name>"
	imports    int
	namespaces map[string]*namespaceObject // with option namespace_labels, else nil
	endpoints  map[string]int              // of Headless Services, by source cluster
	kinds      [3]int                      // Services that answer, by catalog.Type
	warnings   int
}

// stage is how far a Service has come that the first build makes.
type stage uint8

const (
	due stage = iota + 1
	made
	again // it was made, and has changed since
)

// service is what is known of one namespaced name.
type service struct {
	imp    *importObject
	slices []*sliceObject
}

func newStore(selectNamespaces bool) *store {
	s := &store{
		index:     catalog.NewIndex(),
		waiting:   make(map[*feed]bool),
		later:     make(map[string]stage),
		done:      make(chan struct{}),
		services:  make(map[string]*service),
		slices:    make(map[string]*sliceObject),
		endpoints: make(map[string]int),
	}
	if selectNamespaces {
		s.namespaces = make(map[string]*namespaceObject)
	}
	return s
}

// heldImport is the import of that key, if it is that one.
func (s *store) heldImport(key []byte, version uint64, sum sum) *importObject {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.services[string(key)]; g != nil && g.imp != nil && g.imp.version == version && g.imp.sum == sum {
		return g.imp
	}
	return nil
}

// heldSlice is the slice of that key, if it is that one.
func (s *store) heldSlice(key []byte, version uint64, sum sum) *sliceObject {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.slices[string(key)]; o != nil && o.version == version && o.sum == sum {
		return o
	}
	return nil
}

// at is the service of a key, made if there is none.
func (s *store) at(key string) *service {
	g := s.services[key]
	if g == nil {
		g = new(service)
		s.services[key] = g
	}
	return g
}

// setImport puts an import in the place of the one of its key. If it is that one already, it stays.
func (s *store) setImport(o *importObject, round uint32) {
	if o.held {
		o.round = round
		return
	}
	g := s.at(o.key)
	if g.imp != nil && g.imp.version == o.version && g.imp.sum == o.sum {
		g.imp.round = round
		return
	}
	if g.imp == nil {
		s.imports++
	} else {
		g.imp.held = false
	}
	o.mark = mark{round, true}
	s.tally(g, -1, g.slices...)
	g.imp = o
	s.tally(g, 1, g.slices...)
	s.publish(o.key, g, s.versionOf(g), 0) // slices that came before their import count from now on
}

func (s *store) removeImport(key string, version uint64) {
	g := s.services[key]
	if g == nil || g.imp == nil {
		return
	}
	s.imports--
	g.imp.held = false
	s.tally(g, -1, g.slices...)
	g.imp = nil
	s.publish(key, g, version, 0)
	s.drop(key, g)
}

func (s *store) drop(key string, g *service) {
	if g.imp == nil && len(g.slices) == 0 {
		delete(s.services, key)
	}
}

// setSlice puts a slice in the place of the one of its key. If it is that one already, it stays.
func (s *store) setSlice(o *sliceObject, round uint32) {
	if o.held {
		o.round = round
		return
	}
	old := s.slices[o.key]
	if old != nil && old.version == o.version && old.sum == o.sum {
		old.round = round
		return
	}
	if old != nil {
		old.held = false
	}
	o.mark = mark{round, true}
	s.slices[o.key] = o
	if o.skipped != notSkipped {
		s.skip(o, old)
	}
	if o.slice != nil {
		g := s.at(o.service)
		if len(g.slices) > 0 {
			o.service = g.slices[0].service // one string for all of them
		}
		s.tally(g, 1, o)
		if old != nil && old.service == o.service && old.slice != nil {
			s.tally(g, -1, old)
			g.slices[at(g.slices, old)] = o
			old = nil
		} else {
			g.slices = append(g.slices, o)
		}
		s.publishSlices(o.service, g, o.version, o.trigger)
	}
	// A slice that moved to another Service is there before it is gone here.
	s.detach(old, o.version)
}

func (s *store) removeSlice(key string, version uint64) {
	old := s.slices[key]
	if old == nil {
		return
	}
	old.held = false
	delete(s.slices, key)
	s.detach(old, version)
}

// detach takes a slice out of its Service.
func (s *store) detach(o *sliceObject, version uint64) {
	if o == nil || o.slice == nil {
		return
	}
	g := s.services[o.service]
	s.tally(g, -1, o)
	i, last := at(g.slices, o), len(g.slices)-1
	g.slices[i], g.slices[last] = g.slices[last], nil
	g.slices = g.slices[:last]
	s.publishSlices(o.service, g, version, 0)
	s.drop(o.service, g)
}

func at(slices []*sliceObject, o *sliceObject) int {
	for i := range slices {
		if slices[i] == o {
			return i
		}
	}
	return -1
}

func (s *store) setNamespace(o *namespaceObject, round uint32) {
	old := s.namespaces[o.key]
	if old != nil {
		old.round = round
		if old.version == o.version {
			return // of a Namespace nothing but its existence counts: a restore that gave the version out again alters nothing
		}
		old.version = o.version
		return
	}
	o.mark = mark{round, true}
	s.inNamespace(o.key, o.version, func() { s.namespaces[o.key] = o })
}

func (s *store) removeNamespace(key string, version uint64) {
	if o := s.namespaces[key]; o != nil {
		o.held = false
		s.inNamespace(key, version, func() { delete(s.namespaces, key) })
	}
}

// inNamespace makes a change to what is selected and publishes all Services of the namespace.
func (s *store) inNamespace(ns string, version uint64, change func()) {
	all := make(map[string]*service)
	for key, g := range s.services {
		if _, in := splitKey(key); in == ns && g.imp != nil {
			all[key] = g
			s.tally(g, -1, g.slices...)
		}
	}
	change()
	for key, g := range all {
		s.tally(g, 1, g.slices...)
		s.publish(key, g, version, 0)
	}
}

// selected tells whether a Service's import counts.
func (s *store) selected(g *service) bool {
	if g.imp == nil {
		return false
	}
	if s.namespaces == nil {
		return true
	}
	_, ns := splitKey(g.imp.key)
	return s.namespaces[ns] != nil
}

// tally adds the endpoints of slices of a Headless Service to those of their clusters, or takes them away.
func (s *store) tally(g *service, sign int, slices ...*sliceObject) {
	if !s.selected(g) || g.imp.kind != catalog.Headless {
		return
	}
	for _, o := range slices {
		if n := o.slice.Len(); n > 0 {
			cluster := o.slice.Cluster()
			if s.endpoints[cluster] += sign * n; s.endpoints[cluster] == 0 {
				delete(s.endpoints, cluster)
			}
		}
	}
}

// publishSlices publishes a change of slices. Only Headless Services answer from them.
func (s *store) publishSlices(key string, g *service, version uint64, trigger int64) {
	if g.imp != nil && g.imp.kind == catalog.Headless {
		s.publish(key, g, version, trigger)
	}
}

// publish makes what is known of a Service the answer. What other lists may still change waits for them; the rest is there already when the
// first build is complete, so that little is left to do then, though nobody sees it before.
func (s *store) publish(key string, g *service, version uint64, trigger int64) {
	if s.synced.Load() || s.early || !s.depends(g) {
		s.put(key, g, version, trigger)
		return
	}
	if s.filling && key != s.filled {
		if s.later[s.filled] == due {
			s.make(s.filled)
		}
		s.filled = key
	}
	if s.later[key] == made {
		s.later[key] = again // at the end: no order of slices has one made over and over
	} else if s.later[key] == 0 {
		s.later[key] = due
	}
}

// make is publish for a Service that was put off. Without slices it is little, and was none.
func (s *store) make(key string) {
	delete(s.later, key)
	if g := s.services[key]; g != nil && g.imp != nil {
		s.put(key, g, s.versionOf(g), 0)
		if len(g.slices) > 0 {
			s.later[key] = made
		}
	}
}

// depends tells whether what a Service answers depends on more than its import, of what is missing.
func (s *store) depends(g *service) bool {
	return s.namespaces != nil && !s.filling || g.imp != nil && g.imp.kind == catalog.Headless
}

func (s *store) put(key string, g *service, version uint64, trigger int64) {
	start := time.Now()
	before := s.index.Service(key)
	after := s.build(g, before)
	altered := s.index.Set(key, after, version)
	s.kinds[kindOfService(before)]--
	s.kinds[kindOfService(after)]++
	observe(start, trigger, altered && s.synced.Load())
}

func (s *store) build(g *service, before *catalog.Service) *catalog.Service {
	if !s.selected(g) {
		return nil
	}
	if g.imp.kind != catalog.Headless {
		return g.imp.service
	}
	slices := make([]*catalog.Slice, len(g.slices))
	for i, o := range g.slices {
		slices[i] = o.slice
	}
	imp := catalog.Import{Type: catalog.Headless}
	imp.Name, imp.Namespace = splitKey(g.imp.key)
	return catalog.Rebuild(before, &imp, slices, s.topology)
}

func kindOfService(s *catalog.Service) catalog.Type {
	if s == nil {
		return catalog.Unknown
	}
	return s.Type()
}

// listed takes note that a feed has its first complete list, and finishes the first build when it was the last (L1).
func (s *store) listed(f *feed) {
	if !s.waiting[f] {
		return
	}
	delete(s.waiting, f)
	if len(s.waiting) > 1 {
		return
	}
	for missing := range s.waiting {
		if s.early, s.filling = missing.imports, missing.slices; !s.early && !s.filling {
			return
		}
	}
	for key, stage := range s.later {
		if stage != made {
			s.make(key)
		}
	}
	if len(s.waiting) == 0 {
		s.later, s.filled = nil, ""
		s.synced.Store(true)
		close(s.done)
	}
}

// versionOf is the highest resourceVersion of the objects that the answer of a Service with an import rests on.
func (s *store) versionOf(g *service) uint64 {
	v := g.imp.version
	if g.imp.kind == catalog.Headless {
		for _, o := range g.slices {
			v = max(v, o.version)
		}
	}
	_, ns := splitKey(g.imp.key)
	if n := s.namespaces[ns]; n != nil {
		v = max(v, n.version)
	}
	return v
}
