package catalog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// twoByTwo is a Service of two clusters, in two zones each: 10.0.0.1 is a's in z1, .2 a's in z2, .3
// b's in z1, .4 b's in z2. In v6, a has none.
func twoByTwo(t Topology) *Service { return Rebuild(nil, headlessImport(), places(t), t) }

func places(t Topology) []*Slice {
	from := func(cluster string, addrs ...string) *Slice {
		var eps []Endpoint
		for i, text := range addrs {
			eps = append(
				eps,
				Endpoint{Addr: addr(text), Host: fmt.Sprintf("h%d", i+1), Zone: t.Keep(fmt.Sprintf("Z%d", i+1))},
			)
		}
		return NewSlice(text(addrs), cluster, pg, eps)
	}
	return []*Slice{
		from("a", "10.0.0.1", "10.0.0.2"),
		from("b", "10.0.0.3", "10.0.0.4"),
		from("b", "2001:db8::3", "2001:db8::4"),
	}
}

func text(addrs []string) string { return strings.Join(addrs, " ") }

func TestT2OrderAndSubset(t *testing.T) {
	for _, tc := range []struct {
		name     string
		topology Topology
		v4, v6   string // last octets
	}{
		{"none", Topology{}, "1 3 2 4", "3 4"},
		{"local", Topology{Cluster: "b"}, "3 4 1 2", "3 4"},
		{"local subset", Topology{Cluster: "b", ClusterOnly: true}, "3 4", "3 4"},
		{"local subset that has none of the family", Topology{Cluster: "a", ClusterOnly: true}, "1 2", ""},
		{"local subset that has nobody", Topology{Cluster: "c", ClusterOnly: true}, "1 3 2 4", "3 4"},
		{"zone", Topology{Zone: "z2"}, "2 4 1 3", "4 3"},
		{"zone subset", Topology{Zone: "z2", ZoneOnly: true}, "2 4", "4"},
		{"zone subset that has nobody", Topology{Zone: "z3", ZoneOnly: true}, "1 3 2 4", "3 4"},
		{"local, then zone", Topology{Cluster: "b", Zone: "z2"}, "4 3 2 1", "4 3"},
		{"local subset, then zone", Topology{Cluster: "b", ClusterOnly: true, Zone: "z2"}, "4 3", "4 3"},
		{
			"local subset that has nobody, then zone", Topology{Cluster: "c", ClusterOnly: true, Zone: "z2"},
			"2 4 1 3", "4 3",
		},
		{"local, then zone subset", Topology{Cluster: "b", Zone: "z2", ZoneOnly: true}, "4 2", "4"},
		{
			"local, then zone subset that has nobody", Topology{Cluster: "b", Zone: "z3", ZoneOnly: true},
			"3 4 1 2", "3 4",
		},
		{"both subset", Topology{Cluster: "b", ClusterOnly: true, Zone: "z1", ZoneOnly: true}, "3", "3"},
		{
			"both subset, nobody local", Topology{Cluster: "c", ClusterOnly: true, Zone: "z1", ZoneOnly: true},
			"1 3", "3",
		},
		{
			"both subset, nobody in the zone",
			Topology{Cluster: "b", ClusterOnly: true, Zone: "z3", ZoneOnly: true}, "3 4", "3 4",
		},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "_"), func(t *testing.T) {
			s := twoByTwo(tc.topology)
			if got := last(ips(s.Self(V4, Window{}).Addrs, 4)); got != tc.v4 {
				t.Errorf("A: %s, want %s", got, tc.v4)
			}
			if got := last(ips(s.Self(V6, Window{}).Addrs, 16)); got != tc.v6 {
				t.Errorf("AAAA: %s, want %s", got, tc.v6)
			}
			hosts := map[string]string{"1": "h1.a", "2": "h2.a", "3": "h1.b", "4": "h2.b"}
			var targets []string
			for _, n := range strings.Fields(tc.v4) {
				targets = append(targets, "5432 "+hosts[n])
			}
			if got := srv(s.Targets("", "", Window{})); !slices.Equal(got, targets) {
				t.Errorf("SRV: %v, want %v", got, targets)
			}
			all := Window{Everyone: true}
			if a, targets := ips(
				s.Self(V4, all).Addrs,
				4,
			), srv(s.Targets("", "", all)); len(a) != 4 ||
				len(targets) != 4 {
				t.Errorf("everyone is %v and %v", a, targets)
			}
			if got := s.Host("h1.a", V4, Window{}); got.Outcome != Success {
				t.Error("a host that is preferred less lost its name (N9)")
			}
		})
	}
}

func last(addrs []string) string {
	for i, a := range addrs {
		addrs[i] = a[len(a)-1:]
	}
	return text(addrs)
}

// A question for a port is a question for those who have it: nobody preferred has pg, so the others are answered.
func TestT2SubsetIsOfThoseWhoHaveThePort(t *testing.T) {
	topology := Topology{Cluster: "b", ClusterOnly: true}
	web := []Port{{Name: "web", Number: 80}}
	s := Rebuild(nil, headlessImport(), []*Slice{
		NewSlice("1", "a", append(web, pg...), []Endpoint{{Addr: addr("10.0.0.1"), Host: "x"}}),
		NewSlice("2", "b", web, []Endpoint{{Addr: addr("10.0.0.2"), Host: "x"}}),
	}, topology)
	for port, want := range map[string]string{"web": "80 x.b", "pg": "5432 x.a", "": "80 x.b"} {
		proto := "tcp"
		if port == "" {
			proto = ""
		}
		if got := srv(s.Targets(port, proto, Window{})); !slices.Equal(got, []string{want}) {
			t.Errorf("port %q: %v, want %s", port, got, want)
		}
	}
}

// A host with endpoints in and out of the zone is one name. It stands where its best endpoint does, as one target of
// SRV
// with all ports and addresses.
func TestT2HostInTwoZonesIsOneTarget(t *testing.T) {
	topology := Topology{Zone: "z1"}
	web := []Port{{Name: "web", Number: 80}}
	s := Rebuild(nil, headlessImport(), []*Slice{
		NewSlice(
			"1",
			"a",
			web,
			[]Endpoint{{Addr: addr("10.0.0.1"), Host: "x"}, {Addr: addr("10.0.0.2"), Host: "y"}},
		),
		NewSlice(
			"2",
			"a",
			pg,
			[]Endpoint{
				{Addr: addr("10.0.0.3"), Host: "x", Zone: "z1"},
				{Addr: addr("10.0.0.1"), Host: "x", Zone: "z1"},
			},
		),
	}, topology)
	if got, want := srv(s.Targets("", "", Window{})), []string{
		"5432 x.a",
		"80 x.a",
		"80 y.a",
	}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("SRV: %v, want %v", got, want)
	}
	if got := last(ips(s.Self(V4, Window{}).Addrs, 4)); got != "3 1 2" {
		t.Errorf("A: %s, want 3 1 2", got)
	}
	if got := last(ips(s.Host("x.a", V4, Window{}).Addrs, 4)); got != "3 1" {
		t.Errorf("x.a: %s, want 3 1", got)
	}
	w := s.Targets("", "", Window{})
	w.Next()
	if v4, _ := w.Addrs(); last(ips(v4, 4)) != "3 1" {
		t.Errorf("glue of x.a: %v", ips(v4, 4))
	}
	var hosts []string
	for label, cluster := range s.Hosts() {
		hosts = append(hosts, label+"."+cluster)
	}
	if want := []string{"x.a", "y.a"}; !slices.Equal(hosts, want) {
		t.Errorf("names of hosts: %v, want %v", hosts, want)
	}
}

func TestNamesOfZones(t *testing.T) {
	s := twoByTwo(Topology{Zonal: true, Cluster: "b"})
	for _, tc := range []struct {
		zone string
		pin  bool
		want string // of A
	}{
		{"z1", true, "3 1"},
		{"z1", false, "3 1"},
		{"z3", true, "nobody"},
		{"z3", false, "3 4 1 2"},
		{"", true, "nobody"},
		{"", false, "nobody"},
	} {
		in, exists := s.Zone(tc.zone, tc.pin)
		got := "nobody"
		if in != nil {
			got = last(ips(in.Self(V4, Window{}).Addrs, 4))
		}
		if !exists || got != tc.want {
			t.Errorf("zone %q, pin %v: %v %s, want %s", tc.zone, tc.pin, exists, got, tc.want)
		}
	}
	web := Rebuild(nil, &Import{Name: "web", Namespace: "test", Type: ClusterSetIP}, nil, Topology{Zonal: true})
	for name, s := range map[string]*Service{
		"without the option": twoByTwo(Topology{Zone: "z1"}), "ClusterSetIP": web,
	} {
		if _, exists := s.Zone("z1", true); exists || s.Proto("zone").Outcome != NameError {
			t.Errorf("%s: names of zones exist", name)
		}
	}
	if s.Proto("zone").Outcome != NoData {
		t.Error("_zone stands above names and does not exist (N4)")
	}
}

// What no answer depends on is not kept: it would cost memory.
func TestKeepsNoMoreOfZonesThanIsAskedFor(t *testing.T) {
	for _, tc := range []struct {
		topology   Topology
		zone, want string
	}{
		{Topology{}, "z1", ""},
		{Topology{Cluster: "a"}, "z1", ""},
		{Topology{Zone: "z1"}, "Z1", "z1"},
		{Topology{Zone: "z1"}, "z2", ""},
		{Topology{Zone: "z1", Zonal: true}, "Z2", "z2"}, {Topology{Zonal: true}, "", ""},
	} {
		if got := tc.topology.Keep(tc.zone); got != tc.want {
			t.Errorf("%+v keeps %q of %q, want %q", tc.topology, got, tc.zone, tc.want)
		}
	}
}

// M4: an endpoint that goes to another zone alters answers, where they depend on it.
func TestT2ChangeOfZoneIsAChange(t *testing.T) {
	at := func(zone string, topology Topology) *Service {
		ep := Endpoint{Addr: addr("10.0.0.1"), Host: "x", Zone: topology.Keep(zone)}
		return Rebuild(nil, headlessImport(), []*Slice{NewSlice("1", "a", pg, []Endpoint{ep})}, topology)
	}
	for _, tc := range []struct {
		topology Topology
		from, to string
		same     bool
	}{
		{Topology{}, "z1", "z2", true},
		{Topology{Zone: "z1"}, "z1", "z2", false},
		{Topology{Zone: "z1"}, "z2", "z3", true},
		{Topology{Zonal: true}, "z2", "z3", false},
		{Topology{Zonal: true}, "z2", "Z2", true},
		{Topology{Zonal: true}, "z2", "", false},
	} {
		if at(tc.from, tc.topology).Same(at(tc.to, tc.topology)) != tc.same {
			t.Errorf("%+v: from %s to %s: want the same: %v", tc.topology, tc.from, tc.to, tc.same)
		}
	}
}

// TestN12NobodyIsLeftOutForANameThatIsTooLong: such a host is no target.
func TestN12NobodyIsLeftOutForANameThatIsTooLong(t *testing.T) {
	topology := Topology{Zone: "z1", ZoneOnly: true}
	s := Rebuild(nil, headlessImport(), []*Slice{NewSlice("s", "a", pg, []Endpoint{
		{Addr: addr("10.0.0.1"), Host: strings.Repeat("h", 63), Zone: topology.Keep("z1")},
		{Addr: addr("10.0.0.2"), Host: "h2", Zone: topology.Keep("z2")},
	})}, topology)
	w := s.Targets("pg", "tcp", Window{})
	w.Below(strings.Repeat("x", 200))
	if got := srv(w); !slices.Equal(got, []string{"5432 h2.a"}) {
		t.Error(got)
	}
}

func randomTopology(r *rand.Rand) Topology {
	return Topology{
		Cluster: []string{"", "c0", "c1", "c9"}[r.IntN(4)], ClusterOnly: r.IntN(2) == 0,
		Zone: []string{"", "z0", "z1", "z9"}[r.IntN(4)], ZoneOnly: r.IntN(2) == 0, Zonal: r.IntN(3) == 0,
	}
}

// T2: whatever the objects, what is answered is what everyone's answer begins with, by rank, and is
// nobody only where everyone is.
func TestT2AnswersBeginWithThePreferred(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		topology := randomTopology(r)
		hostRanks, ranks := map[string]uint8{}, map[string]uint8{} // the best, and that of the best host of an address
		better := func(of map[string]uint8, key string, rank uint8) {
			if old, known := of[key]; !known || rank < old {
				of[key] = rank
			}
		}
		hosts := map[string][]string{} // addresses
		var from []*Slice
		for i := range 1 + r.IntN(6) {
			cluster := fmt.Sprintf("c%d", r.IntN(3))
			var eps []Endpoint
			for range 1 + r.IntN(6) {
				e := Endpoint{
					Addr: addr(fmt.Sprintf("10.0.0.%d", r.IntN(12))),
					Host: fmt.Sprintf("h%d", r.IntN(8)),
					Zone: topology.Keep(fmt.Sprintf("z%d", r.IntN(3))),
				}
				eps = append(eps, e)
				host := e.Host + "." + cluster
				hosts[host] = append(hosts[host], e.Addr.String())
				better(hostRanks, host, topology.rank(cluster, e.Zone))
			}
			from = append(from, NewSlice(fmt.Sprint(i), cluster, pg, eps))
		}
		for host, addrs := range hosts {
			for _, a := range addrs {
				better(ranks, a, hostRanks[host])
			}
		}
		s := Rebuild(nil, headlessImport(), from, topology)
		all, answered := s.Self(V4, Window{Everyone: true}).Addrs, s.Self(V4, Window{}).Addrs
		if answered == "" || !strings.HasPrefix(all, answered) || len(all) != 4*len(ranks) {
			t.Fatalf("%+v: answered %v of %v", topology, ips(answered, 4), ips(all, 4))
		}
		if !slices.IsSortedFunc(ips(all, 4), func(a, b string) int { return int(ranks[a]) - int(ranks[b]) }) {
			t.Fatalf("%+v: %v has ranks %v", topology, ips(all, 4), ranks)
		}
		if !topology.ClusterOnly && !topology.ZoneOnly && len(answered) != len(all) {
			t.Fatalf("%+v leaves out some", topology)
		}
	}
}
