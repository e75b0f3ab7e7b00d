package multicluster

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/clusterset-dns/clusterset-dns/test/model"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// O4: each name tells what stands in it, in lower case, and nothing else.
func TestO4MetadataOfEachName(t *testing.T) {
	objs, err := model.LoadFixture("../../test/cases/fixture.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := handler(objs)
	of := func(service, namespace, kind string, more ...string) map[string]string {
		all := map[string]string{"service": service, "namespace": namespace, "type": kind}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
		return all
	}
	for name, want := range map[string]map[string]string{
		"web.test.svc":                 of("web", "test", "ClusterSetIP"),
		"Db.Test.svc":                  of("db", "test", "Headless"),
		"absent.test.svc":              of("absent", "test", ""),
		"_HTTPS._TCP.web.test.svc":     of("web", "test", "ClusterSetIP", "port-name", "https", "protocol", "tcp"),
		"_x._udp.db.test.svc":          of("db", "test", "Headless", "port-name", "x", "protocol", "udp"),
		"_tcp.db.test.svc":             of("db", "test", "Headless", "protocol", "tcp"),
		"EU.db.test.svc":               of("db", "test", "Headless", "cluster", "eu"),
		"Pod-0.eu.db.test.svc":         of("db", "test", "Headless", "endpoint", "pod-0", "cluster", "eu"),
		"pod-0.eu.example.db.test.svc": of("db", "test", "Headless", "endpoint", "pod-0", "cluster", "eu.example"),
		"test.svc":                     {"namespace": "test"},
		"svc":                          {},
		"dns-version":                  {},
	} {
		ctx := m.Metadata(
			metadata.ContextWithMetadata(context.Background()),
			request.Request{Req: question(name+".clusterset.local.", dns.TypeA, 0)},
		)
		got := map[string]string{}
		for _, label := range metadata.Labels(ctx) {
			got[strings.TrimPrefix(label, pluginName+"/")] = metadata.ValueFunc(ctx, label)()
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	ctx := m.Metadata(
		metadata.ContextWithMetadata(context.Background()),
		request.Request{Req: question("web.test.svc.cluster.local.", dns.TypeA, 0)},
	)
	if all := metadata.Labels(ctx); len(all) > 0 {
		t.Errorf("%v of another zone's name", all)
	}
}

// N2: in a cluster the DNS Service's address, if the pod was told it; else, and outside, those that the server is
// bound to.
func TestN2DefaultNameservers(t *testing.T) {
	inside, outside := kube.Config{}, kube.Config{Kubeconfig: "/some/file"}
	for _, c := range []struct {
		name           string
		kubeDNS, other string
		config         kube.Config
		hosts          []string
		want           string
	}{
		{"kube-dns", "10.96.0.10", "", inside, []string{"127.0.0.1"}, "[10.96.0.10]"},
		{"coredns", "", "fd00::a", inside, []string{"127.0.0.1"}, "[fd00::a]"},
		{"both", "10.96.0.10", "10.96.0.11", inside, nil, "[10.96.0.10]"},
		{"no address", "dns.example.org", "", inside, []string{"127.0.0.1"}, "[127.0.0.1]"},
		{"not told", "", "", inside, []string{"127.0.0.1", "fe80::1", "0.0.0.0", "::1"}, "[127.0.0.1 ::1]"},
		{"outside", "10.96.0.10", "10.96.0.11", outside, []string{"192.0.2.1"}, "[192.0.2.1]"},
		{"by endpoint", "10.96.0.10", "", kube.Config{Endpoint: "http://192.0.2.9"}, []string{"192.0.2.1"}, "[192.0.2.1]"},
	} {
		t.Setenv("KUBE_DNS_SERVICE_HOST", c.kubeDNS)
		t.Setenv("COREDNS_SERVICE_HOST", c.other)
		if got := fmt.Sprint(authority.Nameservers(c.config, c.hosts)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if !slices.Contains(authority.Nameservers(outside, []string{"0.0.0.0"}), netip.MustParseAddr("127.0.0.1")) {
		t.Error("bound to all interfaces: not loopback's address")
	}
}

// N2: what option nameserver says is what is served, as addresses and as glue, and no other.
func TestN2NameserverOptionIsServed(t *testing.T) {
	c := startControl(t)
	for option, want := range map[string]string{
		"nameserver 192.0.2.53 2001:db8::53": "192.0.2.53 2001:db8::53", "": "127.0.0.1",
	} {
		t.Run(want, func(t *testing.T) {
			s := serve(
				t,
				input(
					"clusterset.local:0 {\n bind 127.0.0.1\n"+strings.Replace(
						c.stanza("n2"+option[:min(len(option), 1)], "1h"),
						"}",
						option+"\n}",
						1,
					)+"\n}",
				),
			)
			at := s.Servers()[0].LocalAddr().String()
			eventually(t, "synced", func() bool { return s.rcode() == dns.RcodeNameError })
			addrs := func(rrs []dns.RR) (all []string) {
				for _, rr := range rrs {
					switch rr := rr.(type) {
					case *dns.A:
						all = append(all, rr.A.String())
					case *dns.AAAA:
						all = append(all, rr.AAAA.String())
					}
				}
				return all
			}
			asked := func(name string, qtype uint16) *dns.Msg {
				m, err := dns.Exchange(question(name, qtype, 0), at)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			const ns = "ns.dns.clusterset.local."
			if got := strings.Join(
				append(addrs(asked(ns, dns.TypeA).Answer), addrs(asked(ns, dns.TypeAAAA).Answer)...),
				" ",
			); got != want {
				t.Errorf("%q: %s has %s, want %s", option, ns, got, want)
			}
			if got := strings.Join(addrs(asked("clusterset.local.", dns.TypeNS).Extra), " "); got != want {
				t.Errorf("%q: glue %s, want %s", option, got, want)
			}
		})
	}
}

// M6: within one TTL, A, SRV and host names are of the same subset; the next TTL's is another; TTL 0 is as one
// second. A transfer has all (L6).
func TestM6OneSubsetPerTTL(t *testing.T) {
	for _, ttl := range []uint32{0, 1, 5, 3600} {
		m := preferred(catalog.Topology{})
		m.Zones = []*reply.Zone{reply.NewZone(defaultZone, ttl, []netip.Addr{nameserver})}
		if w := m.window(m.Zones[0]); w.Max != 0 || w.Everyone {
			t.Errorf("without max_endpoints: %+v", w)
		}
		m.maxEndpoints = 7
		before := uint64(time.Now().Unix()) / uint64(max(ttl, 1))
		w := m.window(m.Zones[0])
		if after := uint64(time.Now().Unix()) / uint64(max(ttl, 1)); w.Max != 7 || w.Epoch < before ||
			w.Epoch > after {
			t.Errorf("TTL %d: %+v, want epoch %d to %d", ttl, w, before, after)
		}
	}
	m := preferred(catalog.Topology{})
	m.Zones = []*reply.Zone{reply.NewZone(defaultZone, 3600, []netip.Addr{nameserver})}
	m.maxEndpoints = 7
	const name = "h100.test.svc.clusterset.local."
	for {
		began := m.window(m.Zones[0])
		var subset, glue, transferred []string
		msg, _ := ask(t, m, question(name, dns.TypeA, 4096), true)
		for _, rr := range msg.Answer {
			subset = append(subset, rr.(*dns.A).A.String())
		}
		msg, _ = ask(t, m, question("_http._tcp."+name, dns.TypeSRV, 4096), true)
		for _, rr := range msg.Extra {
			if a, ok := rr.(*dns.A); ok {
				glue = append(glue, a.A.String())
			}
		}
		ch, err := m.Transfer(defaultZone, 0)
		if err != nil {
			t.Fatal(err)
		}
		for rrs := range ch {
			for _, rr := range rrs {
				if a, ok := rr.(*dns.A); ok && a.Hdr.Name == name {
					transferred = append(transferred, a.A.String())
				}
			}
		}
		if m.window(m.Zones[0]).Epoch != began.Epoch {
			continue // an hour is over: once more
		}
		for _, all := range [][]string{subset, glue} {
			slices.Sort(all)
		}
		if len(subset) != 7 || !slices.Equal(subset, glue) {
			t.Errorf("A %v, targets of SRV %v: want the same 7", subset, glue)
		}
		if len(transferred) != 100 {
			t.Errorf("%d addresses transferred, want all 100: one serial has one content", len(transferred))
		}
		break
	}
}
