package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func in(zone string, ep discoveryv1.Endpoint) discoveryv1.Endpoint {
	ep.Zone = &zone
	return ep
}

// places is db.test: .1 and .2 of cluster a in z1 and z2, .3 and .4 of b in z1 and z2.
func places() Objects {
	return headless(from("a", in("z1", at("h1", "10.0.0.1")), in("z2", at("h2", "10.0.0.2"))),
		from("b", in("z1", at("h1", "10.0.0.3")), in("z2", at("h2", "10.0.0.4"))))
}

// tiers writes the answers as "1 2 | 3 4": last octets, a bar where the next ones are preferred less.
func tiers(reply Reply) string {
	if reply.Outcome != Success {
		return reply.Outcome.String()
	}
	var all []string
	for i, text := range reply.Answer {
		if i > 0 && reply.Tier[text] > reply.Tier[reply.Answer[i-1]] {
			all = append(all, "|")
		}
		all = append(all, text[len(text)-1:])
	}
	return strings.Join(all, " ")
}

func TestT2OrderAndSubset(t *testing.T) {
	for _, test := range []struct {
		prefer Preference
		want   string
	}{
		{Preference{}, "1 2 3 4"},
		{Preference{Cluster: "B"}, "3 4 | 1 2"},
		{Preference{Cluster: "b", ClusterSubset: true}, "3 4"},
		{Preference{Cluster: "c", ClusterSubset: true}, "1 2 3 4"},
		{Preference{Zone: "Z2"}, "2 4 | 1 3"},
		{Preference{Zone: "z2", ZoneSubset: true}, "2 4"},
		{Preference{Zone: "z3", ZoneSubset: true}, "1 2 3 4"},
		{Preference{Cluster: "b", Zone: "z2"}, "4 | 3 | 2 | 1"},
		{Preference{Cluster: "b", Zone: "z2", ZoneSubset: true}, "4 | 2"},
		{Preference{Cluster: "b", ClusterSubset: true, Zone: "z2"}, "4 | 3"},
		{Preference{Cluster: "b", ClusterSubset: true, Zone: "z2", ZoneSubset: true}, "4"},
		{Preference{Cluster: "c", ClusterSubset: true, Zone: "z2", ZoneSubset: true}, "2 4"},
	} {
		cfg := Config{Prefer: test.prefer}
		if got := tiers(Answer(cfg, places(), under[1:], dns.TypeA)); got != test.want {
			t.Errorf("%+v: %s, want %s", test.prefer, got, test.want)
		}
		if diff := Diff(Zone(Config{}, places()), Zone(cfg, places())); diff != "" {
			t.Errorf("%+v changes the transfer:\n%s", test.prefer, diff)
		}
		want(t, cfg, places(), "h1.a"+under, dns.TypeA, "A 10.0.0.1")
	}
}

func TestT2SubsetIsDecidedOverBothFamiliesAndByPort(t *testing.T) {
	other := from("b", at("h", "10.0.0.2"))
	other.Ports[0].Name = new("web")
	objs := headless(from("a", at("h", "10.0.0.1")), from("a", at("h", "fd00::1")), other)
	cfg := Config{Prefer: Preference{Cluster: "b", ClusterSubset: true}}
	want(t, cfg, objs, under[1:], dns.TypeA, "A 10.0.0.2")
	want(t, cfg, objs, under[1:], dns.TypeAAAA, "NODATA")
	want(t, cfg, objs, "_web._tcp"+under, dns.TypeSRV, "SRV 0 100 5432 h.b"+under)
	want(t, cfg, objs, "_pg._tcp"+under, dns.TypeSRV, "SRV 0 100 5432 h.a"+under)
	want(t, cfg, objs, under[1:], dns.TypeSRV, "SRV 0 100 5432 h.b"+under)
}

func TestT2AddressOfTwoIsWhereTheBetterIs(t *testing.T) {
	objs := headless(
		from("a", at("h", "10.0.0.1"), at("h", "10.0.0.2")),
		from("b", at("h", "10.0.0.2"), at("h", "10.0.0.3")),
	)
	if got := tiers(Answer(Config{Prefer: Preference{Cluster: "b"}}, objs, under[1:], dns.TypeA)); got != "2 3 | 1" {
		t.Errorf("%s, want 2 3 | 1", got)
	}
}

func TestNamesOfZones(t *testing.T) {
	cfg := Config{Zonal: true}
	for name, expected := range map[string][]string{
		"z1.pin._zone":            {"A 10.0.0.1", "A 10.0.0.3"},
		"Z2.prefer._zone":         {"A 10.0.0.2", "A 10.0.0.4"},
		"z3.pin._zone":            {"NODATA"},
		"z3.prefer._zone":         {"A 10.0.0.1", "A 10.0.0.2", "A 10.0.0.3", "A 10.0.0.4"},
		"corp.example.pin._zone":  {"NODATA"},
		"pin._zone":               {"NODATA"},
		"prefer._zone":            {"NODATA"},
		"_zone":                   {"NODATA"},
		"z1._zone":                {"NXDOMAIN"},
		"z1.florp._zone":          {"NXDOMAIN"},
		`z1\.x.pin._zone`:         {"NXDOMAIN"},
		"z1.pin._zone.a":          {"NXDOMAIN"},
		"_pg._tcp.z1.pin._zone":   {"NODATA"},
		"h1.a.z1.pin._zone":       {"NODATA"},
		"h1.a.z1.prefer.pin._zon": {"NXDOMAIN"},
	} {
		want(t, cfg, places(), name+under, dns.TypeA, expected...)
		want(t, Config{}, places(), name+under, dns.TypeA, "NXDOMAIN")
		want(t, cfg, clusterSetIP([]string{"10.0.0.1"}), name+under, dns.TypeA, "NXDOMAIN")
	}
	want(t, cfg, places(), "z1.pin._zone"+under, dns.TypeTXT, "NODATA")
	want(t, cfg, places(), "z1.pin._zone"+under, dns.TypeSRV, "SRV 0 100 5432 h1.a"+under, "SRV 0 100 5432 h1.b"+under)
	if extra := Answer(cfg, places(), "z1.pin._zone"+under, dns.TypeSRV).Extra; len(extra) != 2 {
		t.Errorf("glue of a zone's targets: %q", extra)
	}
	if diff := Diff(Zone(Config{}, places()), Zone(cfg, places())); diff != "" {
		t.Errorf("names of zones are transferred:\n%s", diff)
	}
}

func TestT2CheckKnowsTheOrder(t *testing.T) {
	q := Question{under[1:], dns.TypeA}
	reply := Answer(Config{TTL: 5, Prefer: Preference{Cluster: "b"}}, places(), q.Name, q.Type)
	msg := reply.Message(q)
	if err := Check(reply, q, msg, 0); err != nil {
		t.Error(err)
	}
	slices.Reverse(msg.Answer)
	if err := Check(reply, q, msg, 0); err == nil || !strings.Contains(err.Error(), "T2: ") {
		t.Errorf("what is preferred stands last: %v", err)
	}
	slices.Reverse(msg.Answer)
	slices.Reverse(msg.Answer[:2])
	if err := Check(reply, q, msg, 0); err != nil {
		t.Errorf("the order of equals matters: %v", err)
	}
}
