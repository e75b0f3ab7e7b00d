package facts

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHowFarAClockIsAhead is what a Lease shows: its holder's clock against that of its API server.
func TestHowFarAClockIsAhead(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		at, renewed := metav1.NewTime(now), metav1.NewMicroTime(now.Add(ahead))
		lease := coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed},
		}
		if seen, got, ok := Renewed(&lease); !ok || got != ahead || !seen.Equal(now) {
			t.Errorf("%v, %v, %v", seen, got, ok)
		}
	}
}
