package multicluster

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/test/model"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// randomTopology is one of the places that the model's objects are in, or of none, and what the model calls it.
func randomTopology(r *rand.Rand) (catalog.Topology, model.Config) {
	t := catalog.Topology{
		Cluster:     []string{"", "", "eu", "x.eu", "us", "elsewhere"}[r.IntN(6)],
		Zone:        []string{"", "", "eu-1a", "eu-1b", "corp.example.com", "elsewhere"}[r.IntN(6)],
		ClusterOnly: r.IntN(2) == 0,
		ZoneOnly:    r.IntN(2) == 0,
		Zonal:       r.IntN(2) == 0,
	}
	t.ClusterOnly, t.ZoneOnly = t.ClusterOnly &&
		t.Cluster != "", t.ZoneOnly &&
		t.Zone != "" // as the Corefile has them
	c := model.Defaults(nameserver)
	c.Zonal = t.Zonal
	c.Prefer = model.Preference{
		Cluster:       t.Cluster,
		Zone:          t.Zone,
		ClusterSubset: t.ClusterOnly,
		ZoneSubset:    t.ZoneOnly,
	}
	return t, c
}

// T2: with any preference every answer, and its order, is the model's, whatever fits; no name exists more or less
// for it.
func TestT2AgreesWithModel(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 2))
	for round := range 400 {
		objs := model.Random(r, 1+r.IntN(12))
		if round%3 == 0 {
			model.Malform(r, &objs)
		}
		topology, config := randomTopology(r)
		want, without := model.New(
			config,
			objs,
		), model.New(
			model.Config{Zonal: config.Zonal, TTL: config.TTL},
			objs,
		)
		m := handlerIn(topology, objs)
		for _, q := range model.Questions(r, objs, 150) {
			size, tcp := []uint16{0, 512, 1232, 4096}[r.IntN(4)], r.IntN(3) == 0
			agree(t, m, want, q, size, tcp)
			if a, b := want.Answer(
				q.Name,
				q.Type,
			).Outcome, without.Answer(
				q.Name,
				q.Type,
			).Outcome; (a == model.NameError) != (b == model.NameError) {
				t.Errorf("%v: %v, without preference %v", q, a, b)
			}
			if t.Failed() {
				t.Fatalf("round %d, %+v\n%s", round, topology, about(objs, q.Name))
			}
		}
	}
}

// T2: a transfer lists what a preference leaves out: those who ask the other server are elsewhere.
func TestT2TransferListsEverything(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 3))
	for range 100 {
		objs := model.Random(r, 1+r.IntN(12))
		topology, config := randomTopology(r)
		ch, err := handlerIn(topology, objs).Transfer(defaultZone, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for rrs := range ch {
			for _, rr := range rrs {
				got = append(got, model.Canonical(rr))
			}
		}
		if diff := model.Diff(model.Zone(config, objs), got[:len(got)-1]); diff != "" {
			t.Fatalf("%+v: transfer differs:\n%s", topology, diff)
		}
	}
}

var everyPreference = map[string]catalog.Topology{
	"order":       {Cluster: "cluster-3", Zone: "eu-1a"},
	"local":       {Cluster: "cluster-3", ClusterOnly: true},
	"zone":        {Zone: "eu-1a", ZoneOnly: true},
	"both":        {Cluster: "cluster-3", ClusterOnly: true, Zone: "eu-1a", ZoneOnly: true},
	"zonal":       {Zonal: true},
	"local_zonal": {Cluster: "cluster-3", Zonal: true},
}

// T2: a preference is carried out when an answer is made ready, so a question allocates as without: the budgets of
// the hot path hold.
func TestT2AllocationBudget(t *testing.T) {
	for name, topology := range everyPreference {
		m := preferred(topology)
		hot := slices.Clone(hotPath)
		if topology.Zonal {
			hot = append(hot, hotQuestion{"pin", "eu-1a.pin._zone.h100.test.svc.clusterset.local.", dns.TypeA, 0})
		}
		for _, q := range hot {
			t.Run(name+"/"+q.name, func(t *testing.T) { q.checkBudget(t, m) })
		}
	}
}

// T2: what a question allocates does not grow with the endpoints that its reply leaves out.
func TestT2AllocationOfACutReply(t *testing.T) {
	m := preferred(everyPreference["order"])
	octets := func(n int) uint64 {
		r := question(fmt.Sprintf("h%d.test.svc.clusterset.local.", n), dns.TypeA, 0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const times = 200
		for range times {
			if _, err := m.ServeDNS(t.Context(), new(discarding), r); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / times
	}
	if of100, of1000 := octets(100), octets(1000); of1000 > of100+of100/4 {
		t.Errorf("%d octets for 100 endpoints, %d for 1000", of100, of1000)
	}
}

// T2: of a reply that is cut to the client's buffer, what is preferred is what is left.
func TestT2WhatIsCutIsPreferredLess(t *testing.T) {
	m := preferred(catalog.Topology{Cluster: "cluster-3"})
	msg, _ := ask(t, m, question("h100.test.svc.clusterset.local.", dns.TypeA, 0), false)
	if !msg.Truncated || len(msg.Answer) < 20 {
		t.Fatalf("%d answers, TC %v: want some more than the preferred 20, and TC", len(msg.Answer), msg.Truncated)
	}
	for i, rr := range msg.Answer {
		if local := strings.HasPrefix(rr.(*dns.A).A.String(), "10.3."); local != (i < 20) {
			t.Errorf("answer %d is %v", i, rr)
		}
	}
}

// T2, M6: the window takes what is preferred first, the same hosts for A and SRV, and fills up from the rest, each
// in its turn.
func TestT2WindowTakesPreferredFirst(t *testing.T) {
	for _, tc := range []struct {
		topology catalog.Topology
		max      int
		local    int // of max, from cluster-3, which has 20 of 100
		shown    int // endpoints that are answered sooner or later
	}{
		{catalog.Topology{Cluster: "cluster-3"}, 7, 7, 20},
		{catalog.Topology{Cluster: "cluster-3"}, 23, 20, 100},
		{catalog.Topology{Cluster: "cluster-3"}, 24, 20, 100},
		{catalog.Topology{Cluster: "cluster-3", ClusterOnly: true}, 23, 20, 20},
		{catalog.Topology{Cluster: "elsewhere", ClusterOnly: true}, 23, -1, 100},
	} {
		svc := preferred(tc.topology).Source.Index().Service("h100.test")
		seen := map[string]bool{}
		for epoch := range uint64(100) {
			w := catalog.Window{Max: tc.max, Epoch: epoch}
			var a, srv []string
			local := 0
			for packed := svc.Self(catalog.V4, w).Addrs; packed != ""; packed = packed[4:] {
				a, seen[packed[:4]] = append(a, packed[:4]), true
				if packed[1] == 3 {
					local++
				}
			}
			for it := svc.Targets("http", "tcp", w); it.Next(); {
				v4, _ := it.Addrs()
				srv = append(srv, v4)
			}
			slices.Sort(a)
			slices.Sort(srv)
			if !slices.Equal(a, srv) {
				t.Fatalf("%+v, epoch %d: A has %q, the targets of SRV %q", tc, epoch, a, srv)
			}
			if tc.local >= 0 && local != tc.local {
				t.Fatalf("%+v, epoch %d: %d local", tc, epoch, local)
			}
		}
		if len(seen) != tc.shown {
			t.Errorf("%+v: 100 turns showed %d endpoints, want %d", tc, len(seen), tc.shown)
		}
	}
}

// BenchmarkT2HeadlessOf100 measures each kind of preference beside none, in turns, so that what else the machine
// does touches both alike: x is the ratio of medians. Those that answer a subset have less to do, and names of
// zones are asked for themselves.
func BenchmarkT2HeadlessOf100(b *testing.B) {
	for _, q := range []hotQuestion{
		{query: "h100.test.svc.clusterset.local.", qtype: dns.TypeA, edns: 4096},
		{query: "_http._tcp.h100.test.svc.clusterset.local.", qtype: dns.TypeSRV, edns: 4096},
	} {
		for _, name := range slices.Sorted(maps.Keys(everyPreference)) {
			b.Run(dns.TypeToString[q.qtype]+"/"+name, func(b *testing.B) {
				both := [2]*Multicluster{preferred(catalog.Topology{}), preferred(everyPreference[name])}
				var took [2][]time.Duration
				r := question(q.query, q.qtype, q.edns)
				scrub := request.NewScrubWriter(r, new(packing))
				for b.Loop() {
					for i, m := range both {
						start := time.Now()
						for range 100 {
							if _, err := m.ServeDNS(b.Context(), scrub, r); err != nil {
								b.Fatal(err)
							}
						}
						took[i] = append(took[i], time.Since(start))
					}
				}
				for i := range took {
					slices.Sort(took[i])
				}
				b.ReportMetric(float64(took[1][len(took[1])/2])/float64(took[0][len(took[0])/2]), "x")
			})
		}
	}
}

// O4: a zone's name tells its zone and its Service.
func TestO4MetadataOfAZonesName(t *testing.T) {
	m := preferred(catalog.Topology{Zonal: true})
	ctx := metadata.ContextWithMetadata(context.Background())
	r := question("Corp.Example.pin._zone.h100.test.svc.clusterset.local.", dns.TypeA, 0)
	ctx = m.Metadata(ctx, request.Request{Req: r})
	for label, want := range map[string]string{
		"zone": "corp.example", "service": "h100", "namespace": "test", "type": "Headless",
	} {
		value := metadata.ValueFunc(ctx, pluginName+"/"+label)
		if value == nil || value() != want {
			t.Errorf("%s is not %q", label, want)
		}
	}
	if metadata.ValueFunc(ctx, pluginName+"/protocol") != nil {
		t.Error("_zone is a protocol")
	}
}
