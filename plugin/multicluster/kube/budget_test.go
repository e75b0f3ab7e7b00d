package kube

import (
	"runtime"
	"testing"
)

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
		"slice of 100": {16, func() { slices.read(large) }},
	} {
		if n := testing.AllocsPerRun(100, c.run); n > c.budget {
			t.Errorf("%s: %v allocations, want at most %v", name, n, c.budget)
		}
	}
	s.setImport(imports.read(raw), 0)
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
	before = heap()
	s = fillEndpoints(t, raw)
	if each := (heap() - before) / n; each > 300 {
		t.Errorf("%d octets per endpoint", each)
	}
	if _, all := s.index.Snapshot(); len(all) != n/1000 {
		t.Errorf("%d Headless Services answer", len(all))
	}
	runtime.KeepAlive(raw)
}
