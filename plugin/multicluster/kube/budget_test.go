package kube

import (
	"runtime"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
)

// topologies are those that cost something, and none.
var topologies = map[string]catalog.Topology{
	"no options":              {},
	"prefer local":            {Cluster: "cluster-1"},
	"prefer local, then zone": {Cluster: "cluster-1", Zone: "eu-west-1a"},
	"zonal":                   {Zone: "eu-west-1a", ZoneOnly: true, Zonal: true},
}

// TestMemoryIsWithinBudget: at most 400 octets of heap per import and 200 per endpoint with a host
// name, 300 with zones.
func TestMemoryIsWithinBudget(t *testing.T) {
	const n = 10_000
	var raw [][]byte
	for i := range n {
		raw = append(raw, importJSON(i))
	}
	before := heap()
	s := newStore(false)
	fillImports(s, raw)
	if each := (heap() - before) / n; each > 400 {
		t.Errorf("%d octets per import", each)
	}
	runtime.KeepAlive(raw) // the sources are no part of the budget
	if len(s.imports) != n || !s.synced.Load() {
		t.Errorf("%d imports held", len(s.imports))
	}
	raw = nil
	for i := range n / 100 { // slices
		raw = append(raw, marshal(largeSlice(i, 100)))
	}
	for name, topology := range topologies {
		before = heap()
		s = fillEndpoints(t, raw, topology)
		each := (heap() - before) / n
		if t.Logf("%s: %d octets per endpoint", name, each); each > 300 || !topology.Zonal && each > 200 {
			t.Errorf("%s: %d octets per endpoint", name, each)
		}
		if _, all := s.index.Snapshot(); len(all) != n/1000 {
			t.Errorf("%s: %d Headless Services answer", name, len(all))
		}
	}
	runtime.KeepAlive(raw)
}
