package reach

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// TestF5AStatementIsBounded: what a member says that it does not reach is read for 300 members of the longest IDs, and
// no statement of any length.
func TestF5AStatementIsBounded(t *testing.T) {
	since := map[string]time.Time{}
	at := time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.FixedZone("", 3600))
	for len(since) < 300 {
		since[fmt.Sprintf("%s%03d", strings.Repeat("a", 60), len(since))] = at
	}
	lease := &coordinationv1.Lease{}
	WriteUnreachable(lease, since)
	if got, err := ReadUnreachable(lease); err != nil || len(got) != len(since) {
		t.Errorf("of %d members %d are read: %v", len(since), len(got), err)
	}
	for len(since) < 320 {
		since[fmt.Sprintf("%s%03d", strings.Repeat("a", 60), len(since))] = at
	}
	WriteUnreachable(lease, since)
	if got, err := ReadUnreachable(lease); err == nil || len(got) > 0 {
		t.Errorf("of %d members %d are read: %v", len(since), len(got), err)
	}
}
