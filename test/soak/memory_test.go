package main

import "testing"

// TestGrowthFails: heap or goroutines by more than a tenth, of any process (G), or a process that is another.
func TestGrowthFails(t *testing.T) {
	first := measure{
		who:     []string{"agent", "hub"},
		process: []int{1, 2},
		heap:    []float64{100, 100},
		routine: []int{100, 100},
	}
	for _, c := range []struct {
		what    string
		heap    float64
		routine int
		process int
		want    bool
	}{{"the same", 100, 100, 2, false}, {"a tenth", 110, 110, 2, false}, {"heap", 111, 100, 2, true}, {"goroutines",
		100, 111, 2, true}, {"another", 50, 50, 3, true}} {
		last := measure{
			who:     first.who,
			process: []int{1, c.process},
			heap:    []float64{100, c.heap},
			routine: []int{100, c.routine},
		}
		got := growths([]measure{first, {}, last})
		if len(got) != 2 || got[0].fails() || got[1].fails() != c.want || got[0].again ||
			got[1].again != (c.process == 3) {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
	if growths([]measure{first}) != nil {
		t.Error("one measure is compared")
	}
}
