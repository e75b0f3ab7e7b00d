package multicluster

import (
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/miekg/dns"
)

// clusterOf returns the cluster of an address that large makes.
func clusterOf(t *testing.T, rr dns.RR) byte {
	t.Helper()
	a, ok := rr.(*dns.A)
	if !ok {
		t.Fatalf("%v is no A record", rr)
	}
	return a.A.To4()[1]
}

// M2: clients that use the first record, or a cut answer, meet every endpoint and all clusters alike.
func TestM2AnswersTakeTurns(t *testing.T) {
	const questions = 1200
	for _, tc := range []struct {
		name       string
		qtype      uint16
		edns       uint16
		first, all int // the fewest different first records, and records, that the questions show
	}{
		{"h100.test.svc.clusterset.local.", dns.TypeA, 0, 95, 100},
		{"h1000.test.svc.clusterset.local.", dns.TypeA, 0, 600, 1000},
		{"h1000.test.svc.clusterset.local.", dns.TypeA, 1232, 600, 1000},
		{"_http._tcp.h100.test.svc.clusterset.local.", dns.TypeSRV, 0, 95, 100},
		{"_http._tcp.h1000.test.svc.clusterset.local.", dns.TypeSRV, 4096, 600, 1000},
	} {
		m := large()
		first, all, clusters := map[string]bool{}, map[string]bool{}, map[byte]int{}
		for range questions {
			msg, _ := ask(t, m, question(tc.name, tc.qtype, tc.edns), false)
			if !msg.Truncated && tc.edns == 0 {
				t.Fatalf("%s: not cut", tc.name)
			}
			for i, rr := range msg.Answer {
				all[rr.String()] = true
				if i == 0 {
					first[rr.String()] = true
				}
				if tc.qtype == dns.TypeA {
					clusters[clusterOf(t, rr)]++
				}
			}
		}
		if len(first) < tc.first || len(all) < tc.all {
			t.Errorf("%s, EDNS %d: %d questions began with %d records and showed %d, want %d and %d",
				tc.name, tc.edns, questions, len(first), len(all), tc.first, tc.all)
		}
		total := 0
		for _, n := range clusters {
			total += n
		}
		for c, n := range clusters { // a fifth each
			if n < total/6 || n > total/4 {
				t.Errorf("%s, EDNS %d: %d of %d records are of cluster %d of 5", tc.name, tc.edns, n, total, c)
			}
		}
	}
}

// M2: a cut answer has every cluster, not only the first.
func TestM2ACutAnswerHasAllClusters(t *testing.T) {
	m := large()
	for range 50 {
		msg, _ := ask(t, m, question("h1000.test.svc.clusterset.local.", dns.TypeA, 0), false)
		clusters := map[byte]int{}
		for _, rr := range msg.Answer {
			clusters[clusterOf(t, rr)]++
		}
		for c := range byte(5) {
			if n := clusters[c]; n < len(msg.Answer)/5-1 || n > len(msg.Answer)/5+2 {
				t.Fatalf("%d records: %v by cluster", len(msg.Answer), clusters)
			}
		}
	}
}

// M2, T2: preferred endpoints stay first, and take turns among themselves.
func TestM2PreferredEndpointsTakeTurns(t *testing.T) {
	m := preferred(catalog.Topology{Cluster: "cluster-3"})
	first := map[string]bool{}
	for range 400 {
		msg, _ := ask(t, m, question("h100.test.svc.clusterset.local.", dns.TypeA, 4096), false)
		if len(msg.Answer) != 100 || clusterOf(t, msg.Answer[0]) != 3 || clusterOf(t, msg.Answer[19]) != 3 {
			t.Fatalf("%d answers, %v first", len(msg.Answer), msg.Answer[:20])
		}
		first[msg.Answer[0].String()] = true
	}
	if len(first) < 18 {
		t.Errorf("%d of 20 preferred endpoints came first", len(first))
	}
}
