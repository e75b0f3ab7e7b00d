package kube

import (
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestT2PreferenceFollowsTheWatch: from objects to answers, in each topology.
func TestT2PreferenceFollowsTheWatch(t *testing.T) {
	for _, c := range []struct {
		topology catalog.Topology
		want     string // A
	}{
		{catalog.Topology{}, "10.1.0.1 10.1.0.2 10.2.0.1 10.1.0.3"},
		{catalog.Topology{Cluster: "us"}, "10.2.0.1 10.1.0.1 10.1.0.2 10.1.0.3"},
		{catalog.Topology{Cluster: "us", ClusterOnly: true}, "10.2.0.1"},
		{catalog.Topology{Zone: "z2"}, "10.1.0.2 10.1.0.1 10.2.0.1 10.1.0.3"},
		{catalog.Topology{Zone: "z2", ZoneOnly: true}, "10.1.0.2"},
	} {
		b := listed(t)
		b.store.topology = c.topology
		b.put(
			headless("db"),
			inZones(slice("eu", "db", "EU", "10.1.0.1", "10.1.0.2", "10.1.0.3"), "z1", "Z2"),
			inZones(slice("us", "db", "us", "10.2.0.1"), "z3"),
		)
		b.want("db.test", c.want)
		if n := countedEndpoints(b.store)["eu"]; n != 3 {
			t.Errorf("%+v: %d endpoints of eu are counted, want 3", c.topology, n)
		}
		// The preferred ones go, and the others take over.
		b.put(inZones(slice("eu", "db", "EU", "10.1.0.1"), "z1"), slice("us", "db", "us"))
		b.want("db.test", "10.1.0.1")
	}
}

func inZones(s *discoveryv1.EndpointSlice, zones ...string) *discoveryv1.EndpointSlice {
	for i := range zones {
		s.Endpoints[i].Zone = &zones[i]
	}
	return s
}

// TestZonesAreKeptAsFarAsAnswersDependOnThem: another zone that nobody asks for is no change, and
// costs no part of its own.
func TestZonesAreKeptAsFarAsAnswersDependOnThem(t *testing.T) {
	for _, c := range []struct {
		topology catalog.Topology
		alter    string // zones that an endpoint of z1 goes to, and an answer is altered
	}{
		{catalog.Topology{}, ""},
		{catalog.Topology{Cluster: "eu"}, ""},
		{catalog.Topology{Zone: "z2"}, "z2"},
		{catalog.Topology{Zonal: true}, "z2 z3"},
	} {
		b := listed(t)
		b.store.topology = c.topology
		var alter []string
		for _, zone := range []string{"z2", "z3"} {
			b.put(headless("db"), inZones(slice("eu", "db", "eu", "10.1.0.1"), "z1"))
			before := b.store.index.Service("db.test")
			b.put(inZones(slice("eu", "db", "eu", "10.1.0.1"), zone))
			if b.store.index.Service("db.test") != before {
				alter = append(alter, zone)
			}
		}
		if got := strings.Join(alter, " "); got != c.alter {
			t.Errorf("%+v: the answer is altered for %q, want %q", c.topology, got, c.alter)
		}
	}
}

// TestT2StanzasOfAnotherPreferenceHaveTheirOwn: of one source, each stanza has its order, and those
// of the same share.
func TestT2StanzasOfAnotherPreferenceHaveTheirOwn(t *testing.T) {
	a := startAPI(t)
	a.put(
		headless("db"),
		inZones(slice("db-1", "db", "eu", "10.1.0.1"), "z1"),
		inZones(slice("db-2", "db", "us", "10.2.0.1"), "z2"),
	)
	none, local := a.config(), a.config()
	local.Topology = catalog.Topology{Cluster: "us", ClusterOnly: true}
	first, second, third := synced(t, open(t, none)), synced(t, open(t, local)), open(t, local)
	answers(t, first, "db.test", "10.1.0.1 10.2.0.1")
	answers(t, second, "db.test", "10.2.0.1")
	if first == second || second != third {
		t.Error("watches are not shared by preference")
	}
	a.put(slice("db-2", "db", "us"))
	answers(t, second, "db.test", "10.1.0.1")
}

func countedEndpoints(s *store) map[string]int {
	endpoints := make(map[string]int)
	s.count(make(map[catalog.Type]int), endpoints)
	return endpoints
}
