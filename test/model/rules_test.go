package model

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

const under = ".db.test.svc." + DefaultZone

// headless is db.test with the given slices.
func headless(slices ...discoveryv1.EndpointSlice) Objects {
	imp := Import{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "db"}}
	imp.Spec.Type = mcsv1beta1.Headless
	return Objects{Imports: []Import{imp}, Slices: slices}
}

// from is a slice of db.test with port pg, 5432/TCP.
func from(cluster string, endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
	slice := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints}
	if len(endpoints) > 0 && strings.Contains(endpoints[0].Addresses[0], ":") {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	slice.Namespace = "test"
	slice.Labels = map[string]string{mcsv1beta1.LabelServiceName: "db", mcsv1beta1.LabelSourceCluster: cluster}
	slice.Ports = []discoveryv1.EndpointPort{{Name: new("pg"), Port: new(int32(5432))}}
	return slice
}

func at(host string, addresses ...string) discoveryv1.Endpoint {
	ep := discoveryv1.Endpoint{Addresses: addresses}
	if host != "" {
		ep.Hostname = &host
	}
	return ep
}

func clusterSetIP(ips []string, ports ...mcsv1beta1.ServicePort) Objects {
	objs := headless()
	objs.Imports[0].Spec = mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: ips, Ports: ports}
	return objs
}

// want compares a reply by its outcome or, without owners, by its answers.
func want(t *testing.T, cfg Config, objs Objects, name string, qtype uint16, expected ...string) {
	t.Helper()
	reply := Answer(cfg, objs, name, qtype)
	got := []string{reply.Outcome.String()}
	if reply.Outcome == Success {
		got = nil
		for _, text := range reply.Answer {
			_, data, _ := strings.Cut(text, " ")
			got = append(got, data)
		}
		slices.Sort(got)
	}
	slices.Sort(expected)
	if !slices.Equal(got, expected) {
		t.Errorf("%s %s: got %q, want %q", name, dns.TypeToString[qtype], got, expected)
	}
}

func TestN2NameserverAddresses(t *testing.T) {
	cfg := Defaults(
		netip.MustParseAddr("10.0.0.10"),
		netip.MustParseAddr("::ffff:10.0.0.11"),
		netip.MustParseAddr("fd00::10"),
	)
	want(t, cfg, Objects{}, "ns.dns.clusterset.local.", dns.TypeA, "A 10.0.0.10", "A 10.0.0.11")
	want(t, cfg, Objects{}, "ns.dns.clusterset.local.", dns.TypeAAAA, "AAAA fd00::10")
	want(t, Defaults(), Objects{}, "ns.dns.clusterset.local.", dns.TypeA, "NODATA")
	if extra := Answer(cfg, Objects{}, DefaultZone, dns.TypeNS).Extra; len(extra) != 3 {
		t.Errorf("N1: glue is %q, want three addresses", extra)
	}
}

func TestN4EmptyNonTerminalsOfAnEmptyZone(t *testing.T) {
	for name, outcome := range map[string]string{
		"svc.": "NODATA", "dns.": "NODATA", "ns.dns.": "NODATA", "test.svc.": "NXDOMAIN", "x.dns.": "NXDOMAIN",
		"x.ns.dns.": "NXDOMAIN", "x.dns-version.": "NXDOMAIN", "pod.": "NXDOMAIN",
	} {
		want(t, Defaults(server), Objects{}, name+DefaultZone, dns.TypeMX, outcome)
	}
}

func TestN5NoIPYetIsForgottenAfterASecond(t *testing.T) {
	http := mcsv1beta1.ServicePort{Name: "http", Port: 80}
	for _, ips := range [][]string{nil, {""}, {"fe80::1%eth0"}} {
		objs := clusterSetIP(ips, http)
		for qtype, ttl := range map[uint16]uint32{dns.TypeA: 1, dns.TypeAAAA: 1, dns.TypeTXT: 5} {
			if reply := Answer(
				Defaults(),
				objs,
				under[1:],
				qtype,
			); reply.Outcome != NoData ||
				reply.NegativeTTL != ttl {
				t.Errorf(
					"%s with ips %q: %s with TTL %d, want NODATA with %d",
					dns.TypeToString[qtype],
					ips,
					reply.Outcome,
					reply.NegativeTTL,
					ttl,
				)
			}
		}
		for _, name := range []string{"_http._tcp" + under, under[1:]} {
			if reply := Answer(Defaults(), objs, name, dns.TypeSRV); reply.Outcome != NoData || reply.NegativeTTL != 1 {
				t.Errorf(
					"SRV of %s with ips %q: %s with TTL %d, want NODATA with 1",
					name,
					ips,
					reply.Outcome,
					reply.NegativeTTL,
				)
			}
		}
	}
	if reply := Answer(Config{}, clusterSetIP(nil), under[1:], dns.TypeA); reply.NegativeTTL != 0 {
		t.Errorf("with ttl 0 the negative TTL is %d", reply.NegativeTTL)
	}
	if reply := Answer(
		Defaults(),
		clusterSetIP([]string{"10.0.0.1"}),
		under[1:],
		dns.TypeAAAA,
	); reply.NegativeTTL != 5 {
		t.Errorf("with an IP of the other family the negative TTL is %d", reply.NegativeTTL)
	}
}

func TestN7OneRecordPerTargetAndNumber(t *testing.T) {
	ports := []mcsv1beta1.ServicePort{
		{Name: "tcp", Port: 42},
		{Name: "udp", Port: 42, Protocol: corev1.ProtocolUDP},
		{Name: "sctp", Port: 43, Protocol: corev1.ProtocolSCTP},
		{Port: 44},
		{Name: "zero"},
		{Name: strings.Repeat("p", 63), Port: 45},
		{Name: "under_score", Port: 46},
	}
	objs := clusterSetIP([]string{"10.0.0.1", "fd00::1"}, ports...)
	want(
		t,
		Defaults(),
		objs,
		under[1:],
		dns.TypeSRV,
		"SRV 0 100 42 "+under[1:],
		"SRV 0 100 43 "+under[1:],
		"SRV 0 100 45 "+under[1:],
		"SRV 0 100 46 "+under[1:],
	)
	want(t, Defaults(), objs, "_sctp._sctp"+under, dns.TypeSRV, "SRV 0 100 43 "+under[1:])
	want(t, Defaults(), objs, "_under_score._tcp"+under, dns.TypeSRV, "NXDOMAIN")
	want(t, Defaults(), objs, "_zero._tcp"+under, dns.TypeSRV, "NXDOMAIN")
	if extra := Answer(Defaults(), objs, under[1:], dns.TypeSRV).Extra; len(extra) != 2 {
		t.Errorf("M3: glue is %q, want both families once", extra)
	}
}

func TestN8EveryEndpointHasItsOwnPortNumber(t *testing.T) {
	other := from("b", at("h", "10.0.0.2"))
	other.Ports[0].Port = new(int32(6432))
	anyPort := from("c", at("h", "10.0.0.3"))
	anyPort.Ports[0].Port = nil
	objs := headless(from("a", at("h", "10.0.0.1")), other, anyPort)
	want(t, Defaults(), objs, "_pg._tcp"+under, dns.TypeSRV, "SRV 0 100 5432 h.a"+under, "SRV 0 100 6432 h.b"+under)
	want(t, Defaults(), objs, under[1:], dns.TypeA, "A 10.0.0.1", "A 10.0.0.2", "A 10.0.0.3")
}

func TestN10ClusterWithoutReadyEndpointHasNoName(t *testing.T) {
	drained := at("h", "10.0.0.2")
	drained.Conditions.Ready = new(false)
	objs := headless(from("a", at("h", "10.0.0.1")), from("b.eu", drained))
	want(t, Defaults(), objs, "a"+under, dns.TypeA, "NODATA")
	want(t, Defaults(), objs, "b.eu"+under, dns.TypeA, "NXDOMAIN")
	want(t, Defaults(), objs, "eu"+under, dns.TypeA, "NXDOMAIN")
}

func TestN14NamesOfTwoIDsAreTheUnion(t *testing.T) {
	objs := headless(from("eu", at("x", "10.0.0.1"), at("y", "10.0.0.2")), from("x.eu", at("y", "10.0.0.3")))
	want(t, Defaults(), objs, "x.eu"+under, dns.TypeA, "A 10.0.0.1")
	want(t, Defaults(), objs, "y.eu"+under, dns.TypeA, "A 10.0.0.2")
	want(t, Defaults(), objs, "y.x.eu"+under, dns.TypeA, "A 10.0.0.3")
	want(t, Defaults(), objs, "eu"+under, dns.TypeA, "NODATA")
	want(t, Defaults(), objs, "x.eu"+under, dns.TypeAAAA, "NODATA")
	objs.Slices[0].Endpoints = objs.Slices[0].Endpoints[1:]
	want(t, Defaults(), objs, "x.eu"+under, dns.TypeA, "NODATA")
}

func TestN15NamesOfEndpointsWithoutHostname(t *testing.T) {
	for text, label := range map[string]string{
		"10.1.0.20": "10-1-0-20", "2001:db8:2::": "2001-db8-2--0", "::a:b": "0--a-b", "::": "0--0",
		"2001:0DB8::1": "2001-db8--1",
	} {
		if got := dashed(netip.MustParseAddr(text)); got != label {
			t.Errorf("%s is named %s, want %s", text, got, label)
		}
		want(t, Defaults(), headless(from("a", at("", text))), label+".a"+under, dns.TypeTXT, "NODATA")
	}
	ep := at("", "10.0.0.1", "10.0.0.2")
	ep.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "pod-0"}
	objs := headless(from("a", ep))
	want(t, Defaults(), objs, "pod-0.a"+under, dns.TypeA, "NXDOMAIN")
	want(t, Defaults(), objs, "10-0-0-2.a"+under, dns.TypeA, "A 10.0.0.2")
	pods := Config{EndpointPodNames: true}
	want(t, pods, objs, "pod-0.a"+under, dns.TypeA, "A 10.0.0.1", "A 10.0.0.2")
	want(t, pods, objs, "10-0-0-2.a"+under, dns.TypeA, "NXDOMAIN")
	ep.TargetRef.Name = "kube-proxy-node.example"
	want(t, pods, objs, "10-0-0-2.a"+under, dns.TypeA, "A 10.0.0.2")
	objs.Slices[0].Endpoints[0].Hostname = new("h")
	want(t, pods, objs, "h.a"+under, dns.TypeA, "A 10.0.0.1", "A 10.0.0.2")
}

func TestN16ReadyIsWhatTheSliceSays(t *testing.T) {
	for _, terminating := range []*bool{nil, new(false), new(true)} {
		for _, test := range []struct {
			ready *bool
			want  string
		}{{nil, "A 10.0.0.1"}, {new(true), "A 10.0.0.1"}, {new(false), "NXDOMAIN"}} {
			ep := at("h", "10.0.0.1")
			ep.Conditions = discoveryv1.EndpointConditions{
				Ready:       test.ready,
				Terminating: terminating,
				Serving:     new(true),
			}
			want(t, Defaults(), headless(from("a", ep)), "h.a"+under, dns.TypeA, test.want)
		}
	}
}

func TestN17SlicesThatAreSkipped(t *testing.T) {
	for _, id := range []string{
		"", "a.b.c", "a..b", ".a", "a.", "a_b", "-a", "a-.b", strings.Repeat("i", 64),
		strings.Repeat("i", 32) + "." + strings.Repeat("j", 31),
	} {
		want(t, Defaults(), headless(from(id, at("h", "10.0.0.1"))), under[1:], dns.TypeA, "NXDOMAIN")
	}
	for _, id := range []string{
		"a", "a.b", "1.2", "EU", strings.Repeat("i", 63), strings.Repeat("i", 31) + "." + strings.Repeat("j", 31),
	} {
		want(t, Defaults(), headless(from(id, at("h", "10.0.0.1"))), "h."+id+under, dns.TypeA, "A 10.0.0.1")
	}
	for _, addressType := range []discoveryv1.AddressType{
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv6, "",
	} {
		slice := from("a", at("h", "10.0.0.1"))
		slice.AddressType = addressType
		want(t, Defaults(), headless(slice), under[1:], dns.TypeA, "NXDOMAIN")
	}
}

func TestNamesThatCannotBeAreLeftOutAlone(t *testing.T) {
	for _, host := range []string{"_h", "a.b", "-h", "*", strings.Repeat("h", 64)} {
		objs := headless(from("a", at(host, "10.0.0.1"), at("ok", "10.0.0.2"), at("ok", "10.0.0", "::1")))
		want(t, Defaults(), objs, under[1:], dns.TypeA, "A 10.0.0.1", "A 10.0.0.2")
		want(t, Defaults(), objs, "_pg._tcp"+under, dns.TypeSRV, "SRV 0 100 5432 ok.a"+under)
		want(t, Defaults(), objs, "ok.a"+under, dns.TypeA, "A 10.0.0.2")
		want(t, Defaults(), objs, "10-0-0-1.a"+under, dns.TypeA, "NXDOMAIN")
	}
	// 255 octets on the wire is the most: host + cluster + "db.test.svc." + zone, whatever their labels.
	zone := strings.Repeat("z.", 64)
	rest := len("db.test.svc.") + len(zone) + 1
	cluster := strings.Repeat("c", 63)
	fits, tooLong := strings.Repeat("h", 255-rest-64-1), strings.Repeat("h", 255-rest-64)
	objs := headless(from(cluster, at(fits, "10.0.0.1"), at(tooLong, "10.0.0.2")))
	base := cluster + ".db.test.svc." + zone
	want(t, Config{Zone: zone}, objs, fits+"."+base, dns.TypeA, "A 10.0.0.1")
	want(t, Config{Zone: zone}, objs, "db.test.svc."+zone, dns.TypeA, "A 10.0.0.1", "A 10.0.0.2")
	want(t, Config{Zone: zone}, objs, "db.test.svc."+zone, dns.TypeSRV, "SRV 0 100 5432 "+fits+"."+base)
	for _, text := range Zone(Config{Zone: zone}, objs) {
		if strings.Contains(text, tooLong) {
			t.Errorf("a name of 256 octets stands in %s", text)
		}
	}
}

func TestO1OptionsThatSelect(t *testing.T) {
	objs := headless(from("a", at("h", "10.0.0.1")))
	want(t, Config{Namespaces: []string{"prod"}}, objs, "h.a"+under, dns.TypeA, "NXDOMAIN")
	want(t, Config{Namespaces: []string{"prod", "test"}}, objs, "h.a"+under, dns.TypeA, "A 10.0.0.1")
	want(t, Config{NoEndpoints: true}, objs, under[1:], dns.TypeA, "NXDOMAIN")
	want(t, Config{NoEndpoints: true}, clusterSetIP([]string{"10.0.0.9"}), under[1:], dns.TypeA, "A 10.0.0.9")
	chosen := Config{Labels: labels.SelectorFromSet(labels.Set{"tier": "gold"})}
	objs.Slices[0].Labels["tier"] = "gold"
	want(t, chosen, objs, under[1:], dns.TypeA, "NXDOMAIN")
	delete(objs.Slices[0].Labels, "tier")
	objs.Imports[0].Labels = map[string]string{"tier": "gold"}
	want(t, chosen, objs, under[1:], dns.TypeA, "A 10.0.0.1")
}

func TestM1NamesMatchAsOnTheWire(t *testing.T) {
	objs := headless(from("a", at("h", "10.0.0.1")))
	for name, outcome := range map[string]string{
		`\104.a.DB.test.svc.clusterset.local`: "A 10.0.0.1", `h\.a.db.test.svc.clusterset.local.`: "NXDOMAIN",
		`svc\.clusterset.local.`: "NEXT", "xclusterset.local.": "NEXT", ".": "NEXT", "a..b.": "NEXT",
	} {
		want(t, Defaults(), objs, name, dns.TypeA, outcome)
	}
	want(t, Config{Zone: "."}, objs, "h.a.db.test.svc.", dns.TypeA, "A 10.0.0.1")
	want(t, Config{Zone: "Multi.Example"}, objs, "h.a.db.test.svc.multi.example.", dns.TypeA, "A 10.0.0.1")
}

func TestAddressesThatAreNotTheSlicesAreLeftOut(t *testing.T) {
	four := from("a", at("h", "10.0.0.1", "fd00::1", "::ffff:10.0.0.2", "10.0.0.01", ""))
	six := from("a", at("h", "fd00::2", "10.0.0.3", "::ffff:10.0.0.4", "fe80::1%eth0"))
	want(t, Defaults(), headless(four, six), "h.a"+under, dns.TypeA, "A 10.0.0.1")
	want(t, Defaults(), headless(four, six), "h.a"+under, dns.TypeAAAA, "AAAA fd00::2")
	want(t, Defaults(), headless(from("a", at("h", "fe80::1%eth0"))), under[1:], dns.TypeMX, "NXDOMAIN")
}

func TestN12AnImportIsOneLabelInOneNamespace(t *testing.T) {
	objs := clusterSetIP([]string{"10.0.0.1"})
	objs.Imports[0].Name = "a.b"
	for _, name := range []string{"a.b.test.svc.", "b.test.svc.", "test.svc."} {
		want(t, Defaults(), objs, name+DefaultZone, dns.TypeA, "NXDOMAIN")
	}
	elsewhere := from("a", at("h", "10.0.0.1"))
	elsewhere.Namespace = "prod"
	want(t, Defaults(), headless(elsewhere), under[1:], dns.TypeA, "NXDOMAIN")
	again := clusterSetIP([]string{"10.0.0.2"})
	again.Imports = append(clusterSetIP([]string{"10.0.0.1"}).Imports, again.Imports...)
	want(t, Defaults(), again, under[1:], dns.TypeA, "A 10.0.0.2")
}

func TestN8PortNumbersThatCannotBe(t *testing.T) {
	for _, number := range []int32{-1, 0, 65536} {
		objs := clusterSetIP([]string{"10.0.0.1"}, mcsv1beta1.ServicePort{Name: "http", Port: number})
		want(t, Defaults(), objs, under[1:], dns.TypeSRV, "NODATA")
		want(t, Defaults(), objs, "_http._tcp"+under, dns.TypeSRV, "NXDOMAIN")
	}
}

func TestN15OnlyAPodGivesItsName(t *testing.T) {
	ep := at("", "10.0.0.1")
	ep.TargetRef = &corev1.ObjectReference{Kind: "VirtualMachine", Name: "vm"}
	want(t, Config{EndpointPodNames: true}, headless(from("a", ep)), "10-0-0-1.a"+under, dns.TypeA, "A 10.0.0.1")
}

func TestL6TransfersThatReachThePluginAreRefused(t *testing.T) {
	for _, qtype := range []uint16{dns.TypeAXFR, dns.TypeIXFR} {
		want(t, Defaults(), Objects{}, DefaultZone, qtype, "REFUSED")
		want(t, Defaults(), Objects{}, "example.org.", qtype, "NEXT")
	}
}
