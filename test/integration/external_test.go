package integration

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const externalZone = "global.example.org."

// external is an EndpointSlice as an agent writes it for clients outside: of one cluster and one address type.
func external(cluster, kind string, ready bool, annotations string, addrs ...string) string {
	text := fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  namespace: outside
  name: web-%s-%s
  labels:
    clusterset-dns.io/external: web
    multicluster.kubernetes.io/source-cluster: %s
    endpointslice.kubernetes.io/managed-by: clusterset-controller.clusterset-dns.io
  annotations: {%s}
addressType: %s
endpoints:
`, cluster, strings.ToLower(kind), cluster, annotations, kind)
	for _, a := range addrs {
		text += fmt.Sprintf("- addresses: [%q]\n  conditions: {ready: %v}\n", a, ready)
	}
	return text
}

// geoDatabase writes a database of cities and returns its path.
func geoDatabase(t *testing.T, places map[string]lab.Place) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "city.mmdb")
	if err := lab.WriteGeoDatabase(file, places); err != nil {
		t.Fatal(err)
	}
	return file
}

const (
	inBerlin  = `clusterset-dns.io/region: eu, clusterset-dns.io/location: "52.52,13.40"`
	inNewYork = `clusterset-dns.io/region: us, clusterset-dns.io/location: "40.71,-74.01"`
	inTokyo   = `clusterset-dns.io/region: asia, clusterset-dns.io/location: "35.68,139.69"`
)

// outside is a Service with load balancers on three continents: of both families, of one, and a host name.
func outside(berlin, newYork, tokyo bool) string {
	return external("berlin", "IPv4", berlin, inBerlin, "198.51.100.1", "198.51.100.2") + "---\n" +
		external("berlin", "IPv6", berlin, inBerlin, "2001:db8:1::1") + "---\n" +
		external("ny.us-east", "IPv4", newYork, inNewYork, "198.51.100.11") + "---\n" +
		external("tokyo", "FQDN", tokyo, inTokyo, "lb.tokyo.example")
}

// X1–X7: the binary answers clients with the nearest cluster that is up, by the client subnet and a database of cities.
func TestX1X2X3X4X5X6X7ExternalNames(t *testing.T) {
	c := fixtureCluster(t)
	c.kubectl(t, "", "create", "namespace", "outside")
	t.Cleanup(func() { c.kubectl(t, "", "delete", "namespace", "outside", "--wait=false") })
	c.apply(t, outside(true, true, true))
	const paris, boston, osaka, unknown = "203.0.113.0/24", "192.0.2.0/24", "2001:db8:77::/48", "100.64.7.0/24"
	geo := geoDatabase(t, map[string]lab.Place{
		paris:  {Latitude: 48.86, Longitude: 2.35, Continent: "EU"},
		boston: {Latitude: 42.36, Longitude: -71.06, Continent: "NA"},
		osaka:  {Latitude: 34.69, Longitude: 135.5, Continent: "AS"},
	})
	corefile := func(ttl int) string {
		return fmt.Sprintf(`global.example.org:0 {
			bind 127.0.0.1
			errors
			ready READY
			prometheus METRICS
			metadata
			geoip %s {
				edns-subnet
			}
			transfer {
				to *
			}
			multicluster_external {
				kubeconfig KUBECONFIG
				edns-subnet
				nameserver 127.0.0.1
				ttl %d
			}
		}`, geo, ttl)
	}
	s := c.serve(t, corefile(30))
	const web = "web.outside." + externalZone
	from := func(subnet, name, qtype string) string {
		m, err := tryDig(
			t.Context(),
			s.addr,
			question{name: name, qtype: qtype, edns: 1232, args: []string{"+subnet=" + subnet}},
		)
		if err != nil {
			return err.Error()
		}
		got := answers(m)
		slices.Sort(got)
		if len(got) == 0 {
			return dns.RcodeToString[m.Rcode]
		}
		return strings.Join(got, ",")
	}
	want := func(when string, table map[[3]string]string) {
		t.Helper()
		for q, answer := range table {
			if got := from(q[0], q[1], q[2]); got != answer {
				t.Errorf("%s: %v is answered %s, want %s", when, q, got, answer)
			}
		}
	}
	const berlin, newYork, tokyo = "198.51.100.1,198.51.100.2", "198.51.100.11", "lb.tokyo.example."
	eventually(t, "the first list", func() bool { return from(paris, web, "A") == berlin })
	if !s.ready(t) {
		t.Error("not ready")
	}
	all := map[[3]string]string{
		{paris, web, "A"}: berlin, {paris, web, "AAAA"}: "2001:db8:1::1",
		{boston, web, "A"}: newYork, {osaka, web, "A"}: tokyo, {osaka, web, "AAAA"}: tokyo,
		{paris, "ny.us-east." + web, "A"}: newYork, {paris, "us." + web, "A"}: newYork,
		{boston, "tokyo." + web, "A"}: tokyo, {boston, "asia." + web, "A"}: tokyo, {osaka, "eu." + web, "A"}: berlin,
		{paris, "us-east." + web, "A"}: "NOERROR", {paris, "mars." + web, "A"}: "NXDOMAIN",
		{paris, "outside." + externalZone, "A"}: "NOERROR", {paris, "ns.dns." + externalZone, "A"}: "127.0.0.1",
		{paris, web, "TXT"}: "NOERROR", {paris, web, "SRV"}: "NOERROR",
	}
	want("all are up", all)
	if got := from(
		unknown,
		web,
		"A",
	); got != berlin && got != newYork && got != tokyo ||
		got != from(unknown, web, "A") {
		t.Errorf("a client whose place is not known gets %s, and then %s", got, from(unknown, web, "A"))
	}
	for subnet, scope := range map[string]uint8{paris: 24, osaka: 48} {
		if got := s.scope(t, web, subnet); got != scope {
			t.Errorf("%s: the reply's scope is %d, want %d", subnet, got, scope)
		}
	}
	if got := s.scope(t, "berlin."+web, paris); got != 0 {
		t.Errorf("a cluster's name: the reply's scope is %d, want 0", got)
	}
	s.transferIs(t, map[string]bool{
		web + " A 198.51.100.1": true, web + " A 198.51.100.2": true, web + " A 198.51.100.11": true,
		web + " AAAA 2001:db8:1::1": true,
	})

	c.apply(t, outside(false, true, true))
	eventually(t, "Berlin is not answered while it is down", func() bool {
		return from(paris, web, "A") == newYork
	})
	want("Berlin is down", map[[3]string]string{
		{boston, web, "A"}: newYork, {osaka, web, "A"}: tokyo, {osaka, "eu." + web, "A"}: tokyo,
		{osaka, "berlin." + web, "A"}: berlin,
	})
	s.transferIs(t, map[string]bool{web + " A 198.51.100.11": true})
	c.apply(t, outside(false, false, false))
	eventually(
		t,
		"all are answered while all are down",
		func() bool { return from(paris, web, "A") == berlin },
	)
	want("all are down", all)

	s.reload(t, corefile(60))
	want("after a reload", all)
	if m := dig(t, s.addr, question{name: web, qtype: "A"}); len(m.Answer) == 0 || m.Answer[0].Header().Ttl != 60 {
		t.Errorf("after a reload: %v", m)
	}
	for metric, value := range map[string]float64{"synced": 1, "api_up": 1, "names": 1, "clusters": 3, "left_out": 0} {
		if got := s.metric(t, "coredns_multicluster_external_"+metric); got != value {
			t.Errorf("%s is %v, want %v", metric, got, value)
		}
	}
	c.kubectl(t, "", "-n", "outside", "delete", "endpointslices", "-l", "clusterset-dns.io/external=web")
	s.waitForNone(t, web)
}

// The Corefiles of the plugin's README start, and answer.
func TestExternalReadmeCorefiles(t *testing.T) {
	c := fixtureCluster(t)
	geo := geoDatabase(t, map[string]lab.Place{"203.0.113.0/24": {Latitude: 48.86, Longitude: 2.35, Continent: "EU"}})
	blocks := strings.Split(read(t, "../../plugin/multicluster_external/README.md"), "~~~ corefile\n")[1:]
	if len(blocks) < 2 {
		t.Fatalf("%d Corefiles found", len(blocks))
	}
	for _, block := range blocks {
		corefile, _, _ := strings.Cut(block, "~~~")
		s := c.serve(t, strings.ReplaceAll(onLoopback(corefile), "/etc/geoip/GeoLite2-City.mmdb", geo))
		s.waitForAnswer(t, "ns.dns."+externalZone, "A", "192.0.2.53,198.51.100.53")
	}
}

// scope is that of the reply to a client subnet.
func (s *server) scope(t *testing.T, name, subnet string) uint8 {
	t.Helper()
	p := netip.MustParsePrefix(subnet)
	o := &dns.EDNS0_SUBNET{
		Code:          dns.EDNS0SUBNET,
		Family:        1,
		SourceNetmask: uint8(p.Bits()),
		Address:       net.IP(p.Addr().AsSlice()),
	}
	if p.Addr().Is6() {
		o.Family = 2
	}
	r := new(dns.Msg).SetQuestion(name, dns.TypeA).SetEdns0(1232, false)
	r.IsEdns0().Option = append(r.IsEdns0().Option, o)
	m, _, err := (&dns.Client{Timeout: answerLimit}).Exchange(r, s.addr)
	if err != nil || m.IsEdns0() == nil || len(m.IsEdns0().Option) != 1 {
		t.Fatalf("%v %v", m, err)
	}
	return m.IsEdns0().Option[0].(*dns.EDNS0_SUBNET).SourceScope
}

// transferIs compares a transfer: the name of the Service has these records, and all other names what questions get.
func (s *server) transferIs(t *testing.T, want map[string]bool) {
	t.Helper()
	at := map[string][]string{}
	for _, rr := range s.transfer(t, externalZone)[1:] {
		key := rr.Header().Name + " " + dns.TypeToString[rr.Header().Rrtype]
		at[key] = append(at[key], strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	berlinIsDown := len(want) == 1
	if len(at) < 8 {
		t.Errorf("the transfer has only %v", at)
	}
	for key, data := range at {
		name, qtype, _ := strings.Cut(key, " ")
		slices.Sort(data)
		if name == "web.outside."+externalZone {
			for _, d := range data {
				if !want[key+" "+d] {
					t.Errorf("%s %s is transferred", key, d)
				}
				delete(want, key+" "+d)
			}
			continue
		}
		got := answers(dig(t, s.addr, question{name: name, qtype: qtype, tcp: true}))
		if berlinIsDown && strings.HasPrefix(name, "eu.") {
			continue // all of this region are down, so the answer depends on the client
		}
		if slices.Sort(got); !slices.Equal(got, data) {
			t.Errorf("%s: %v is transferred, and %v answered", key, data, got)
		}
	}
	for missing := range want {
		t.Errorf("%s is not transferred", missing)
	}
}
