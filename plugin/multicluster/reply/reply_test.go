package reply_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/miekg/dns"
)

var zone = reply.NewZone("clusterset.local.", 5, []netip.Addr{netip.MustParseAddr("127.0.0.1")})

func question(name string, qtype uint16) *dns.Msg {
	r := new(dns.Msg)
	r.SetQuestion(name, qtype)
	return r
}

// headless makes a Service of n endpoints, spread over five clusters, with host names.
func headless(n int) *catalog.Service {
	var slices []*catalog.Slice
	for c := range 5 {
		var eps []catalog.Endpoint
		for i := c; i < n; i += 5 {
			eps = append(eps, catalog.Endpoint{
				Addr: netip.AddrFrom4([4]byte{10, byte(c), byte(i >> 8), byte(i)}),
				Host: fmt.Sprintf("pod-%d", i),
			})
		}
		slices = append(slices, catalog.NewSlice(fmt.Sprintf("s%d", c), fmt.Sprintf("cluster-%d", c),
			[]catalog.Port{{Name: "http", Proto: "TCP", Number: 80}}, eps))
	}
	return catalog.Build(&catalog.Import{Name: "db", Namespace: "test", Type: catalog.Headless}, slices)
}

func clusterSetIP() *catalog.Service {
	return catalog.Build(&catalog.Import{Name: "web", Namespace: "test", Type: catalog.ClusterSetIP,
		IPs:   []netip.Addr{netip.MustParseAddr("10.42.42.42")},
		Ports: []catalog.Port{{Name: "https", Proto: "TCP", Number: 443}}}, nil)
}

// M3: a reply never exceeds the buffer, packed with compression, whatever its size; TC is set only
// when answers were cut; a glue RRset is whole or absent; what fits is not left out.
func TestM3FitsEveryBuffer(t *testing.T) {
	for _, n := range []int{1, 3, 30, 100, 1000} {
		svc := headless(n)
		for limit := 512; limit < 66000; limit += 37 + limit/8 {
			r := question("_http._tcp.db.test.svc.clusterset.local.", dns.TypeSRV)
			m := zone.SRV(r, svc.Key(), svc.Targets("http", "tcp", catalog.Window{}), limit)
			check(t, m, n, limit, 18+48)
			r = question("db.test.svc.clusterset.local.", dns.TypeA)
			m = zone.Addresses(r, dns.TypeA, svc.Self(catalog.V4, catalog.Window{}).Addrs, limit)
			check(t, m, n, limit, 16)
		}
	}
}

func check(t *testing.T, m *dns.Msg, n, limit, most int) {
	t.Helper()
	m.Compress = true
	b, err := m.Pack()
	if err != nil {
		t.Fatalf("%d endpoints, limit %d: %v", n, limit, err)
	}
	if len(b) > limit {
		t.Fatalf("%d endpoints: %d octets exceed the limit of %d", n, len(b), limit)
	}
	if cut := len(m.Answer) < n; cut != m.Truncated {
		t.Fatalf("%d of %d answers, TC=%v (limit %d)", len(m.Answer), n, m.Truncated, limit)
	}
	if m.Truncated && len(b)+most <= limit {
		t.Fatalf("%d endpoints, limit %d: cut at %d octets although another record fits", n, limit, len(b))
	}
	if m.Truncated && m.Question[0].Qtype == dns.TypeSRV && limit > 4096 && len(m.Extra) > len(m.Answer) {
		t.Fatalf("glue %d beside %d answers", len(m.Extra), len(m.Answer))
	}
	// What the server's own truncation would do changes nothing.
	answers, extra := len(m.Answer), len(m.Extra)
	tc := m.Truncated
	m.Truncate(limit)
	if len(m.Answer) != answers || len(m.Extra) != extra || m.Truncated != tc {
		t.Fatalf("limit %d: the server cut %d+%d records to %d+%d, TC %v to %v",
			limit, answers, extra, len(m.Answer), len(m.Extra), tc, m.Truncated)
	}
}

func benchmark(b *testing.B, f func() *dns.Msg) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f().Pack(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReply(b *testing.B) {
	web, db := clusterSetIP(), headless(1000)
	r := question("web.test.svc.clusterset.local.", dns.TypeA)
	b.Run("A", func(b *testing.B) {
		benchmark(b, func() *dns.Msg {
			return zone.Addresses(r, dns.TypeA, web.Self(catalog.V4, catalog.Window{}).Addrs, 512)
		})
	})
	b.Run("NXDOMAIN", func(b *testing.B) {
		benchmark(b, func() *dns.Msg { return zone.Negative(r, dns.RcodeNameError, "clusterset.local.", 7, false) })
	})
	rs := question("_https._tcp.web.test.svc.clusterset.local.", dns.TypeSRV)
	b.Run("SRV", func(b *testing.B) {
		benchmark(b, func() *dns.Msg {
			return zone.SRV(rs, web.Key(), web.Targets("https", "tcp", catalog.Window{}), 512)
		})
	})
	rh := question("db.test.svc.clusterset.local.", dns.TypeA)
	for _, limit := range []int{512, 1232, 65535} {
		b.Run(fmt.Sprintf("headless1000/%d", limit), func(b *testing.B) {
			benchmark(b, func() *dns.Msg {
				m := zone.Addresses(rh, dns.TypeA, db.Self(catalog.V4, catalog.Window{}).Addrs, limit)
				m.Compress = true
				return m
			})
		})
	}
	rsh := question("_http._tcp.db.test.svc.clusterset.local.", dns.TypeSRV)
	b.Run("headlessSRV", func(b *testing.B) {
		benchmark(b, func() *dns.Msg {
			m := zone.SRV(rsh, db.Key(), db.Targets("http", "tcp", catalog.Window{}), 1232)
			m.Compress = true
			return m
		})
	})
}
