package endpoints

import (
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
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

// TestT1Expire: what becomes of a dead member's endpoints by policy, and where it is the last one that serves a port:
// + is what is ready, and of a source without all of its ports those that it has.
func TestT1Expire(t *testing.T) {
	v4, v6 := discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	remove, notReady, keep := hubv1alpha1.ExpiryRemove, hubv1alpha1.ExpiryNotReady, hubv1alpha1.ExpiryKeep
	for _, c := range []struct {
		policy   hubv1alpha1.ExpiryPolicy
		keepLast bool
		dead     *Source
		living   *Source
		want     string
	}{
		{remove, false, serving("a", v4, true, "http"), serving("b", v4, true, "http"), "b+"},
		{remove, false, serving("a", v4, true, "http"), serving("b", v4, false, "http"), "b-"},
		{remove, true, serving("a", v4, true, "http"), serving("b", v4, true, "http"), "b+"},
		{remove, true, serving("a", v4, true, "http"), serving("b", v4, false, "http"), "a+ b-"},
		{remove, true, serving("a", v4, true, "http", "admin"), serving("b", v4, true, "http"), "a+admin b+"},
		{remove, true, serving("a", v4, true, "http", "other"), serving("b", v4, true, "http"), "b+"},
		// other is no port of the import
		{remove, true, serving("a", v6, true, "http"), serving("b", v4, true, "http"), "a+ b+"},
		{remove, true, serving("a", v4, true), serving("b", v4, true), "b+"}, // no ports at all
		{remove, true, serving("a", v4, true), serving("b", v4, false), "a+ b-"},
		{notReady, false, serving("a", v4, true, "http"), serving("b", v4, true, "http"), "a- b+"},
		{notReady, true, serving("a", v4, true, "http"), serving("b", v4, true, "http"), "a- b+"},
		{notReady, true, serving("a", v4, true, "http"), serving("b", v4, false, "http"), "a+ b-"},
		{notReady, true, serving("a", v4, true, "http", "admin"), serving("b", v4, true, "http"), "a+admin b+"},
		{"", false, serving("a", v4, true, "http"), serving("b", v4, true, "http"), "a+ b+"},
		{"Later", true, serving("a", v4, true, "http"), serving("b", v4, false, "http"), "a+ b-"},
		{keep, false, serving("a", v4, true, "http"), serving("b", v4, true, "http"), "a+ b+"},
		{keep, true, serving("a", v4, true, "http"), serving("b", v4, false, "http"), "a+ b-"},
	} {
		names := map[string]string{"http": "http", "admin": "admin"}
		m := &conflict.Merged{Names: map[string]map[string]string{"a": names, "b": names}}
		before := []Source{*c.dead, *c.living}
		var got []string
		for _, s := range Expire([]*Source{c.dead, c.living},
			map[string]liveness.State{"a": {Expired: true, OnExpiry: c.policy, KeepLast: c.keepLast}},
			clusterset.Place{Cluster: "me"}, m) {
			sign := "-"
			if s.anyReady() {
				sign = "+"
			}
			if len(s.Withheld) > 0 {
				for _, p := range portsOf(s, &Import{Merged: m}) {
					sign += *p.Name
				}
			}
			got = append(got, s.ClusterID+sign)
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf(
				"%s, keepLast %v, a %v, b %v: %v, want %s",
				c.policy,
				c.keepLast,
				c.dead.Ports,
				c.living.Ports,
				got,
				c.want,
			)
		}
		if !equality.Semantic.DeepEqual(before, []Source{*c.dead, *c.living}) || !*c.dead.Endpoints[0].Ready ||
			!*c.dead.Endpoints[0].Serving ||
			len(names) != 2 {
			t.Fatal("the sources, or the merged export, were changed")
		}
	}
}

// TestAMutePortIsRemembered: a held slice is rebuilt from what it says, and must give the port back.
func TestAMutePortIsRemembered(t *testing.T) {
	names := map[string]string{"http": "http", "admin": "admin"}
	m := &conflict.Merged{Names: map[string]map[string]string{"a": names}}
	s := serving("a", discoveryv1.AddressTypeIPv4, true, "http", "admin")
	s.Record, s.Withheld = "uid.a", map[string]bool{"http": true}
	slice := Desired(s, &Import{Namespace: "shop", Name: "web", Merged: m})
	if len(slice.Ports) != 1 || *slice.Ports[0].Name != "admin" {
		t.Errorf("ports %v, want admin", slice.Ports)
	}
	if got, err := Restore(slice); err != nil || len(got.Ports) != 2 {
		t.Errorf("it remembers %v, %v", got.Ports, err)
	}
}

// TestT1KeepLastOfThoseThatGetTraffic: what no tier selects replaces nobody.
func TestT1KeepLastOfThoseThatGetTraffic(t *testing.T) {
	names := map[string]string{"http": "http"}
	m := &conflict.Merged{
		Preference: "cluster=west", Names: map[string]map[string]string{"west": names, "east": names},
	}
	v4 := discoveryv1.AddressTypeIPv4
	sources := []*Source{serving("west", v4, true, "http"), serving("east", v4, true, "http")}
	states := map[string]liveness.State{"west": {Expired: true, OnExpiry: hubv1alpha1.ExpiryRemove, KeepLast: true}}
	out := Expire(sources, states, clusterset.Place{Cluster: "me"}, m)
	if len(out) != 2 || out[0].ClusterID != "west" || len(out[0].Withheld) > 0 {
		t.Errorf("west goes, though nobody else gets the traffic: %+v", out)
	}
}
