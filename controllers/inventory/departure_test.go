package inventory

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

func at(second int64) metav1.Time { return metav1.NewTime(time.Unix(1_700_000_000+second, 0)) }

func TestDepartures(t *testing.T) {
	var s hubv1alpha1.ClusterSetStatus
	steps := []struct {
		change func() bool
		want   bool
		then   string
	}{
		{func() bool { return recordDeparture(&s, "east", at(2)) }, true, "[east:2]"},
		{func() bool { return recordDeparture(&s, "east", at(2)) }, false, "[east:2]"}, // the same, once more
		{func() bool { return recordDeparture(&s, "west", at(1)) }, true, "[west:1 east:2]"},
		{
			func() bool { return recordDeparture(&s, "west", at(3)) },
			true,
			"[east:2 west:3]",
		}, // it joined, and left again before it was heard of
		{func() bool { return recordDeparture(&s, "west", at(1)) }, false, "[east:2 west:3]"},
	}
	for i, step := range steps {
		if got := step.change(); got != step.want {
			t.Errorf("step %d: changed=%v, want %v", i, got, step.want)
		}
		var is []string
		for _, d := range s.Departed {
			is = append(is, fmt.Sprintf("%s:%d", d.ClusterID, d.At.Unix()-1_700_000_000))
		}
		if got := fmt.Sprint(is); got != step.then {
			t.Errorf("step %d: %s, want %s", i, got, step.then)
		}
	}
}

func TestNewestDeparturesAreKept(t *testing.T) {
	var s hubv1alpha1.ClusterSetStatus
	for i := range int64(hubv1alpha1.MaxDeparted + 5) {
		recordDeparture(&s, fmt.Sprint("c", i), at(i))
	}
	if n := len(s.Departed); n != hubv1alpha1.MaxDeparted || s.Departed[0].ClusterID != "c5" ||
		s.Departed[n-1].ClusterID != "c204" {
		t.Errorf("%d departures, from %s to %s", n, s.Departed[0].ClusterID, s.Departed[n-1].ClusterID)
	}
}
