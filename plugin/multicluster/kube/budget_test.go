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

// TestDecodingAllocatesLittle: an import of the initial list becomes an answer in a few small allocations, one that is held costs
// none, and a slice's do not grow with its endpoints.
func TestDecodingAllocatesLittle(t *testing.T) {
	s := newStore(false)
	imports, slices := importReader{store: s}, sliceReader{store: s}
	raw, large := importJSON(1), marshal(largeSlice(1, 100))
	for name, c := range map[string]struct {
		budget float64
		run    func()
	}{
		"import":       {12, func() { imports.read(raw) }},
		"slice of 100": {20, func() { slices.read(large) }},
	} {
		if n := testing.AllocsPerRun(100, c.run); n > c.budget {
			t.Errorf("%s: %v allocations, want at most %v", name, n, c.budget)
		}
	}
	s.setImport(imports.read(raw), 0)
	for name, topology := range topologies {
		in := newStore(false)
		in.topology = topology
		r := sliceReader{store: in}
		// Three zones are three packed lists.
		if n := testing.AllocsPerRun(100, func() { r.read(large) }); n > 28 {
			t.Errorf("slice of 100, %s: %v allocations, want at most 28", name, n)
		}
	}
	o, err := slices.read(large)
	if err != nil {
		t.Fatal(err)
	}
	s.setSlice(o, 0)
	if n := testing.AllocsPerRun(100, func() { imports.read(raw); slices.read(large) }); n > 0 {
		t.Errorf("what is held costs %v allocations to read again", n)
	}
}

// TestMemoryIsWithinBudget: at most 400 octets of heap per import and 300 per endpoint with a host name.
func TestMemoryIsWithinBudget(t *testing.T) {
	const n = 10_000
	var raw [][]byte
	for i := range n {
		raw = append(raw, importJSON(i))
	}
	before := heap()
	s := newStore(false)
	f, list := fillImports(s, raw)
	f.Replace([]any{list}, "60000")
	if each := (heap() - before) / n; each > 400 {
		t.Errorf("%d octets per import", each)
	}
	runtime.KeepAlive(raw) // the sources are no part of the budget
	if s.imports != n || !s.synced.Load() {
		t.Errorf("%d imports held", s.imports)
	}
	raw = nil
	for i := range n / 100 { // slices
		raw = append(raw, marshal(largeSlice(i, 100)))
	}
	for name, topology := range topologies {
		before = heap()
		s = fillEndpoints(t, raw, topology)
		each := (heap() - before) / n
		if t.Logf("%s: %d octets per endpoint", name, each); each > 300 {
			t.Errorf("%s: %d octets per endpoint", name, each)
		}
		if _, all := s.index.Snapshot(); len(all) != n/1000 {
			t.Errorf("%s: %d Headless Services answer", name, len(all))
		}
	}
	runtime.KeepAlive(raw)
}
