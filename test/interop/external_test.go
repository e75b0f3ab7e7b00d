//go:build interop

package interop

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	global = "global.example.org."
	web    = "web.shop." + global
)

// external is an EndpointSlice of shop/web for clients outside.
func external(cluster string, of discoveryv1.AddressType, ready bool, addrs ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-" + cluster, Labels: map[string]string{
				"clusterset-dns.io/external": "web", "multicluster.kubernetes.io/source-cluster": cluster,
				discoveryv1.LabelManagedBy: "clusterset-controller.clusterset-dns.io",
			},
		},
		AddressType: of,
	}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}

// externalPrimary starts coredns at host:53 for the zone global, and returns its API server.
func externalPrimary(t *testing.T, host string, secondaries ...int) *stub.Server {
	t.Helper()
	api, err := stub.Start(stub.Shape{MoreSlices: []*discoveryv1.EndpointSlice{
		external("a", discoveryv1.AddressTypeIPv4, true, "192.0.2.1", "192.0.2.2"),
		external("b.eu", discoveryv1.AddressTypeIPv4, true, "198.51.100.1"),
		external("c", discoveryv1.AddressTypeIPv6, true, "2001:db8::1"),
		external("d", discoveryv1.AddressTypeFQDN, false, "lb.example.net"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	kubeconfig := file(t, `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c",
		"cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, api.URL)
	to := "*"
	for _, p := range secondaries {
		to += fmt.Sprintf(" 127.0.0.1:%d", p)
	}
	binary := os.Getenv("COREDNS_BINARY")
	if binary == "" {
		binary = "../../bin/coredns"
	}
	if binary, err = filepath.Abs(binary); err != nil {
		t.Fatal(err)
	}
	run(t, binary, "-conf", file(t, `global.example.org:53 {
	bind %s
	transfer {
		to %s
	}
	multicluster_external {
		kubeconfig %s
		edns-subnet
		nameserver %s
	}
}
`, host, to, kubeconfig, host))
	eventually(
		t,
		"coredns has its list",
		func() bool { return len(askAt(host+":53", web, dns.TypeAAAA, "").Answer) == 1 },
	)
	return api
}

// askAt returns the reply of a server to a question with a client subnet, unless that is "", or none.
func askAt(addr, name string, qtype uint16, subnet string) *dns.Msg {
	q := new(dns.Msg).SetQuestion(name, qtype)
	if _, n, err := net.ParseCIDR(subnet); err == nil {
		bits, _ := n.Mask.Size()
		q.SetEdns0(1232, false)
		o := &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(bits), Address: n.IP}
		q.IsEdns0().Option = append(q.IsEdns0().Option, o)
	}
	if m, _, err := new(dns.Client).Exchange(q, addr); err == nil {
		return m
	}
	return none()
}

// TestExternalNamesThroughADelegation: a resolver finds the zone by its parent's delegation, and gives each client
// subnet what coredns chose for it, from its cache too.
func TestExternalNamesThroughADelegation(t *testing.T) {
	const host, parent, resolver = "127.0.9.61", "127.0.9.62", "127.0.9.63"
	externalPrimary(t, host)
	zoneFile := file(t, "$ORIGIN example.org.\n$TTL 60\n@ SOA ns hostmaster 1 60 60 60 60\n@ NS ns\nns A %s\n"+
		"global NS ns.dns.global\nns.dns.global A %s\n", parent, host)
	run(t, "nsd", "-d", "-c", file(t, "server:\n ip-address: %s@53\n username: \"\"\n zonesdir: \"\"\n"+
		" database: \"\"\n pidfile: \"\"\n xfrdfile: \"\"\n zonelistfile: \"%s\"\n"+
		"remote-control:\n control-enable: no\nzone:\n name: example.org\n zonefile: \"%s\"\n",
		parent, filepath.Join(t.TempDir(), "zones"), zoneFile))
	eventually(t, "the parent refers", func() bool { return len(askAt(parent+":53", web, dns.TypeA, "").Ns) == 1 })
	run(t, "unbound", "-d", "-p", "-c", file(t, "server:\n interface: %s@53\n chroot: \"\"\n directory: \"%s\"\n"+
		" username: \"\"\n do-daemonize: no\n pidfile: \"\"\n use-syslog: no\n do-not-query-localhost: no\n"+
		" module-config: \"subnetcache iterator\"\n send-client-subnet: %s\n client-subnet-always-forward: yes\n"+
		"remote-control:\n control-enable: no\n"+
		"stub-zone:\n name: example.org\n stub-addr: %s\n", resolver, t.TempDir(), host, parent))
	eventually(
		t,
		"unbound answers",
		func() bool { return len(askAt(resolver+":53", web, dns.TypeAAAA, "").Answer) == 1 },
	)
	seen := map[string]bool{}
	for i := range 20 {
		subnet := fmt.Sprintf("203.0.%d.0/24", i)
		want := data(askAt(host+":53", web, dns.TypeA, subnet))
		for _, when := range []string{"first", "from its cache"} {
			m := askAt(resolver+":53", web, dns.TypeA, subnet)
			if got := data(m); len(got) == 0 || !slices.Equal(got, want) {
				t.Errorf("%s: %s unbound has %v, and coredns %v", subnet, when, got, want)
			}
			if o := m.IsEdns0(); o == nil || len(o.Option) != 1 || o.Option[0].(*dns.EDNS0_SUBNET).SourceScope != 24 {
				t.Errorf("%s: %s the reply's scope is not 24:\n%v", subnet, when, m)
			}
		}
		seen[fmt.Sprint(want)] = true
	}
	if len(seen) != 2 {
		t.Errorf("20 client subnets got %v, want two clusters", seen)
	}
	for _, name := range []string{"a." + web, "b.eu." + web, "d." + web, "eu." + web, "none." + web, "shop." + global} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT} {
			want, got := askAt(host+":53", name, qtype, ""), askAt(resolver+":53", name, qtype, "")
			alias := len(want.Answer) > 0 &&
				want.Answer[0].Header().Rrtype == dns.TypeCNAME // unbound has nobody to ask on
			if want.Rcode < 0 || !alias && (got.Rcode != want.Rcode || !slices.Equal(data(got), data(want))) {
				t.Errorf(
					"%s %s: %s %v, want %s %v",
					name,
					dns.TypeToString[qtype],
					dns.RcodeToString[got.Rcode],
					data(got),
					dns.RcodeToString[want.Rcode],
					data(want),
				)
			}
		}
	}
}

// TestSecondariesFollowExternalNames by NOTIFY and transfer: they have what does not depend on the client, and have a
// change within seconds.
func TestSecondariesFollowExternalNames(t *testing.T) {
	const host = "127.0.9.64"
	ports := map[string]int{"nsd": port(t), "bind": port(t)}
	api := externalPrimary(t, host, ports["nsd"], ports["bind"])
	run(t, "nsd", "-d", "-c", file(t, "server:\n ip-address: 127.0.0.1@%d\n username: \"\"\n zonesdir: \"\"\n"+
		" database: \"\"\n pidfile: \"\"\n xfrdfile: \"\"\n zonelistfile: \"%s\"\n"+
		"remote-control:\n control-enable: no\n"+
		"zone:\n name: %s\n allow-notify: 0.0.0.0/0 NOKEY\n request-xfr: AXFR %s@53 NOKEY\n",
		ports["nsd"], filepath.Join(t.TempDir(), "zones"), global, host))
	named(
		t,
		ports["bind"],
		"zone \"%s\" { type secondary; primaries { %s port 53; }; allow-notify { any; }; file \"zone\"; };\n",
		global,
		host,
	)
	have := func(want map[string]int) func() bool {
		return func() bool {
			for _, at := range ports {
				for name, n := range want {
					if m := ask(at, name, dns.TypeA, 4096); m.Rcode < 0 || len(m.Answer) != n {
						return false
					}
				}
			}
			return true
		}
	}
	eventually(t, "secondaries have the zone", have(map[string]int{
		web: 3, "a." + web: 2, "b.eu." + web: 1, "c." + web: 0, "d." + web: 1, "ns.dns." + global: 1,
	}))
	for name, at := range ports {
		if m := ask(at, "d."+web, dns.TypeA, 4096); m.Answer[0].Header().Rrtype != dns.TypeCNAME {
			t.Errorf("%s has %v", name, m.Answer)
		}
		if m := ask(at, web, dns.TypeAAAA, 4096); len(m.Answer) != 1 {
			t.Errorf("%s has %v for AAAA", name, m.Answer)
		}
	}
	if err := api.PutSlice(external("a", discoveryv1.AddressTypeIPv4, false, "192.0.2.1", "192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "secondaries have the change", have(map[string]int{web: 1, "a." + web: 2}))
}
