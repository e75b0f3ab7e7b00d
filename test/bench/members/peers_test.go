package main

import (
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/bar"
)

func TestLinesUnderLoadHaveHadTheRate(t *testing.T) {
	for name, c := range map[string]struct {
		changes int
		holds   bool
	}{
		"all": {1000, true}, "enough": {950, true}, "too few": {949, false}, "none": {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var missed bar.Missed
			text := made{over: 20 * time.Second, took: make([]time.Duration, c.changes)}.report(&missed, 50)
			if err := missed.Err(); (err == nil) != c.holds || strings.Contains(text, "**no**") == c.holds {
				t.Errorf(
					"%d changes in 20 s: %v, want 47.5 a second at least; the page says: %s",
					c.changes,
					err,
					text,
				)
			}
		})
	}
}

// TestSimulatedMembersChangeServicesOfTheirOwn: in a round each another, and each all of its records in as many
// rounds as it has.
func TestSimulatedMembersChangeServicesOfTheirOwn(t *testing.T) {
	const members, each = 40, 50
	seen := map[[2]int]bool{}
	for round := range each {
		services := map[int]bool{}
		for m := range members {
			j := turn(round*members+m, members, each)
			services[j], seen[[2]int{m, j}] = true, true
		}
		if len(services) != members {
			t.Errorf("round %d changes %d Services, want %d", round, len(services), members)
		}
	}
	if len(seen) != members*each {
		t.Errorf("%d of %d records are changed", len(seen), members*each)
	}
}
