package endpoints

import (
	"slices"
	"strings"
	"testing"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

func expiring(cluster string, ready ...bool) *Source {
	s := &Source{}
	s.ClusterID = cluster
	for i := range ready {
		s.Endpoints = append(s.Endpoints, hubv1alpha1.Endpoint{Address: "10.0.0.1", Ready: &ready[i], Serving: &ready[i]})
	}
	return s
}

// TestT1Expire: what becomes of a dead member's endpoints by policy, and where it is the last one.
func TestT1Expire(t *testing.T) {
	for _, c := range []struct {
		policy   hubv1alpha1.ExpiryPolicy
		keepLast bool
		b        bool // the living one has a ready endpoint
		want     string
	}{
		{hubv1alpha1.ExpiryRemove, false, true, "b+"},
		{hubv1alpha1.ExpiryRemove, false, false, "b-"},
		{hubv1alpha1.ExpiryRemove, true, true, "b+"},
		{hubv1alpha1.ExpiryRemove, true, false, "a+ b-"},
		{hubv1alpha1.ExpiryNotReady, false, true, "a- b+"},
		{hubv1alpha1.ExpiryNotReady, true, true, "a- b+"},
		{hubv1alpha1.ExpiryNotReady, true, false, "a+ b-"},
		{hubv1alpha1.ExpiryKeep, false, true, "a+ b+"},
		{hubv1alpha1.ExpiryKeep, true, false, "a+ b-"},
	} {
		in := []*Source{expiring("a", true), expiring("b", c.b)}
		var got []string
		for _, s := range Expire(in, map[string]string{"a": Expiry(c.policy, c.keepLast)}) {
			sign := "-"
			if s.ready() {
				sign = "+"
			}
			got = append(got, s.ClusterID+sign)
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s, keepLast %v, b ready %v: %v, want %s", c.policy, c.keepLast, c.b, got, c.want)
		}
		if !*in[0].Endpoints[0].Ready || !*in[0].Endpoints[0].Serving {
			t.Fatal("the source was changed")
		}
	}
}
