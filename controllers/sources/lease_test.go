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

// TestAnObservationSurvivesARestart: what is kept in a Lease is what is remembered.
func TestAnObservationSurvivesARestart(t *testing.T) {
	limits := liveness.Limits{Renew: 10 * time.Second, Expiry: 50 * time.Second}
	for _, s := range []liveness.Observation{
		{Renewal: liveness.Renewal{Created: noon, Time: noon.Add(time.Minute)}, RenewedAt: noon.Add(time.Second),
			ObservedUntil: noon.Add(2 * time.Second), HubSeenUntil: noon.Add(3 * time.Second)},
		{Renewal: liveness.Renewal{Created: noon, Time: noon}, RenewedAt: noon, ObservedUntil: noon.Add(time.Hour),
			HubSeenUntil: noon.Add(time.Hour), Expired: true, Expirations: []time.Time{noon, noon.Add(time.Minute)},
			RenewingSince: noon.Add(time.Minute)},
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "user's"}}}
		v := liveness.State{}
		if s.Expired {
			v = liveness.State{Expired: true, OnExpiry: hubv1alpha1.ExpiryNotReady}
		}
		store(lease, "west", s, v, limits)
		if got := load(lease); !reflect.DeepEqual(got, s) {
			t.Errorf("%+v is remembered as %+v", s, got)
		}
		if liveness.StateOf(lease) != v || lease.Labels["a"] == "" || lease.Name != "source-west" ||
			lease.Labels[liveness.LabelSource] != "west" {
			t.Errorf("%+v", lease)
		}
	}
}

// TestAnEditedLeaseIsNone: nobody dies by an edit.
func TestAnEditedLeaseIsNone(t *testing.T) {
	for _, key := range []string{annotationRenewal, annotationObservedUntil, annotationHubSeenUntil} {
		lease := &coordinationv1.Lease{}
		store(
			lease,
			"west",
			liveness.Observation{
				Renewal:       liveness.Renewal{Created: noon, Time: noon},
				RenewedAt:     noon,
				ObservedUntil: noon,
				HubSeenUntil:  noon,
				Expired:       true,
			},
			liveness.State{Expired: true},
			liveness.Limits{},
		)
		lease.Annotations[key] = "soon"
		if got := load(lease); !reflect.DeepEqual(got, liveness.Observation{}) {
			t.Errorf("%s edited: %+v", key, got)
		}
	}
	if got := load(nil); !reflect.DeepEqual(got, liveness.Observation{}) {
		t.Errorf("%+v", got)
	}
}

// TestWhoseLeaseItIs: the hub's namespace holds Leases of nobody's, whose names fit into no label.
func TestWhoseLeaseItIs(t *testing.T) {
	r := New(Config{Member: kube.Member{Cluster: "east"}})
	for name, want := range map[string]int{"west": 1, "b.c": 1, "clusterset-controller_of.many.dots": 0,
		"a-name-that-is-far-longer-than-the-sixty-three-letters-of-a-label-value": 0} {
		lease := &coordinationv1.Lease{}
		lease.Name = name
		if got := len(r.requestsForLease(t.Context(), lease)); got != want {
			t.Errorf("%s: %d requests, want %d", name, got, want)
		}
	}
}
