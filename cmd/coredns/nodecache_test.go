//go:build !race

package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
)

// The Corefiles of caches that answer Pods on their node: at port %[1]d, before a server at port %[2]d.
//
// NodeLocal DNSCache is a CoreDNS, to whose Corefile it appends a block per stub domain: kubernetes/dns,
// cmd/node-cache/app/configmap.go at 25a7ac9. This stands in for node-cache, whose module no proxy serves. AKS LocalDNS
// is a CoreDNS, too: MicrosoftDocs/azure-aks-docs, articles/aks/localdns-custom.md at 05793c1.
const (
	nodeLocal = `.:%[1]d {
    errors
    cache 30
    bind 127.0.0.1
    template ANY ANY {
        rcode NXDOMAIN
    }
}
`
	stubDomain = `clusterset.local:%[1]d {
    errors
    cache 30
    bind 127.0.0.1
    forward . 127.0.0.1:%[2]d
}
`
	localDNS = `.:%[1]d {
    errors
    bind 127.0.0.1
    forward . 127.0.0.1:%[2]d {
        policy sequential
        max_concurrent 1000
    }
    cache 3600 {
        success 9984
        denial 9984
        serve_stale 3600s immediate
        servfail 0
    }
}
`
	localDNSBlock = `clusterset.local:%[1]d {
    errors
    bind 127.0.0.1
    forward . 127.0.0.1:%[2]d {
        force_tcp
        policy sequential
        max_concurrent 1000
    }
    cache 5 {
        success 9984
        denial 9984
        servfail 0
    }
}
`
)

// TestNodeLocalFollowsAStubDomain: a cache on a node keeps an answer for its TTL, 5 s, whether its own limit is 30 s or
// an hour. Only serve_stale keeps it longer, which AKS LocalDNS has by default.
func TestNodeLocalFollowsAStubDomain(t *testing.T) {
	stock, quiet := slices.Clone(dnsserver.Directives), caddy.Quiet
	t.Cleanup(func() { dnsserver.Directives, dnsserver.Quiet, caddy.Quiet = stock, quiet, quiet })
	order()
	dnsserver.Quiet, caddy.Quiet = true, true
	const name, before, after = "db.db.svc.clusterset.local.", "10.128.0.1", "10.128.0.2"
	db := stub.Headless{Name: "db", Endpoints: 1, First: 1}
	api, err := stub.Start(stub.Shape{Headless: []stub.Headless{db}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	ours := start(t, "", "multicluster {\nendpoint "+api.URL+"\n}")
	caches := map[string]struct {
		corefile string
		want     string // when the TTL is over, "" if it does not know the name
		port     int
	}{
		"NodeLocal DNS":                      {corefile: nodeLocal},
		"NodeLocal DNS with a stub domain":   {corefile: nodeLocal + stubDomain, want: after},
		"AKS LocalDNS":                       {corefile: localDNS, want: before},
		"AKS LocalDNS with the page's block": {corefile: localDNS + localDNSBlock, want: after},
	}
	await(t, ours, name, before)
	for what, c := range caches {
		c.port = freePort(t)
		run(t, fmt.Sprintf(c.corefile, c.port, ours))
		caches[what] = c
		if c.want == "" {
			await(t, c.port, name, "")
			continue
		}
		await(t, c.port, name, before)
		r := new(dns.Msg).SetQuestion("absent.db.svc.clusterset.local.", dns.TypeA)
		m, err := overUDP(r, c.port)
		if err != nil || m.Rcode != dns.RcodeNameError || len(m.Ns) != 1 || m.Ns[0].Header().Ttl > 5 {
			t.Errorf("%s: a name that does not exist: %v, %v", what, m, err)
		}
	}
	db.First = 2
	for _, s := range db.Slices() {
		if err := api.PutSlice(s); err != nil {
			t.Fatal(err)
		}
	}
	await(t, ours, name, after)
	time.Sleep(6 * time.Second) // nobody asks a cache until the TTL is over
	for what, c := range caches {
		if got := address(t, c.port, name); got != c.want {
			t.Errorf("%s: six seconds after a change it answers %q, want %q", what, got, c.want)
		}
	}
}

// await asks until the answer is an address, or until there is none.
func await(t *testing.T, port int, name, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = address(t, port, name); got == want {
			return
		}
	}
	t.Fatalf("the server at port %d answers %q, want %q", port, got, want)
}

// address returns the answer for a name, "" without one.
func address(t *testing.T, port int, name string) string {
	t.Helper()
	m, err := overUDP(new(dns.Msg).SetQuestion(name, dns.TypeA), port)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Answer) == 0 {
		return ""
	}
	if ttl := m.Answer[0].Header().Ttl; ttl > 5 {
		t.Errorf("an answer with the TTL %d", ttl)
	}
	return m.Answer[0].(*dns.A).A.String()
}
