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
				t.Errorf("%d changes in 20 s: %v, want 47.5 a second at least; the page says: %s", c.changes, err, text)
			}
		})
	}
}
