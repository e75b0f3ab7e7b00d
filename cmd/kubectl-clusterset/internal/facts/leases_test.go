package facts

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestACorrectedClockLooksAheadUntilItsLastRenewal; one that was behind shows the truth with its next renewal.
func TestACorrectedClockLooksAheadUntilItsLastRenewal(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for ahead, want := range map[time.Duration]string{
		time.Hour: "is 1h0m0s ahead of the hub's; if it was corrected since, this finding ends at " +
			"2026-01-01T13:00:00Z",
		-time.Hour: "is 1h0m0s behind the hub's",
	} {
		at, renewed, duration := metav1.NewTime(now), metav1.NewMicroTime(now.Add(ahead)), int32(40)
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "west",
			ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &renewed, LeaseDurationSeconds: &duration}}
		h := Hub{Now: now, Leases: []coordinationv1.Lease{lease}}
		if got := h.ClockFindings(); len(got) != 1 || !strings.HasSuffix(got[0].What, want) {
			t.Errorf("%v ahead: %+v", ahead, got)
		}
	}
}
