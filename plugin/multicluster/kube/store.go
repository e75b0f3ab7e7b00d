package kube

import (
	"cmp"
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
	waiting    int                         // feeds without a complete list
	imports    map[string]*importObject    // by "<svc>.<ns>"
	slices     map[string]*sliceObject     // by sliceObject.key
	slicesOf   map[string][]*sliceObject   // by "<svc>.<ns>"; none that is skipped
	namespaces map[string]*namespaceObject // with option namespace_labels, else nil
	warnings   int
}

func newStore(selectNamespaces bool) *store {
	s := &store{
		index:    catalog.NewIndex(),
		done:     make(chan struct{}),
		imports:  make(map[string]*importObject),
		slices:   make(map[string]*sliceObject),
		slicesOf: make(map[string][]*sliceObject),
	}
	if selectNamespaces {
		s.namespaces = make(map[string]*namespaceObject)
	}
	return s
}

func (s *store) importChanged(old, o *importObject, version uint64) {
	if o == nil {
		s.publish(old.key, version, 0)
		return
	}
	s.publish(o.key, s.versionOf(o), 0) // slices that came before their import count from now on
}

func (s *store) sliceChanged(old, o *sliceObject, version uint64) {
	if o != nil && o.content.skipped != notSkipped {
		s.skip(o, old)
	}
	if o != nil && o.content.slice != nil {
		key := o.content.service
		if i := slices.Index(s.slicesOf[key], old); old != nil && i >= 0 {
			s.slicesOf[key][i], old = o, nil
		} else {
			s.slicesOf[key] = append(s.slicesOf[key], o)
		}
		s.publishSlices(key, version, o.content.trigger)
	}
	// A slice that moved to another Service is there before it is gone here.
	if old != nil && old.content.slice != nil {
		key := old.content.service
		i := slices.Index(s.slicesOf[key], old)
		if s.slicesOf[key] = slices.Delete(s.slicesOf[key], i, i+1); len(s.slicesOf[key]) == 0 {
			delete(s.slicesOf, key)
		}
		s.publishSlices(key, version, 0)
	}
}

// namespaceChanged publishes all Services of a namespace, as one change.
func (s *store) namespaceChanged(old, o *namespaceObject, version uint64) {
	if !s.synced.Load() {
		return
	}
	version = max(version, s.index.Version()+1)
	name := cmp.Or(o, old).key
	for key := range s.imports {
		if _, ns := splitKey(key); ns == name {
			s.put(key, version)
		}
	}
}

// selected reports whether an import counts, nil for none.
func (s *store) selected(imp *importObject) bool {
	if imp == nil || s.namespaces == nil {
		return imp != nil
	}
	_, ns := splitKey(imp.key)
	return s.namespaces[ns] != nil
}

// publishSlices publishes a change of slices. Only Headless Services answer from them.
func (s *store) publishSlices(key string, version uint64, trigger int64) {
	if imp := s.imports[key]; imp != nil && imp.content.kind == catalog.Headless {
		s.publish(key, version, trigger)
	}
}

// publish makes what is known of a Service the answer, and measures how long ago that was triggered, if it is known.
// Before the first build nothing is answered, and feedListed does it. Each change moves the serial: its version may be
// lower than that of another watch, or of an API server before it was restored (M4).
func (s *store) publish(key string, version uint64, trigger int64) {
	if !s.synced.Load() {
		return
	}
	if altered := s.put(key, max(version, s.index.Version()+1)); altered && trigger != 0 {
		programmingDuration.Observe(max(0, time.Since(time.Unix(0, trigger)).Seconds()))
	}
}

func (s *store) put(key string, version uint64) (altered bool) {
	return s.index.Set(key, s.build(s.imports[key], s.index.Service(key)), version)
}

func (s *store) build(imp *importObject, before *catalog.Service) *catalog.Service {
	if !s.selected(imp) {
		return nil
	}
	if imp.content.kind != catalog.Headless {
		return imp.content.service
	}
	from := make([]*catalog.Slice, len(s.slicesOf[imp.key]))
	for i, o := range s.slicesOf[imp.key] {
		from[i] = o.content.slice
	}
	name, namespace := splitKey(imp.key)
	return catalog.Rebuild(
		before, &catalog.Import{Type: catalog.Headless, Name: name, Namespace: namespace}, from, s.topology,
	)
}

// feedListed notes that a feed has its first complete list, and does the first build after the last of them (L1).
func (s *store) feedListed() {
	if s.waiting--; s.waiting > 0 {
		return
	}
	for key, imp := range s.imports {
		s.put(key, s.versionOf(imp))
	}
	s.synced.Store(true)
	close(s.done)
}

// versionOf is the highest resourceVersion of the objects that the answer of an import depends on.
func (s *store) versionOf(imp *importObject) uint64 {
	v := imp.version
	if imp.content.kind == catalog.Headless {
		for _, o := range s.slicesOf[imp.key] {
			v = max(v, o.version)
		}
	}
	_, ns := splitKey(imp.key)
	if n := s.namespaces[ns]; n != nil {
		v = max(v, n.version)
	}
	return v
}

// count adds the Services that answer by type, and the ready endpoints of Headless ones by source cluster.
func (s *store) count(services map[catalog.Type]int, endpoints map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, imp := range s.imports {
		answers := imp.content.service != nil
		if !s.selected(imp) {
			continue
		}
		if imp.content.kind == catalog.Headless {
			for _, o := range s.slicesOf[key] {
				if n := o.content.slice.Len(); n > 0 {
					endpoints[o.content.slice.Cluster()] += n
					answers = true
				}
			}
		}
		if answers {
			services[imp.content.kind]++
		}
	}
}
