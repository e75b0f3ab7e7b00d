package multicluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/miekg/dns"
)

// explained is the Extended DNS Error of a reply, "" for none, as dig shows it.
func explained(m *dns.Msg) string {
	var all []string
	for _, rr := range m.Extra {
		if opt, ok := rr.(*dns.OPT); ok {
			for _, o := range opt.Option {
				all = append(all, o.String())
			}
		}
	}
	return strings.Join(all, " and ")
}

// M8: a negative reply says why, if that is known, and only to a client with EDNS.
func TestM8NegativeRepliesSayWhy(t *testing.T) {
	x := new(catalog.Table[*catalog.Service])
	ready := []catalog.Endpoint{{Addr: nameserver, Host: "db-0"}}
	ports := []catalog.Port{{Name: "sql", Number: 5432}}
	for name, kind := range map[string]catalog.Type{"web": catalog.ClusterSetIP, "db": catalog.Headless} {
		imp := &catalog.Import{Namespace: "test", Name: name, Type: kind, Ports: ports}
		x.Set(name+".test", catalog.Build(imp, []*catalog.Slice{catalog.NewSlice("s", "east", ports, ready)}), 1)
	}
	x.Why.Store("empty.test", "the ServiceImport is Headless and has no ready endpoint")
	m := serving(defaultTTL, x)
	const form = "a.b.c.d.web.test.svc."
	for name, want := range map[string]string{
		"web.test.svc.":            "the ServiceImport has no address yet",
		"_sql._tcp.web.test.svc.":  "",
		"empty.test.svc.":          "the ServiceImport is Headless and has no ready endpoint",
		"a.empty.test.svc.":        "the ServiceImport is Headless and has no ready endpoint",
		"absent.test.svc.":         "",
		"absent.svc.":              "",
		form:                       "",
		"db-0.east.web.test.svc.":  "the endpoints of a ClusterSetIP Service have no names",
		"db-1.east.db.test.svc.":   "the Service has no such port or ready endpoint",
		"_sql._udp.db.test.svc.":   "the Service has no such port or ready endpoint",
		"db.test.svc.":             "",
		"db-0.east.db.test.svc.":   "",
		"east.db.test.svc.":        "",
		"_http._tcp.web.test.svc.": "the Service has no such port or ready endpoint",
	} {
		name += defaultZone
		plain, _ := ask(t, m, question(name, dns.TypeA, 0), false)
		msg, _ := ask(t, m, question(name, dns.TypeA, 1232), false)
		if want != "" {
			want = fmt.Sprintf("0 (Other): (%s)", want)
		}
		if got := explained(msg); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if got := explained(plain); got != "" || len(plain.Extra) != 0 {
			t.Errorf("%s without EDNS: %q, %v", name, got, plain.Extra)
		}
		if plain.Rcode != msg.Rcode || len(plain.Ns) != len(msg.Ns) || msg.Truncated {
			t.Errorf("%s: %v with EDNS, %v without", name, msg, plain)
		}
	}
}

// M8: a reason stands in the reply exactly where it fits into the buffer.
func TestM8AReasonThatDoesNotFit(t *testing.T) {
	r := question("web.test.svc."+defaultZone, dns.TypeA, 1232)
	for limit := range 400 {
		m := new(dns.Msg).SetRcode(r, dns.RcodeServerFailure)
		reply.Explain(m, r, dns.ExtendedErrorCodeNotReady, "wait", limit)
		said := len(m.Extra) > 0
		if !said {
			reply.Explain(m, r, dns.ExtendedErrorCodeNotReady, "wait", dns.MaxMsgSize)
		}
		if wire, err := m.Pack(); err != nil || said != (len(wire) <= limit) {
			t.Errorf("said %v in %d octets of %d, %v", said, len(wire), limit, err)
		}
	}
}

// M8: before the first list, a real server's SERVFAIL says what it waits for, that of dns-version too (L1).
func TestM8ServerFailureSaysWhy(t *testing.T) {
	c := startControl(t)
	c.status.Store(hold)
	s := serve(t, c.corefile("a", "1h"))
	ask := func(edns uint16) *dns.Msg {
		t.Helper()
		r := question("dns-version.clusterset.local.", dns.TypeTXT, edns)
		m, err := dns.ExchangeContext(context.Background(), r, s.Servers()[0].LocalAddr().String())
		if err != nil || m.Rcode != dns.RcodeServerFailure || edns == 0 && len(m.Extra) > 0 {
			t.Fatalf("%v, %v", m, err)
		}
		return m
	}
	ask(0)
	const want = "14 (Not Ready): (the API server has not sent the whole first lists)"
	if got := explained(ask(1232)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for status, want := range map[int]string{
		http.StatusForbidden: "14 (Not Ready): (not allowed to list and watch ServiceImports: " +
			"bind ClusterRole clusterset-dns:coredns",
		http.StatusNotFound: "14 (Not Ready): (ServiceImports are not served by the API server: apply deploy/crds)",
	} {
		c.status.Store(int32(status))
		eventually(t, want, func() bool { return strings.HasPrefix(explained(ask(1232)), want) })
	}
	c.status.Store(http.StatusOK)
	eventually(t, "answers", func() bool { return s.rcode() == dns.RcodeNameError })
}
