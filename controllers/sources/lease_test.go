package sources

import (
	"reflect"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 123456000, time.UTC)

// TestASightSurvivesARestart: what is kept in a Lease is what is remembered.
func TestASightSurvivesARestart(t *testing.T) {
	limits := liveness.Limits{Renew: 10 * time.Second, Dead: 50 * time.Second}
	for _, s := range []liveness.Sight{
		{Renewal: liveness.Renewal{Lease: noon, At: noon.Add(time.Minute)}, At: noon.Add(time.Second), Checked: noon.Add(2 * time.Second), Seen: noon.Add(3 * time.Second)},
		{Renewal: liveness.Renewal{At: noon}, At: noon, Checked: noon.Add(time.Hour), Seen: noon.Add(time.Hour), Dead: true, Deaths: []time.Time{noon, noon.Add(time.Minute)}, Back: noon.Add(time.Minute)},
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "user's"}}}
		v := liveness.Verdict{}
		if s.Dead {
			v = liveness.Verdict{Dead: true, OnExpiry: hubv1alpha1.ExpiryNotReady}
		}
		keep(lease, "west", s, v, limits)
		if got := remember(lease); !reflect.DeepEqual(got, s) {
			t.Errorf("%+v is remembered as %+v", s, got)
		}
		if liveness.VerdictOf(lease) != v || lease.Labels["a"] == "" || lease.Name != "source-west" || lease.Labels[liveness.LabelSource] != "west" {
			t.Errorf("%+v", lease)
		}
	}
}

// TestAnEditedLeaseIsNone: nobody dies by an edit.
func TestAnEditedLeaseIsNone(t *testing.T) {
	for _, key := range []string{annotationRenewal, annotationChecked} {
		lease := &coordinationv1.Lease{}
		keep(lease, "west", liveness.Sight{Renewal: liveness.Renewal{At: noon}, At: noon, Checked: noon, Dead: true}, liveness.Verdict{Dead: true}, liveness.Limits{})
		lease.Annotations[key] = "soon"
		if got := remember(lease); !reflect.DeepEqual(got, liveness.Sight{}) {
			t.Errorf("%s edited: %+v", key, got)
		}
	}
	if got := remember(nil); !reflect.DeepEqual(got, liveness.Sight{}) {
		t.Errorf("%+v", got)
	}
}

// TestWhoseLeaseItIs: the hub's namespace holds Leases of nobody's, whose names fit into no label.
func TestWhoseLeaseItIs(t *testing.T) {
	r := &reconciler{Env: &kube.Env{Cluster: "east"}}
	for name, want := range map[string]int{"west": 1, "b.c": 1, "clusterset-controller_of.many.dots": 0, "a-name-that-is-far-longer-than-the-sixty-three-letters-of-a-label-value": 0} {
		lease := &coordinationv1.Lease{}
		lease.Name = name
		if got := len(r.ofLease(t.Context(), lease)); got != want {
			t.Errorf("%s: %d requests, want %d", name, got, want)
		}
	}
}
