package clock

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAClockThatWasSetLooksWrongUntilItsRenewalsAreReached, if it was ahead; one that was behind shows the truth with its next renewal.
func TestAClockThatWasSetLooksWrongUntilItsRenewalsAreReached(t *testing.T) {
	said := metav1.NewMicroTime(time.Date(2026, 1, 1, 13, 0, 0, 0, time.UTC))
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &said}}
	for ahead, want := range map[time.Duration]string{
		time.Hour:  ", or was until it was set: then this ends by itself at 2026-01-01T13:00:00Z",
		-time.Hour: "",
	} {
		if got := OrWas(lease, ahead); got != want {
			t.Errorf("%v ahead: %q", ahead, got)
		}
	}
}
