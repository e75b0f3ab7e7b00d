package clusterset

import (
	"testing"
	"time"
)

// TestRevisionsNeverFall: a peer that writes the highest one there is gains nothing by it.
func TestRevisionsNeverFall(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for last, want := range map[int64]int64{
		0: now.UnixMilli(), now.UnixMilli() - 1: now.UnixMilli(), now.UnixMilli(): now.UnixMilli() + 1,
		MaxRevision - 1: MaxRevision, MaxRevision: MaxRevision,
	} {
		if got := NextRevision(last, now); got != want {
			t.Errorf("after %d: %d, want %d", last, got, want)
		}
	}
}
