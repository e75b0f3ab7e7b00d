package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1645)) }

// everyType asks each type that the zone holds, and one that it does not.
var everyType = []uint16{dns.TypeSOA, dns.TypeNS, dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypeMX}

func TestL6TransferGivesWhatQueriesGive(t *testing.T) {
	for seed := range uint64(30) {
		objs := Random(seeded(seed), 6)
		m := New(Defaults(server), objs)
		var asked []string
		for _, name := range m.Names() {
			for _, qtype := range everyType {
				reply := m.Answer(name, qtype)
				if reply.Outcome != Success && reply.Outcome != NoData {
					t.Errorf("seed %d: %s exists, yet %s %s", seed, name, dns.TypeToString[qtype], reply.Outcome)
				}
				asked = append(asked, reply.Answer...)
			}
		}
		if diff := Diff(m.Zone(), asked); diff != "" {
			t.Errorf("seed %d: the zone and the queries differ:\n%s", seed, diff)
		}
	}
}

func TestN4NothingExistsBelowNXDOMAIN(t *testing.T) {
	for seed := range uint64(30) {
		m := New(Defaults(server), Random(seeded(seed), 6))
		for _, name := range m.Names() {
			for above := name; above != DefaultZone; {
				above = parent(above)
				if m.Answer(above, dns.TypeMX).Outcome != NoData {
					t.Errorf("seed %d: %s exists, %s above it does not (RFC 8020)", seed, name, above)
				}
			}
		}
	}
}

func TestAnswersDoNotDependOnTheOrderOfObjects(t *testing.T) {
	for seed := range uint64(30) {
		r := seeded(seed)
		objs := Random(r, 6)
		before := Zone(Defaults(server), objs)
		r.Shuffle(
			len(objs.Imports),
			func(i, j int) { objs.Imports[i], objs.Imports[j] = objs.Imports[j], objs.Imports[i] },
		)
		r.Shuffle(len(objs.Slices), func(i, j int) { objs.Slices[i], objs.Slices[j] = objs.Slices[j], objs.Slices[i] })
		if diff := Diff(before, Zone(Defaults(server), objs)); diff != "" {
			t.Errorf("seed %d:\n%s", seed, diff)
		}
	}
}

// A generator that stops making a shape would leave the rule about it untested.
func TestRandomMakesEveryShape(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(200) {
		objs := Random(seeded(seed), 6)
		note(seen, objs)
		m := New(Defaults(server), objs)
		for _, q := range Questions(seeded(seed), objs, 40) {
			reply := m.Answer(q.Name, q.Type)
			seen[reply.Outcome.String()]++
			if q.Name != dns.CanonicalName(q.Name) {
				seen["mixed case"]++
			}
			if reply.NegativeTTL == 1 {
				seen["pending"]++
			}
			if slices.ContainsFunc(reply.Extra, func(text string) bool { return strings.Contains(text, " AAAA ") }) {
				seen["glue"]++
			}
		}
	}
	for _, shape := range []string{
		"ClusterSetIP", "Headless", "IPv4", "IPv6", "FQDN", "no source-cluster", "impossible id", "two-label id",
		"eu beside x.eu", "no import", "local slice", "unnamed port", "port without number", "portless", "unready",
		"terminating", "no hostname", "two addresses", "dotted import", "namespace svc", "service svc", "NOERROR",
		"NODATA", "NXDOMAIN", "NEXT", "mixed case", "pending", "glue",
	} {
		if seen[shape] == 0 {
			t.Errorf("200 seeds made no %s", shape)
		}
	}
}

func note(seen map[string]int, objs Objects) {
	imports := map[string]bool{}
	clusters := map[string]bool{}
	when := func(shape string, holds bool) {
		if holds {
			seen[shape]++
		}
	}
	for _, imp := range objs.Imports {
		imports[imp.Namespace+"/"+imp.Name] = true
		seen[string(imp.Spec.Type)]++
		when("dotted import", strings.Contains(imp.Name, "."))
		when("namespace svc", imp.Namespace == "svc")
		when("service svc", imp.Name == "svc")
	}
	for _, slice := range objs.Slices {
		seen[string(slice.AddressType)]++
		name := slice.Namespace + "/" + slice.Labels[mcsv1beta1.LabelServiceName]
		id := slice.Labels[mcsv1beta1.LabelSourceCluster]
		clusters[name+" "+id] = true
		when("no import", !imports[name])
		when("local slice", slice.Labels[discoveryv1.LabelServiceName] != "")
		when("no source-cluster", id == "")
		when("impossible id", id != "" && !isClusterID(id))
		when("two-label id", isClusterID(id) && strings.Contains(id, "."))
		when("eu beside x.eu", clusters[name+" eu"] && clusters[name+" x.eu"])
		when("portless", len(slice.Ports) == 0)
		for _, p := range slice.Ports {
			when("unnamed port", value(p.Name) == "")
			when("port without number", p.Port == nil)
		}
		for _, ep := range slice.Endpoints {
			when("unready", !ready(ep))
			when("terminating", ep.Conditions.Terminating != nil && *ep.Conditions.Terminating)
			when("no hostname", ep.Hostname == nil)
			when("two addresses", len(ep.Addresses) > 1)
		}
	}
}

func TestRandomRepeatsItselfForASeed(t *testing.T) {
	first, second := seeded(7), seeded(7)
	one, two := Random(first, 5), Random(second, 5)
	if fmt.Sprint(
		Zone(Defaults(), one),
		Questions(first, one, 50),
	) != fmt.Sprint(
		Zone(Defaults(), two),
		Questions(second, two, 50),
	) {
		t.Error("one seed made two sets of objects")
	}
}

// FuzzAnswer proves that the model is total, and that what it says is a message.
func FuzzAnswer(f *testing.F) {
	f.Add(uint64(1), "web.test.svc.clusterset.local.", dns.TypeA, byte(0))
	f.Add(uint64(2), `w\101b.test.svc.CLUSTERSET.local`, dns.TypeSRV, byte(3))
	f.Add(uint64(3), "", dns.TypeANY, byte(255))
	f.Add(uint64(14), `w\101b.test.svc.clusterset.local.`, dns.TypeSRV, byte(0))
	f.Fuzz(func(t *testing.T, seed uint64, qname string, qtype uint16, options byte) {
		wire := make([]byte, 256)
		n, err := dns.PackDomainName(dns.Fqdn(qname), wire, 0, nil, false)
		if err != nil {
			t.Skip()
		}
		if qname, _, err = dns.UnpackDomainName(wire[:n], 0); err != nil { // as a server would read it
			t.Skip()
		}
		r := seeded(seed)
		objs := Random(r, int(seed%8))
		Malform(r, &objs)
		cfg := Defaults(server)
		cfg.EndpointPodNames, cfg.NoEndpoints = options&1 != 0, options&2 != 0
		if options&4 != 0 {
			cfg.Zone = strings.Repeat("z.", 70) + "example"
		}
		m := New(cfg, objs)
		for _, text := range m.Zone() {
			if owner, _, _ := strings.Cut(text, " "); !slices.Contains(m.Names(), owner) {
				t.Errorf("%s is in the zone, its name is not", text)
			}
		}
		for _, q := range append(Questions(r, objs, 10), Question{qname, qtype}) {
			reply := m.Answer(q.Name, q.Type)
			if err := Check(reply, q, reply.Message(q), 0); err != nil {
				t.Error(err)
			}
		}
	})
}
