package multicluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// packing is a writer that packs, as a socket's does, and allocates nothing itself.
type packing struct{ dns.ResponseWriter }

var remote net.Addr = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40212}

func (*packing) RemoteAddr() net.Addr { return remote }

func (*packing) WriteMsg(m *dns.Msg) error {
	_, err := m.Pack()
	return err
}

// discarding is a writer that does nothing.
type discarding struct{ packing }

func (*discarding) WriteMsg(*dns.Msg) error { return nil }

// large serves a ClusterSetIP Service web.test and Headless ones h100.test and h1000.test over five clusters.
func large() *Multicluster { return preferred(catalog.Topology{}) }

// preferred is large with a preference: every second endpoint is in zone eu-1a.
func preferred(topology catalog.Topology) *Multicluster {
	x := new(catalog.Table[*catalog.Service])
	web := &catalog.Import{Namespace: "test", Name: "web", Type: catalog.ClusterSetIP,
		IPs:   []netip.Addr{netip.MustParseAddr("10.42.42.42")},
		Ports: []catalog.Port{{Name: "https", Proto: "TCP", Number: 443}}}
	x.Set("web.test", catalog.Build(web, nil), 1)
	for _, n := range []int{100, 1000} {
		imp := &catalog.Import{Namespace: "test", Name: fmt.Sprintf("h%d", n), Type: catalog.Headless}
		var slices []*catalog.Slice
		for c := range 5 {
			var eps []catalog.Endpoint
			for i := c; i < n; i += 5 {
				eps = append(eps, catalog.Endpoint{
					Addr: netip.AddrFrom4([4]byte{10, byte(c), byte(i >> 8), byte(i)}),
					Host: fmt.Sprintf("pod-%d", i),
					Zone: topology.Keep([]string{"eu-1a", "eu-1b"}[i%2]),
				})
			}
			slices = append(slices, catalog.NewSlice(fmt.Sprint(c), fmt.Sprintf("cluster-%d", c),
				[]catalog.Port{{Name: "http", Proto: "TCP", Number: 80}}, eps))
		}
		x.Set(imp.Name+".test", catalog.Rebuild(nil, imp, slices, topology), 1)
	}
	return serving(defaultTTL, x)
}

type hotQuestion struct {
	name  string
	query string
	qtype uint16
	edns  uint16
}

// What a question may allocate (Must show C): the plugin, whatever the answer's size; and for a ClusterSetIP
// Service all that happens to it, from the plugin to the packed reply.
const (
	budget       = 10
	budgetPacked = 6
)

var hotPath = []hotQuestion{
	{"ClusterSetIP A", "web.test.svc.clusterset.local.", dns.TypeA, 0},
	{"ClusterSetIP AAAA", "web.test.svc.clusterset.local.", dns.TypeAAAA, 0},
	{"ClusterSetIP SRV", "_https._tcp.web.test.svc.clusterset.local.", dns.TypeSRV, 0},
	{"NXDOMAIN", "absent.test.svc.clusterset.local.", dns.TypeA, 0},
	{"host name in 100", "pod-50.cluster-0.h100.test.svc.clusterset.local.", dns.TypeA, 0},
	{"host name in 1000", "pod-500.cluster-0.h1000.test.svc.clusterset.local.", dns.TypeA, 0},
	{"headless A of 100", "h100.test.svc.clusterset.local.", dns.TypeA, 0},
	{"headless A of 1000", "h1000.test.svc.clusterset.local.", dns.TypeA, 0},
	{"headless A of 1000 with EDNS", "h1000.test.svc.clusterset.local.", dns.TypeA, dns.MaxMsgSize},
	{"AAAA at v4-only headless of 1000", "h1000.test.svc.clusterset.local.", dns.TypeAAAA, 0},
	{"TXT at headless of 1000", "h1000.test.svc.clusterset.local.", dns.TypeTXT, 0},
	{"headless SRV of 1000", "_http._tcp.h1000.test.svc.clusterset.local.", dns.TypeSRV, 0},
	{"headless SRV of 1000 with EDNS", "_http._tcp.h1000.test.svc.clusterset.local.", dns.TypeSRV, dns.MaxMsgSize},
}

func TestAllocationBudget(t *testing.T) {
	m := large()
	for _, q := range hotPath {
		t.Run(q.name, func(t *testing.T) { q.checkBudget(t, m) })
	}
}

func (q hotQuestion) checkBudget(t *testing.T, m *Multicluster) {
	r := question(q.query, q.qtype, q.edns)
	allocations := func(w dns.ResponseWriter) float64 {
		return testing.AllocsPerRun(200, func() {
			if _, err := m.ServeDNS(context.Background(), w, r); err != nil {
				t.Fatal(err)
			}
		})
	}
	if got := allocations(new(discarding)); got > budget {
		t.Errorf("%s: %.0f allocations, the budget is %d", q.name, got, budget)
	}
	if !strings.HasPrefix(q.name, "ClusterSetIP") {
		return
	}
	if got := allocations(request.NewScrubWriter(r, new(packing))); got > budgetPacked {
		t.Errorf("%s, packed: %.0f allocations, the budget is %d", q.name, got, budgetPacked)
	}
}

func BenchmarkServeDNS(b *testing.B) {
	m := large()
	for _, q := range hotPath {
		b.Run(q.name, func(b *testing.B) { q.run(b, m) })
	}
}

func (q hotQuestion) run(b *testing.B, m *Multicluster) {
	r := question(q.query, q.qtype, q.edns)
	scrub := request.NewScrubWriter(r, new(packing))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.ServeDNS(context.Background(), scrub, r); err != nil {
			b.Fatal(err)
		}
	}
}
