package kube

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
)

// store joins imports and slices.
type store struct {
	joint[sliceContent, *catalog.Service]
	topology    catalog.Topology
	noEndpoints bool                        // no slices are watched
	imports     map[string]*importObject    // by "<svc>.<ns>"
	namespaces  map[string]*namespaceObject // with option namespace_labels, else nil
}

func newStore(selectNamespaces bool) *store {
	s := &store{joint: newJoint[sliceContent, *catalog.Service](pluginName), imports: make(map[string]*importObject)}
	s.service, s.answers, s.build = sliceContent.of, s.answer, s.buildAll
	if selectNamespaces {
		s.namespaces = make(map[string]*namespaceObject)
	}
	return s
}

func (s *store) importChanged(old, o *importObject, version uint64) {
	if o == nil {
		s.update(old.key, version, 0)
		return
	}
	s.update(o.key, s.versionOf(o), 0) // slices that came before their import count from now on
}

// sliceChanged publishes a change of slices. Only Headless Services answer from them.
func (s *store) sliceChanged(old, o *sliceObject, version uint64) {
	if o != nil && o.content.skipped != notSkipped {
		s.skip(o, old)
	}
	s.move(old, o, func(key string, changed *sliceObject) {
		imp, trigger := s.imports[key], int64(0)
		if changed == o {
			trigger = o.content.trigger
		}
		if imp != nil && imp.content.kind == catalog.Headless {
			s.update(key, version, trigger)
		}
	})
}

// namespaceChanged publishes all Services of a namespace, as one change.
func (s *store) namespaceChanged(old, o *namespaceObject, version uint64) {
	if !s.Synced() {
		return
	}
	name, services := cmp.Or(o, old).key, make(map[string]*catalog.Service)
	for key := range s.imports {
		if _, ns := splitKey(key); ns == name {
			services[key] = s.answers(key, s.index.Service(key))
		}
	}
	s.index.SetAll(services, version)
}

// selected reports whether an import counts, nil for none.
func (s *store) selected(imp *importObject) bool {
	if imp == nil || s.namespaces == nil {
		return imp != nil
	}
	_, ns := splitKey(imp.key)
	return s.namespaces[ns] != nil
}

func (s *store) answer(key string, before *catalog.Service) *catalog.Service {
	imp := s.imports[key]
	s.index.Why.Delete(key)
	switch {
	case imp == nil || !s.selected(imp): // namespace_labels may be there to hide the name
		return nil
	case imp.content.kind != catalog.Headless:
		return imp.content.service
	}
	from := make([]*catalog.Slice, len(s.slicesOf[key]))
	for i, o := range s.slicesOf[key] {
		from[i] = o.content.slice
	}
	name, namespace := splitKey(key)
	headless := &catalog.Import{Type: catalog.Headless, Name: name, Namespace: namespace}
	svc := catalog.Rebuild(before, headless, from, s.topology)
	switch {
	case svc != nil:
	case s.noEndpoints:
		s.index.Why.Store(key, "Headless Services have no names here, because of the option noendpoints")
	default:
		s.index.Why.Store(key, "the ServiceImport is Headless and has no ready endpoint")
	}
	return svc
}

// buildAll does the first build.
func (s *store) buildAll() {
	s.first(func(yield func(string, uint64) bool) {
		for key, imp := range s.imports {
			if !yield(key, s.versionOf(imp)) {
				return
			}
		}
	})
	s.checkPreferred()
}

// checkPreferred warns of a preferred cluster without slices. This cluster's own ID has none while it exports nothing.
func (s *store) checkPreferred() {
	clusters := make(map[string]bool)
	for _, o := range s.slices {
		if o.content.slice != nil {
			clusters[o.content.slice.Cluster()] = true
		}
	}
	if own := s.topology.Cluster; own != "" && len(clusters) > 0 && !clusters[own] {
		some := slices.Sorted(maps.Keys(clusters))
		s.log.Warningf("prefer local %s: no EndpointSlice is of that cluster, but there are some of %s. Unless this "+
			"cluster has that ID and exports nothing, correct it: use the value of this cluster's own ClusterProperty "+
			"cluster.clusterset.k8s.io", own, strings.Join(some[:min(len(some), 10)], ", "))
	}
}

// versionOf is the highest resourceVersion of the objects that the answer of an import depends on.
func (s *store) versionOf(imp *importObject) uint64 {
	v := imp.version
	if imp.content.kind == catalog.Headless {
		v = max(v, s.newest(imp.key))
	}
	_, ns := splitKey(imp.key)
	if n := s.namespaces[ns]; n != nil {
		v = max(v, n.version)
	}
	return v
}

// size returns how many objects the store holds.
func (s *store) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.imports) + len(s.slices) + len(s.namespaces)
}

// count adds the Services that answer by type, and the addresses of ready endpoints of Headless ones by source cluster.
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
