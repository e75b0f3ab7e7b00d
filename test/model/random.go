package model

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// The pools are small, so that names meet each other: services and namespaces called like parts of the zone, ids and
// host
// names called like each other, labels of the greatest length: names of four of them are longer than DNS allows.
var (
	long = strings.Repeat("l", 63)

	namespaces = []string{"test", "svc", "prod", "dns", long}
	services   = []string{"web", "db", "svc", "any", "eu", "tcp", "a.b", long}
	clusterIDs = []string{
		"eu",
		"x.eu",
		"eu.x",
		"x",
		"us",
		"cluster-b.eu",
		long,
		strings.Repeat("c", 31) + "." + strings.Repeat("d", 31),
	}
	impossible = []string{"", "a.b.c", "a..b", "under_score", "tail-.eu"} // N17; all may stand in a label
	hosts      = []string{"x", "eu", "x-eu", "my-pet-0", "my-pet-1", "10-1-0-1", "tcp", long}
	zones      = []string{"eu-1a", "EU-1a", "eu-1b", "corp.example.com", "x_1"}
	pods       = []string{"pod-0", "pod-1", "node.example", "x"}
	portNames  = []string{"", "https", "tcp", "udp", "dns", "dns-tcp", strings.Repeat("p", 62), strings.Repeat("p", 63)}
	protocols  = []corev1.Protocol{"", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	ipv4       = []string{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.2.0.1", "10.2.0.2", "192.0.2.255"}
	ipv6       = []string{
		"2001:db8::1",
		"2001:db8::2",
		"2001:db8:2::",
		"::a:b",
		"fd00::10.0.0.1",
		"2001:db8:1:2:3:4:5:6",
	}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// oneIn is true once in n times.
func oneIn(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// Random makes objects that an API server would store, about size imports and three times as many slices. The same r
// gives
// the same objects. For objects that no API server would store see Malform.
func Random(r *rand.Rand, size int) Objects {
	var objs Objects
	for _, at := range r.Perm(len(namespaces) * len(services))[:min(size, len(namespaces)*len(services))] {
		objs.Imports = append(
			objs.Imports,
			randomImport(r, namespaces[at%len(namespaces)], services[at/len(namespaces)]),
		)
	}
	for i := range 3 * size {
		namespace, service := pick(r, namespaces), pick(r, services)
		if len(objs.Imports) > 0 && !oneIn(r, 8) { // else perhaps a slice without an import
			imp := pick(r, objs.Imports)
			namespace, service = imp.Namespace, imp.Name
		}
		objs.Slices = append(objs.Slices, randomSlice(r, fmt.Sprintf("slice-%d", i), namespace, service))
	}
	return objs
}

func randomImport(r *rand.Rand, namespace, name string) Import {
	imp := Import{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	imp.Spec.Type = mcsv1beta1.Headless
	if oneIn(r, 3) {
		imp.Spec.Type = mcsv1beta1.ClusterSetIP
		if !oneIn(r, 3) {
			imp.Spec.IPs = append(imp.Spec.IPs, pick(r, ipv4))
		}
		if oneIn(r, 2) {
			imp.Spec.IPs = append(imp.Spec.IPs, pick(r, ipv6))
		}
	}
	for range r.IntN(4) {
		imp.Spec.Ports = append(imp.Spec.Ports, mcsv1beta1.ServicePort{
			Name: pick(r, portNames), Protocol: pick(r, protocols), Port: pick(r, []int32{42, 53, 443, 65535}),
		})
	}
	return imp
}

func randomSlice(r *rand.Rand, name, namespace, service string) discoveryv1.EndpointSlice {
	labels := map[string]string{
		discoveryv1.LabelManagedBy:    "model",
		mcsv1beta1.LabelServiceName:   service,
		mcsv1beta1.LabelSourceCluster: pick(r, clusterIDs),
	}
	switch {
	case oneIn(r, 12):
		delete(labels, mcsv1beta1.LabelSourceCluster)
	case oneIn(r, 12):
		labels[mcsv1beta1.LabelSourceCluster] = pick(r, impossible)
	case oneIn(r, 12):
		delete(labels, mcsv1beta1.LabelServiceName)
		labels[discoveryv1.LabelServiceName] = service
	}
	slice := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	pool := ipv4
	switch {
	case oneIn(r, 3):
		slice.AddressType, pool = discoveryv1.AddressTypeIPv6, ipv6
	case oneIn(r, 12):
		slice.AddressType, pool = discoveryv1.AddressTypeFQDN, []string{"foo.example.com"}
	}
	for _, at := range r.Perm(len(portNames))[:r.IntN(4)] { // names are unique within a slice
		slice.Ports = append(slice.Ports, randomPort(r, portNames[at]))
	}
	for range r.IntN(5) {
		slice.Endpoints = append(slice.Endpoints, randomEndpoint(r, pool))
	}
	return slice
}

func randomPort(r *rand.Rand, name string) discoveryv1.EndpointPort {
	protocol, number := pick(r, protocols), pick(r, []int32{42, 5432, 8443, 65535})
	p := discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number}
	if protocol == "" {
		p.Protocol = nil
	}
	if name == "" && oneIn(r, 2) {
		p.Name = nil
	}
	if oneIn(r, 10) {
		p.Port = nil // all ports
	}
	return p
}

func randomEndpoint(r *rand.Rand, pool []string) discoveryv1.Endpoint {
	ep := discoveryv1.Endpoint{Addresses: []string{pick(r, pool)}}
	if second := pick(r, pool); oneIn(r, 8) && second != ep.Addresses[0] {
		ep.Addresses = append(ep.Addresses, second)
	}
	if !oneIn(r, 3) {
		host := pick(r, hosts)
		ep.Hostname = &host
	}
	if oneIn(r, 3) {
		kind := pick(r, []string{"Pod", "Pod", "Pod", "VirtualMachine"})
		ep.TargetRef = &corev1.ObjectReference{Kind: kind, Name: pick(r, pods)}
	}
	if !oneIn(r, 4) {
		ep.Zone = new(pick(r, zones))
	}
	ep.Conditions.Ready = pick(r, []*bool{nil, new(true), new(true), new(true), new(false)})
	ep.Conditions.Terminating = pick(r, []*bool{nil, new(false), new(true)})
	ep.Conditions.Serving = pick(r, []*bool{nil, new(true), new(false)})
	return ep
}

// Malform spoils some of the objects in ways that an API server's validation would refuse, but a fake, a bug or another
// version may let through. The package documentation says what becomes of each.
func Malform(r *rand.Rand, objs *Objects) {
	text := func() string {
		return pick(
			r,
			[]string{
				"",
				".",
				"-",
				"_",
				"*",
				"UPPER",
				"under_score",
				"a.b",
				"-a",
				"a-",
				"a b",
				"ü",
				"\\",
				"\x00",
				`a\.b`,
				strings.Repeat("m", 64),
				strings.Repeat("m", 300),
			},
		)
	}
	bad := []string{
		"",
		"10.0.0",
		"010.0.0.1",
		"fe80::1%eth0",
		"::ffff:10.0.0.1",
		"10.1.0.1",
		"2001:db8::1",
		"foo.example.com",
		"0.0.0.0",
		"::",
	}
	for i := range objs.Imports {
		imp := &objs.Imports[i]
		switch r.IntN(8) {
		case 0:
			imp.Name = text()
		case 1:
			imp.Namespace = text()
		case 2:
			imp.Spec.Type = mcsv1beta1.ServiceImportType(text())
		case 3:
			imp.Spec.IPs = append(imp.Spec.IPs, pick(r, bad))
		case 4:
			imp.Spec.Ports = append(imp.Spec.Ports, mcsv1beta1.ServicePort{
				Name: text(), Protocol: corev1.Protocol(text()), Port: pick(r, []int32{0, -1, 65536, 80})})
		}
	}
	for i := range objs.Slices {
		malformSlice(r, &objs.Slices[i], text, bad)
	}
}

func malformSlice(r *rand.Rand, slice *discoveryv1.EndpointSlice, text func() string, bad []string) {
	switch r.IntN(10) {
	case 0:
		slice.Labels = nil
	case 1:
		slice.Labels[mcsv1beta1.LabelSourceCluster] = text()
	case 2:
		slice.AddressType = discoveryv1.AddressType(text())
	case 3:
		name, protocol, number := text(), corev1.Protocol(text()), pick(r, []int32{0, -1, 65536, 80})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number})
	case 4:
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{})
	case 5:
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{})
	}
	for i := range slice.Endpoints {
		ep := &slice.Endpoints[i]
		switch r.IntN(8) {
		case 0:
			ep.Hostname = new(text())
		case 1:
			ep.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: text()}
		case 2:
			ep.Addresses = append(ep.Addresses, pick(r, bad))
		case 3:
			ep.Addresses = nil
		}
	}
}
