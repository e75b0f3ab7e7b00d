package honest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// draw makes objects of every kind that the API might accept. Its pools have what is usual, what is at a limit, and
// what other programs and older versions of Kubernetes write; the API server says what is valid.
type draw struct{ *rand.Rand }

func (d draw) chance(p float64) bool { return d.Float64() < p }

func pick[T any](d draw, pool ...T) T { return pool[d.IntN(len(pool))] }

// maybe returns nil as often as not.
func maybe[T any](d draw, v T) *T {
	if d.chance(0.5) {
		return nil
	}
	return &v
}

var (
	long      = strings.Repeat("x", 63)
	portNames = []string{
		"http", "web", "tcp-80", "clusterset-tcp-80", "clusterset-udp-80", "grpc", "0", "80", "a--b", "h-", "HTTP",
		long, long + "y",
	}
	numbers   = []int32{80, 80, 81, 443, 8080, 1, 65535, 0, 65536, -1}
	protocols = []corev1.Protocol{"TCP", "TCP", "UDP", "SCTP", "", "QUIC"}
	apps      = []string{
		"http", "https", "kubernetes.io/h2c", strings.Repeat("a.", 120) + "example/" + long, "not one!", "",
	}
	zones = []string{"z1", "z1", "z2", "Zone_A", "", long, long + "y", "with space", "zürich", "-z"}
	hosts = []string{"db-0", "db-0", "db-1", "0", long, "Db", "a.b", long + "y"}
	v4    = []string{
		"10.1.0.1", "10.1.0.2", "10.1.0.3", "192.168.7.9", "203.0.113.5", "240.16.3.7", "242.0.0.253",
		"255.255.255.255", "0.1.2.3", "100.64.0.9", "100.100.100.200", "168.63.129.16", "198.18.0.1", "224.1.2.3",
		"239.0.0.1", "169.254.1.1", "127.0.0.1", "010.001.0.9", "10.1", "::ffff:10.1.0.8",
	}
	v6 = []string{
		"fd00:30::1", "fd00:30::2", "2001:db8::1", "64:ff9b::cb00:7105", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7",
		"2002:cb00:7105::1", "::cb00:7105", "fd00:ec2::254", "fec0::1", "ff05::1", "fe80::1", "::1", "FD00::1",
		"fd00:0::1", "100::1", "::ffff:10.1.0.8", "fd00::1%eth0",
	}
)

// service is a Service that may be exported.
func (d draw) service(namespace, name string) *corev1.Service {
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = namespace, name
	s := &svc.Spec
	s.Type = pick(d, corev1.ServiceTypeClusterIP, "", "", corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	if s.Type == "" && d.chance(0.6) {
		s.ClusterIP = corev1.ClusterIPNone
	}
	s.IPFamilyPolicy = maybe(d, pick(d, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack))
	s.Ports = d.servicePorts(s)
	if d.chance(0.3) {
		s.SessionAffinity = pick(d, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone, "Cookie")
		s.SessionAffinityConfig = maybe(d, corev1.SessionAffinityConfig{
			ClientIP: maybe(d, corev1.ClientIPConfig{TimeoutSeconds: maybe(d, pick[int32](d, 1, 60, 86400, 0, 86401))}),
		})
	}
	if d.chance(0.3) {
		s.InternalTrafficPolicy = maybe(d, pick(d, corev1.ServiceInternalTrafficPolicyLocal, "Cluster", "Rack"))
	}
	if d.chance(0.4) {
		s.TrafficDistribution = maybe(d, pick(d, "PreferClose", "PreferSameZone", "PreferSameNode", "PreferNextPlanet"))
	}
	s.PublishNotReadyAddresses = d.chance(0.2)
	return svc
}

// servicePorts are many only without node ports: an API server allocates these one by one, from one object.
func (d draw) servicePorts(s *corev1.ServiceSpec) (out []corev1.ServicePort) {
	n := 1 + d.IntN(3)
	switch {
	case s.ClusterIP == corev1.ClusterIPNone && d.chance(0.15):
		n = 0
	case (s.Type == "" || s.Type == corev1.ServiceTypeClusterIP) && d.chance(0.05):
		n = pick(d, 255, 256, 257, 300)
	}
	for i := range n {
		p := corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(1000 + i), Protocol: pick(d, protocols[:4]...)}
		if n < 10 {
			p.Name, p.Port, p.Protocol = pick(d, portNames...), pick(d, numbers...), pick(d, protocols...)
		}
		if n == 1 && d.chance(0.4) {
			p.Name = ""
		}
		if d.chance(0.2) {
			p.AppProtocol = maybe(d, pick(d, apps...))
		}
		out = append(out, p)
	}
	return out
}

// slice is an EndpointSlice of the Service: its own ports, or others.
func (d draw) slice(svc *corev1.Service, name string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{}
	s.AddressType = pick[discoveryv1.AddressType](d, "IPv4", "IPv4", "IPv4", "IPv6", "IPv6", "FQDN")
	s.Namespace, s.Name = svc.Namespace, name
	s.Labels = map[string]string{discoveryv1.LabelServiceName: svc.Name}
	for _, p := range svc.Spec.Ports {
		if len(svc.Spec.Ports) < 10 && d.chance(0.1) {
			continue
		}
		port := discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, AppProtocol: p.AppProtocol}
		number := 8000 + p.Port
		if port.Port = &number; d.chance(0.1) {
			port.Port = maybe(d, pick(d, numbers...))
		}
		if *port.Protocol == "" || d.chance(0.03) {
			port.Protocol = nil
		}
		s.Ports = append(s.Ports, port)
	}
	if d.chance(0.1) {
		name, protocol := pick(d, portNames...), pick(d, protocols...)
		number := pick(d, numbers...)
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number})
	}
	for range d.IntN(4) {
		s.Endpoints = append(s.Endpoints, d.endpoint(s.AddressType))
	}
	return s
}

func (d draw) endpoint(family discoveryv1.AddressType) (e discoveryv1.Endpoint) {
	names := []string{"db.example.com", "a.b.example"}
	pool := map[discoveryv1.AddressType][]string{"IPv4": v4, "IPv6": v6, "FQDN": names}[family]
	if d.chance(0.7) {
		pool = pool[:2]
	}
	for range 1 + d.IntN(2)*d.IntN(3) {
		e.Addresses = append(e.Addresses, pick(d, pool...))
	}
	e.Conditions.Ready, e.Conditions.Serving = maybe(d, d.chance(0.8)), maybe(d, d.chance(0.8))
	e.Conditions.Terminating = maybe(d, d.chance(0.2))
	if d.chance(0.4) {
		e.Hostname = maybe(d, pick(d, hosts...))
	}
	if d.chance(0.4) {
		e.Zone = maybe(d, pick(d, zones...))
	}
	if d.chance(0.4) {
		e.NodeName = maybe(d, pick(d, "node-1", "node.2", "Node", ""))
	}
	if d.chance(0.4) {
		e.TargetRef = &corev1.ObjectReference{
			Kind: pick(d, "Pod", "Pod", "Node", ""), Namespace: pick(d, "honest", ""), UID: types.UID("u"),
			Name: pick(d, "web-0", "web_0", strings.Repeat("x", 300), ""),
		}
	}
	if d.chance(0.1) {
		e.DeprecatedTopology = map[string]string{"example.com/rack": pick(d, "r1", "", "no label value!")}
	}
	if d.chance(0.1) {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: pick(d, zones...)}}}
	}
	return e
}

func (d draw) export(svc *corev1.Service) *mcsv1beta1.ServiceExport {
	e := &mcsv1beta1.ServiceExport{}
	e.Namespace, e.Name = svc.Namespace, svc.Name
	if d.chance(0.2) {
		e.Spec.ExportedLabels = map[string]string{
			"team": pick(d, "red", "no label value!"), pick(d, "a", "no key!"): "",
		}
	}
	return e
}

// edit changes a Service as a user does.
func (d draw) edit(svc *corev1.Service) {
	switch d.IntN(4) {
	case 0:
		svc.Spec.TrafficDistribution = maybe(d, pick(d, "PreferClose", "PreferSameZone", "PreferSameNode"))
	case 1:
		svc.Spec.Ports = d.servicePorts(&svc.Spec)
	default:
		first := corev1.ServicePort{Name: "first", Port: 7, Protocol: "TCP"}
		svc.Spec.Ports = append([]corev1.ServicePort{first}, svc.Spec.Ports...)
	}
}
