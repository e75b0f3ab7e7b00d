package sim

import (
	"slices"
	"testing"
)

// TestOneSeedReplaysEverything: the trace of a seed is the same to the byte, or a failure could not be looked at again.
func TestOneSeedReplaysEverything(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		var once, again []string
		for _, trace := range []*[]string{&once, &again} {
			o := options(seed)
			o.Trace = func(line string) { *trace = append(*trace, line) }
			if _, err := Run(o); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(once, again) {
			for i := range min(len(once), len(again)) {
				if once[i] != again[i] {
					t.Fatalf("seed %d, line %d of the trace:\n%s\n%s", seed, i, once[i], again[i])
				}
			}
			t.Fatalf("seed %d: traces of %d and %d lines", seed, len(once), len(again))
		}
	}
}
