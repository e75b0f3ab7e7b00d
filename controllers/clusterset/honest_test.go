package clusterset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestE3WhatALaterKubernetesAdds has no effect, here and at an exporter that does not know it; that one says so. Two
// names of one thing are one thing.
func TestE3WhatALaterKubernetesAdds(t *testing.T) {
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = "shop", "web"
	svc.Spec = corev1.ServiceSpec{
		IPFamilies: []corev1.IPFamily{"IPv4"}, SessionAffinity: "Cookie",
		InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicy("Rack")),
		TrafficDistribution:   ptr.To("PreferNextPlanet"),
		Ports: []corev1.ServicePort{
			{Name: "quick", Protocol: "QUIC", Port: 443}, {Name: "http", Protocol: "TCP", Port: 80},
		},
	}
	spec, leftOut := RecordOf(Place{Cluster: "a"}, &exportSpec{}, &mcsv1beta1.ServiceExport{}, svc)
	if message := fmt.Sprint(errors.Join(leftOut...)); len(leftOut) != 4 ||
		spec.SessionAffinity != "None" || spec.InternalTrafficPolicy != nil || spec.TrafficDistribution != nil ||
		len(spec.Ports) != 1 || spec.Ports[0].Name != "http" {
		t.Errorf("%s: %+v", message, spec)
	}
	newer := exportRecord()
	newer.Spec.SessionAffinity, newer.Spec.InternalTrafficPolicy = "Cookie", svc.Spec.InternalTrafficPolicy
	newer.Spec.TrafficDistribution = svc.Spec.TrafficDistribution
	newer.Spec.Ports = append(newer.Spec.Ports, hubv1alpha1.ServicePort{Name: "quick", Protocol: "QUIC", Port: 443})
	e, err := ParseExport(newer)
	if err != nil || e.SessionAffinity != "None" || e.InternalTrafficPolicy != "Cluster" ||
		e.TrafficDistribution != "" || len(e.Ports) != 1 {
		t.Errorf("%v, %+v", err, e)
	}
	for _, name := range []string{"PreferClose", "PreferSameZone"} {
		newer.Spec.TrafficDistribution = &name
		if e, err := ParseExport(newer); err != nil || e.TrafficDistribution != "PreferClose" {
			t.Errorf("%v: %s is %q", err, name, e.TrafficDistribution)
		}
	}
}

// TestE3TheLastPublishedPortsStay where a Service has more than a record holds, also if an edit puts others before
// them, or renames one.
func TestE3TheLastPublishedPortsStay(t *testing.T) {
	svc := &corev1.Service{}
	for n := range int32(300) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", n), Port: 1000 + n})
	}
	last := &exportSpec{Ports: []hubv1alpha1.ServicePort{{Name: "p299"}, {Name: "was", Protocol: "TCP", Port: 1150}}}
	spec, leftOut := RecordOf(Place{Cluster: "a"}, last, &mcsv1beta1.ServiceExport{}, svc)
	if len(spec.Ports) != 256 || spec.Ports[0].Name != "p150" || spec.Ports[1].Name != "p299" ||
		spec.Ports[2].Name != "p0" || len(leftOut) != 1 || !strings.Contains(leftOut[0].Error(), "300 are too many") {
		t.Errorf("%v, %d ports: %v", leftOut, len(spec.Ports), spec.Ports[:3])
	}
	slice := &discoveryv1.EndpointSlice{AddressType: "IPv4"}
	for _, p := range svc.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port})
	}
	group, leftOut, ok := GroupOf(spec.Ports, nil, slice)
	last299 := func(p hubv1alpha1.EndpointPort) bool { return p.Port == 1299 }
	if !ok || len(group.Ports) != 256 || len(leftOut) != 44 || !slices.ContainsFunc(group.Ports, last299) {
		t.Errorf("%v, %d ports", leftOut, len(group.Ports))
	}
}

// TestE3WhatOfASliceCannotBeImported is left out alone, and named; the rest is what importers accept.
func TestE3WhatOfASliceCannotBeImported(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*discoveryv1.EndpointSlice)
		says   string // "": nothing is left out
		ports  int    // of 2
		want   string // addresses
	}{
		"nothing": {func(*discoveryv1.EndpointSlice) {}, "", 2, "10.0.0.1 10.0.0.2"},
		"port 0": {func(s *discoveryv1.EndpointSlice) {
			s.Ports[0].Port = ptr.To[int32](0)
		}, "1..65535", 1, "10.0.0.1 10.0.0.2"},
		"a negative port": {func(s *discoveryv1.EndpointSlice) {
			s.Ports[0].Port = ptr.To[int32](-1)
		}, "1..65535", 1, "10.0.0.1 10.0.0.2"},
		"no port number": {func(s *discoveryv1.EndpointSlice) {
			s.Ports[0].Port = nil
		}, "", 2, "10.0.0.1 10.0.0.2"},
		"a new protocol": {func(s *discoveryv1.EndpointSlice) {
			s.Ports[0].Protocol = ptr.To(corev1.Protocol("QUIC"))
		}, "its protocol is not TCP", 1, "10.0.0.1 10.0.0.2"},
		"a long zone": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Zone = ptr.To(strings.Repeat("z", 64))
		}, "10.0.0.1: its zone", 2, "10.0.0.1 10.0.0.2"},
		"class E": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses[0] = "240.10.0.5"
		}, "", 2, "240.10.0.5 10.0.0.2"},
		"an address of old": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses[0] = "010.0.0.01"
		}, "", 2, "10.0.0.1 10.0.0.2"},
		"IPv4 in IPv6": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses[0] = "::ffff:10.0.0.1"
		}, "", 2, "10.0.0.1 10.0.0.2"},
		"a metadata service": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses[0] = "100.100.100.200"
		}, "100.100.100.200", 2, "10.0.0.2"},
		"two addresses": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses = []string{"10.0.0.1", "10.0.0.9"}
		}, "10.0.0.1: 1 more", 2, "10.0.0.1 10.0.0.2"},
		"NAT64": {func(s *discoveryv1.EndpointSlice) {
			s.AddressType = "IPv6"
			s.Endpoints[0].Addresses[0], s.Endpoints[1].Addresses[0] = "64:ff9b::cb00:7105", "64:ff9b::a9fe:a9fe"
		}, "64:ff9b::a9fe:a9fe", 2, "64:ff9b::cb00:7105"},
		"what is no Pod": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: strings.Repeat("x", 300)}
		}, "", 2, "10.0.0.1 10.0.0.2"},
	} {
		slice := &discoveryv1.EndpointSlice{AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("a"), Port: ptr.To[int32](80)}, {Name: ptr.To("b"), Port: ptr.To[int32](81)},
		}}
		slice.Name, slice.Namespace = "web-1", "shop"
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}, {Addresses: []string{"10.0.0.2"}}}
		c.change(slice)
		group, leftOut, ok := GroupOf([]hubv1alpha1.ServicePort{
			{Name: "a", Protocol: "TCP", Port: 80}, {Name: "b", Protocol: "TCP", Port: 81},
		}, nil, slice)
		var got []string
		for _, e := range group.Endpoints {
			got = append(got, e.Address)
			if len(e.Zone) > 63 || len(e.PodName) > 253 {
				t.Errorf("%s: the hub refuses %+v", name, e)
			}
		}
		message := fmt.Sprint(errors.Join(leftOut...))
		if !ok || strings.Join(got, " ") != c.want || len(group.Ports) != c.ports ||
			(len(leftOut) > 0) != (c.says != "") || !strings.Contains(message, c.says) {
			t.Errorf("%s: %s, %q, %d ports", name, message, got, len(group.Ports))
		}
		parsed, refused, err := ParseGroup(&group, nil)
		if err != nil || len(refused) > 0 || len(parsed.Ports) != c.ports {
			t.Errorf("%s: importers: %v, %q, %+v", name, err, refused, parsed.Ports)
		}
	}
	slice := &discoveryv1.EndpointSlice{AddressType: "FQDN"}
	if _, leftOut, ok := GroupOf(nil, nil, slice); ok || len(leftOut) != 1 {
		t.Errorf("FQDN: %v", leftOut)
	}
}

// TestE3APortThatTheServiceLacks: a slice made from the selector keeps the number that its target had last, since its
// port is about to be renamed. That of a user is named, whatever another slice of the Service had.
func TestE3APortThatTheServiceLacks(t *testing.T) {
	ports := []hubv1alpha1.ServicePort{{Name: "grpc", Protocol: "TCP", Port: 80}}
	was := []hubv1alpha1.EndpointPort{{Protocol: "TCP", Port: 80, Target: new(int32(8080))}}
	for manager, named := range map[string]int{
		"endpointslice-controller.k8s.io": 0, "": 1,
		"endpointslicemirroring-controller.k8s.io": 1, // a user wrote the Endpoints
	} {
		slice := &discoveryv1.EndpointSlice{AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Port: new(int32(8080))},
		}}
		slice.Labels = map[string]string{discoveryv1.LabelManagedBy: manager}
		group, leftOut, ok := GroupOf(ports, was, slice)
		if !ok || len(leftOut) != named || len(group.Ports) != 1-named {
			t.Errorf("managed by %q: %v, %v", manager, group.Ports, leftOut)
		}
	}
}
