package endpoints

import (
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

func expiring(cluster string, ready ...bool) *Source {
	s := &Source{}
	s.ClusterID = cluster
	for i := range ready {
		s.Endpoints = append(
			s.Endpoints, hubv1alpha1.Endpoint{Address: "10.0.0.1", Ready: &ready[i], Serving: &ready[i]},
		)
	}
	return s
}

// TestT1Expire: what becomes of an expired member's endpoints by policy; + is what is ready.
func TestT1Expire(t *testing.T) {
	for policy, want := range map[hubv1alpha1.ExpiryPolicy]string{
		hubv1alpha1.ExpiryRemove:   "b+",
		hubv1alpha1.ExpiryNotReady: "a- b+",
		hubv1alpha1.ExpiryKeep:     "a+ b+",
		"":                         "a+ b+",
		"Later":                    "a+ b+", // an unknown policy takes nothing away
	} {
		v4 := discoveryv1.AddressTypeIPv4
		expired, live := serving("a", v4, true, "http"), serving("b", v4, true, "http")
		before := []Source{*expired, *live}
		var got []string
		states := map[string]liveness.State{"a": {Expired: true, OnExpiry: policy}}
		for _, s := range Expire([]*Source{expired, live}, states) {
			sign := "-"
			if s.count().ready > 0 {
				sign = "+"
			}
			got = append(got, s.ClusterID+sign)
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %v, want %s", policy, got, want)
		}
		if !equality.Semantic.DeepEqual(before, []Source{*expired, *live}) || !*expired.Endpoints[0].Ready ||
			!*expired.Endpoints[0].Serving {
			t.Fatal("the sources were changed")
		}
	}
}

// TestAWithheldPortIsRemembered: a held slice is rebuilt from what it says, and must give the port back.
func TestAWithheldPortIsRemembered(t *testing.T) {
	m := merged(
		map[string]string{"http": "http", "admin": "admin"},
		clusterset.Port{
			Name:     "http",
			Protocol: "TCP",
			Number:   80,
		},
		clusterset.Port{Name: "admin", Protocol: "TCP", Number: 81},
	)
	s := serving("a", discoveryv1.AddressTypeIPv4, true, "http", "admin")
	s.Name, s.Withheld = "0.a", map[clusterset.PortKey]bool{keyOfPort("http"): true}
	slice := Desired(s, &Import{Namespace: "shop", Name: "web", Merged: m})
	if names := portNames(slice); !slices.Equal(names, []string{"admin"}) {
		t.Errorf("ports %v, want admin", slice.Ports)
	}
	if got, err := Restore(slice); err != nil || len(got.Ports) != 2 {
		t.Errorf("it remembers %v, %v", got.Ports, err)
	}
}
