package endpoints

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

func to[T any](v T) *T { return &v }

// keyOfPort returns the port of the exporting Services of these tests that has a name.
func keyOfPort(name string) clusterset.PortKey {
	numbers := map[string]int32{"": 80, "http": 80, "web": 80, "x": 80, "admin": 81, "z": 82, "lost": 53}
	return clusterset.PortKey{Protocol: corev1.ProtocolTCP, Number: numbers[name]}
}

// keyed returns names, from those of an exporter's ports to those of the import's, as conflict.Merged has them.
func keyed(names map[string]string) map[clusterset.PortKey]string {
	out := map[clusterset.PortKey]string{}
	for name, to := range names {
		out[keyOfPort(name)] = to
	}
	return out
}

func port(name string, target int32) hubv1alpha1.EndpointPort {
	key := keyOfPort(name)
	return hubv1alpha1.EndpointPort{Protocol: key.Protocol, Port: key.Number, Target: &target}
}

func source(cluster string, ports ...string) *Source {
	src := &Source{Name: SourceName(0, cluster), ClusterID: cluster, Revision: 7}
	src.AddressType = discoveryv1.AddressTypeIPv4
	for i, name := range ports {
		src.Ports = append(src.Ports, port(name, int32(8080+i)))
	}
	src.Endpoints = []hubv1alpha1.Endpoint{
		{Address: "10.0.0.1", Ready: to(true), Hostname: "web-0", PodName: "web-0", Zone: "z1"},
		{Address: "10.0.0.2", Ready: to(false)},
	}
	return src
}

func imported(m *conflict.Merged) *Import {
	return &Import{Namespace: "shop", Name: "web", UID: "u", Derived: "derived-x", Manager: "m", Merged: m}
}

func merged(names map[string]string, ports ...clusterset.Port) *conflict.Merged {
	return &conflict.Merged{
		Clusters: []string{"a"},
		Type:     mcsv1beta1.ClusterSetIP,
		Ports:    ports,
		Names:    map[string]map[clusterset.PortKey]string{"a": keyed(names)},
	}
}

func portNames(s *discoveryv1.EndpointSlice) (out []string) {
	for _, p := range s.Ports {
		out = append(out, *p.Name)
	}
	return out
}

// TestC4OnlyExposedPorts: a port that lost carries no traffic of that cluster; one that is the same port under
// another name does.
func TestC4OnlyExposedPorts(t *testing.T) {
	m := merged(
		map[string]string{"web": "http"},
		clusterset.Port{Name: "http", Protocol: "TCP", Number: 80},
		clusterset.Port{Name: "dns", Protocol: "TCP", Number: 53},
	)
	got := Desired(source("a", "web", "lost"), imported(m))
	names := portNames(got)
	if !slices.Equal(names, []string{"http"}) || *got.Ports[0].Port != 8080 {
		t.Errorf("ports %v, want port 80 at 8080", names)
	}
}

// TestC9KubeProxysNameStays: whatever a port is called, kube-proxy finds it under the name that the derived Service
// always has for it, also where another port bears just that name.
func TestC9KubeProxysNameStays(t *testing.T) {
	for _, name := range []string{"web", "http", "", "tcp-80", "clusterset-tcp-80", "clusterset-tcp-81"} {
		m := merged(map[string]string{"http": name}, clusterset.Port{Name: name, Protocol: "TCP", Number: 80})
		all := written(source("a", "http"), imported(m), false)
		if names := portNames(all[0]); !slices.Equal(names, []string{name}) {
			t.Errorf("ports %q of the imported slice, want the import's name %q", names, name)
		}
		if names := portNames(all[1]); !slices.Equal(names, []string{"clusterset-tcp-80"}) {
			t.Errorf("ports %q of the traffic slice of %q", names, name)
		}
	}
}

// TestC4APortLeadsToThatPort of each cluster that exposes it, and to no other: kube-proxy joins by name and protocol,
// and users may choose names that look like those of the derived Service.
func TestC4APortLeadsToThatPort(t *testing.T) {
	for seed := range uint64(5_000) {
		chance := rand.New(rand.NewPCG(seed, 0))
		names := []string{"", "x", "y", "tcp-80", "clusterset-tcp-80", "clusterset-tcp-81", "clusterset-udp-80"}
		var exports []clusterset.Export
		for _, cluster := range []string{"a", "b", "c"}[:1+chance.IntN(3)] {
			e := clusterset.Export{
				Cluster: cluster, Type: mcsv1beta1.ClusterSetIP, Families: []corev1.IPFamily{corev1.IPv4Protocol},
			}
			for range 1 + chance.IntN(3) {
				p := clusterset.Port{
					Name:     names[chance.IntN(len(names))],
					Protocol: []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[chance.IntN(2)],
					Number:   []int32{80, 81, 8080}[chance.IntN(3)],
				}
				if !slices.ContainsFunc(e.Ports, func(q clusterset.Port) bool {
					return p.Name == "" || q.Name == "" || p.Name == q.Name ||
						p.Protocol == q.Protocol && p.Number == q.Number
				}) {
					e.Ports = append(e.Ports, p)
				}
			}
			exports = append(exports, e)
		}
		m, _ := conflict.Merge(exports)
		vip := derived.Service("shop", "web", "m", &m, m.Families, nil, nil).Spec.Ports
		for _, e := range exports {
			src := source(e.Cluster)
			want := map[clusterset.Port]int32{} // by protocol and number
			for i, p := range e.Ports {
				target := int32(10_000 + i)
				src.Ports = append(
					src.Ports,
					hubv1alpha1.EndpointPort{Protocol: p.Protocol, Port: p.Number, Target: &target},
				)
				want[clusterset.Port{Protocol: p.Protocol, Number: p.Number}] = target
			}
			slice := written(src, imported(&m), false)[1]
			for _, p := range vip {
				leads := int32(0)
				for _, q := range slice.Ports {
					if *q.Name == p.Name && *q.Protocol == p.Protocol {
						leads = *q.Port
					}
				}
				if leads != want[clusterset.Port{Protocol: p.Protocol, Number: p.Port}] {
					t.Fatalf("seed %d: %d/%s leads to %d of cluster %s; exports %+v; merged %+v",
						seed, p.Port, p.Protocol, leads, e.Cluster, exports, m.Ports)
				}
			}
		}
	}
}

// TestS1WhatAnImportedSliceBears: labels, owner, and nothing of the source's nodes.
func TestS1WhatAnImportedSliceBears(t *testing.T) {
	m := merged(map[string]string{"http": "http"}, clusterset.Port{Name: "http", Protocol: "TCP", Number: 80})
	s := Desired(source("a", "http"), imported(m))
	for k, v := range map[string]string{mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: "a",
		discoveryv1.LabelServiceName: "derived-x", discoveryv1.LabelManagedBy: "m"} {
		if s.Labels[k] != v {
			t.Errorf("label %s is %q, want %q", k, s.Labels[k], v)
		}
	}
	if o := s.OwnerReferences; len(o) != 1 || o[0].UID != "u" || o[0].Controller == nil || *o[0].Controller {
		t.Errorf("owners %v", o)
	}
	e := s.Endpoints[0]
	if e.NodeName != nil || e.TargetRef != nil || *e.Zone != "z1" || *e.Hostname != "web-0" || e.Hints != nil ||
		s.Endpoints[1].Zone != nil {
		t.Errorf("endpoints %+v", s.Endpoints)
	}
}

// TestRememberedIsTheSource: from the slice alone, the same slice comes out again, so that an absent record changes
// nothing.
func TestRememberedIsTheSource(t *testing.T) {
	m := merged(map[string]string{"http": "web"}, clusterset.Port{Name: "web", Protocol: "TCP", Number: 80})
	s := Desired(source("a", "http"), imported(m))
	src, err := Restore(s)
	if err != nil {
		t.Fatal(err)
	}
	if again := Desired(&src, imported(m)); !equality.Semantic.DeepEqual(s, again) {
		t.Errorf("%+v\nis not\n%+v", again, s)
	}
	if src.Revision != 7 || src.Created != 0 {
		t.Errorf("revision %d of %d", src.Revision, src.Created)
	}
	delete(s.Annotations, AnnotationPorts)
	if _, err := Restore(s); err == nil {
		t.Error("a slice without its ports is remembered")
	}
}

// TestOlder: a restored hub shows an older revision, of the same record or of the one before it; a record created
// later is newer, and so is a higher revision.
func TestOlder(t *testing.T) {
	src := Source{Created: 100}
	src.Revision = 7
	for _, c := range []struct {
		created, revision int64
		older             bool
	}{{100, 7, false}, {100, 8, false}, {100, 6, true}, {99, 7, true}, {99, 9, false}, {101, 1, false}} {
		if src.NewerThan(c.created, c.revision) != c.older {
			t.Errorf("created %d, revision %d: older %v", c.created, c.revision, !c.older)
		}
	}
}

// TestPlanSettles: for random slices, applying the plan gives what is desired, additions take nothing away, a second
// plan is empty, and nothing that came in was changed.
func TestPlanSettles(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		draw := func() (out []*discoveryv1.EndpointSlice) {
			for _, cluster := range []string{"a", "b", "c"} {
				if r.IntN(3) == 0 {
					continue
				}
				names := map[string]string{"x": []string{"x", "y"}[r.IntN(2)], "z": "z"}
				m := &conflict.Merged{
					Type:  mcsv1beta1.ClusterSetIP,
					Names: map[string]map[clusterset.PortKey]string{cluster: keyed(names)},
				}
				out = append(out, Desired(source(cluster, []string{"x", "z"}[:r.IntN(3)]...), imported(m)))
			}
			return out
		}
		desired, existing := draw(), draw()
		before := []*discoveryv1.EndpointSlice{}
		for _, s := range slices.Concat(desired, existing) {
			before = append(before, s.DeepCopy())
		}
		first := Plan(WithPorts(desired, existing), existing)
		for _, u := range first.Update {
			i := slices.IndexFunc(existing, func(e *discoveryv1.EndpointSlice) bool { return e.Name == u.Name })
			if removesPort(existing[i], u) {
				t.Fatalf("seed %d: adding takes a name away: %+v", seed, u)
			}
		}
		first.Shrink, first.Delete = nil, nil
		state := apply(existing, first)
		state = apply(state, Plan(desired, state))
		if c := Plan(desired, state); len(c.Create)+len(c.Update)+len(c.Shrink)+len(c.Delete) > 0 {
			t.Fatalf("seed %d: not settled: %+v", seed, c)
		}
		if len(state) != len(desired) {
			t.Fatalf("seed %d: %d slices, want %d", seed, len(state), len(desired))
		}
		for i, s := range slices.Concat(desired, existing) {
			if !equality.Semantic.DeepEqual(s, before[i]) {
				t.Fatalf("seed %d: %s was changed", seed, s.Name)
			}
		}
	}
}

func apply(existing []*discoveryv1.EndpointSlice, c Changes) []*discoveryv1.EndpointSlice {
	by := map[string]*discoveryv1.EndpointSlice{}
	for _, s := range slices.Concat(existing) {
		by[s.Name] = s
	}
	for _, s := range c.Delete {
		delete(by, s.Name)
	}
	for _, s := range slices.Concat(c.Create, c.Update, c.Shrink) {
		by[s.Name] = s
	}
	var out []*discoveryv1.EndpointSlice
	for _, s := range by {
		out = append(out, s)
	}
	return out
}

// TestC9WhatMovesStaysAlone: of slices without a source only those endpoints stay that others are to have and have
// not yet.
func TestC9WhatMovesStaysAlone(t *testing.T) {
	slice := func(name string, addresses ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{}
		s.Name = name
		for _, a := range addresses {
			s.Endpoints = append(
				s.Endpoints,
				discoveryv1.Endpoint{
					Addresses:  []string{a},
					Conditions: discoveryv1.EndpointConditions{Ready: to(a != "10.0.0.9")},
				},
			)
		}
		return s
	}
	desired := []*discoveryv1.EndpointSlice{slice("there", "10.0.0.1"), slice("new", "10.0.0.2", "10.0.0.3")}
	c := Plan(desired, []*discoveryv1.EndpointSlice{
		slice("there", "10.0.0.1"),
		slice("whole", "10.0.0.3"),
		slice("part", "10.0.0.2", "10.0.0.8", "10.0.0.9"),
		slice("arrived", "10.0.0.1"),
		slice("dead", "10.0.0.7"),
	})
	var deleted []string
	for _, e := range c.Delete {
		deleted = append(deleted, e.Name)
	}
	if !slices.Equal(deleted, []string{"arrived", "dead"}) || len(c.Update) != 0 || len(c.Shrink) != 1 ||
		c.Shrink[0].Name != "part" || len(c.Shrink[0].Endpoints) != 1 ||
		c.Shrink[0].Endpoints[0].Addresses[0] != "10.0.0.2" {
		t.Errorf("deleted %v, updated %+v, left %+v", deleted, c.Update, c.Shrink)
	}
}

func hasAddress(slice *discoveryv1.EndpointSlice, address string) bool {
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == address })
}

// TestC9UpdatesThatLoseComeLast: of two slices that change in one pass, the one that gets endpoints goes before the
// one that loses them.
func TestC9UpdatesThatLoseComeLast(t *testing.T) {
	ready := func(name string, addresses ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
		s.Name = name
		for _, a := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
		}
		return s
	}
	c := Plan(
		[]*discoveryv1.EndpointSlice{ready("a"), ready("b", "10.0.0.2")},
		[]*discoveryv1.EndpointSlice{ready("a", "10.0.0.1"), ready("b")},
	)
	if len(c.Update) != 2 || c.Update[0].Name != "b" || c.Update[1].Name != "a" {
		t.Errorf("%+v", c.Update)
	}
	both := func(desired, existing []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
		t.Helper()
		c := Plan(desired, existing)
		if len(c.Update) != 2 {
			t.Fatalf("%+v", c)
		}
		slices.SortFunc(c.Update, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
		return c.Update
	}
	// Two slices exchange an endpoint, ready or not: neither leaves its slice before it is in the other one.
	for _, is := range []bool{true, false} {
		existing := []*discoveryv1.EndpointSlice{ready("a", "10.0.0.1", "10.0.0.3"), ready("b", "10.0.0.2")}
		desired := []*discoveryv1.EndpointSlice{ready("a", "10.0.0.2"), ready("b", "10.0.0.1")}
		for _, s := range slices.Concat(existing, desired) {
			for i := range s.Endpoints {
				s.Endpoints[i].Conditions.Ready = &is
			}
		}
		first := both(desired, existing)
		exchanges := func(s *discoveryv1.EndpointSlice) bool {
			return len(s.Endpoints) == 2 && hasAddress(s, "10.0.0.1") && hasAddress(s, "10.0.0.2")
		}
		if !exchanges(first[0]) || !exchanges(first[1]) || len(desired[0].Endpoints) != 1 {
			t.Errorf("ready %v: an exchange begins with %+v and %+v", is, first[0].Endpoints, first[1].Endpoints)
		}
		if second := both(desired, first); len(second[0].Endpoints) != 1 || len(second[1].Endpoints) != 1 {
			t.Errorf("ready %v: and ends with %+v and %+v", is, second[0].Endpoints, second[1].Endpoints)
		}
	}
	// An address is ready in one slice and not in the other one. Both change places.
	unready := func(name, address string) *discoveryv1.EndpointSlice {
		s := ready(name, address)
		s.Endpoints[0].Conditions.Ready = to(false)
		return s
	}
	for i, s := range both(
		[]*discoveryv1.EndpointSlice{ready("a", "10.0.0.1"), unready("b", "10.0.0.1")},
		[]*discoveryv1.EndpointSlice{unready("a", "10.0.0.1"), ready("b", "10.0.0.1")},
	) {
		if len(backends(s)) != 2 {
			t.Errorf("slice %d is %+v before the other one is written", i, s.Endpoints)
		}
	}
	// So do two Pods of the network of one host, which share its address.
	named := func(name, hostname string) *discoveryv1.EndpointSlice {
		s := ready(name, "10.0.0.1")
		s.Endpoints[0].Hostname = &hostname
		return s
	}
	for i, s := range both(
		[]*discoveryv1.EndpointSlice{named("a", "db-1"), named("b", "db-0")},
		[]*discoveryv1.EndpointSlice{named("a", "db-0"), named("b", "db-1")},
	) {
		if len(s.Endpoints) != 2 {
			t.Errorf("slice %d is %+v before the other one is written", i, s.Endpoints)
		}
	}
	port := func(s *discoveryv1.EndpointSlice, protocol corev1.Protocol) *discoveryv1.EndpointSlice {
		s.Ports = []discoveryv1.EndpointPort{{Name: to("tcp-81"), Protocol: &protocol}}
		return s
	}
	c = Plan(
		[]*discoveryv1.EndpointSlice{port(ready("a"), corev1.ProtocolUDP), port(ready("b"), corev1.ProtocolTCP)},
		[]*discoveryv1.EndpointSlice{port(ready("a"), corev1.ProtocolTCP), ready("b")},
	)
	if len(c.Update) != 2 || c.Update[0].Name != "b" || c.Update[1].Name != "a" {
		t.Errorf("a port that is of another protocol from now on: %+v", c.Update)
	}
}

// TestC6TrafficDistribution: kube-proxy honours hints only if each ready endpoint has them. So an endpoint that has no
// zone or no node gets one that no client is in, and a zone that is no label value never reaches the API server.
func TestC6TrafficDistribution(t *testing.T) {
	m := merged(map[string]string{"": ""}, clusterset.Port{Protocol: corev1.ProtocolTCP, Number: 80})
	own := source("a", "")
	own.Native = []discoveryv1.Endpoint{
		{Addresses: []string{"10.0.0.1"}, NodeName: to("node-1"), Zone: to("z")},
		{Addresses: []string{"10.0.0.2"}, Zone: to(strings.Repeat("z", 64))},
	}
	for distribution, want := range map[string][2][]string{ // hints of own endpoints, and of another cluster's
		"":               {{" ", " "}, {" ", " "}},
		"PreferClose":    {{"z ", elsewhere + " "}, {"z1 ", elsewhere + " "}},
		"PreferSameNode": {{"z node-1", elsewhere + " " + elsewhere}, {"z1 " + elsewhere, elsewhere + " " + elsewhere}},
	} {
		m.TrafficDistribution = distribution
		for i, src := range []*Source{own, source("a", "")} {
			var got []string
			for _, e := range Desired(src, imported(m)).Endpoints {
				zone, node := "", ""
				if e.Hints != nil && len(e.Hints.ForZones) > 0 {
					zone = e.Hints.ForZones[0].Name
				}
				if e.Hints != nil && len(e.Hints.ForNodes) > 0 {
					node = e.Hints.ForNodes[0].Name
				}
				got = append(got, zone+" "+node)
			}
			if !slices.Equal(got, want[i]) {
				t.Errorf("%q: hints %q, want %q", distribution, got, want[i])
			}
		}
	}
}
