package catalog

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func headlessImport() *Import {
	return &Import{Name: "db", Namespace: "test", Type: Headless}
}

var pg = []Port{{Name: "pg", Proto: "TCP", Number: 5432}}

func ips(packed string, width int) (out []string) {
	for ; packed != ""; packed = packed[width:] {
		a, _ := netip.AddrFromSlice([]byte(packed[:width]))
		out = append(out, a.String())
	}
	return out
}

func srv(t Walk) (out []string) {
	for w := t; w.Next(); {
		label, cluster := w.Host()
		out = append(out, fmt.Sprintf("%d %s.%s", w.Number(), label, cluster))
	}
	return out
}

func TestN6EveryReadyEndpointOnce(t *testing.T) {
	s := Build(headlessImport(), []*Slice{
		NewSlice(
			"2",
			"b",
			pg,
			[]Endpoint{{Addr: addr("10.0.0.1"), Host: "x"}, {Addr: addr("10.0.0.2"), Host: "y"}},
		),
		NewSlice(
			"1",
			"a",
			pg,
			[]Endpoint{{Addr: addr("10.0.0.1"), Host: "x"}, {Addr: addr("10.0.0.1"), Host: "x"}},
		),
		NewSlice("3", "a", pg, []Endpoint{{Addr: addr("2001:db8::1"), Host: "x"}}),
	})
	if got, want := ips(s.Self(V4, Window{}).Addrs, 4), []string{"10.0.0.1", "10.0.0.2"}; !slices.Equal(got, want) {
		t.Errorf("A: %v, want %v", got, want)
	}
	if got, want := ips(s.Self(V6, Window{}).Addrs, 16), []string{"2001:db8::1"}; !slices.Equal(got, want) {
		t.Errorf("AAAA: %v, want %v", got, want)
	}
	if got, want := ips(s.Host("x.b", V4, Window{}).Addrs, 4), []string{"10.0.0.1"}; !slices.Equal(got, want) {
		t.Errorf("x.b: %v, want %v", got, want)
	}
	if got, want := srv(s.Targets("", "", Window{})), []string{
		"5432 x.b",
		"5432 x.a",
		"5432 y.b",
	}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("SRV: %v, want %v", got, want)
	}
}

func TestN6NoReadyEndpointIsNoService(t *testing.T) {
	if s := Build(headlessImport(), []*Slice{NewSlice("1", "a", pg, nil)}); s != nil {
		t.Errorf("a Headless Service without ready endpoint answers: %+v", s)
	}
}

func TestN14UnionOfOneAndTwoLabelIDs(t *testing.T) {
	s := Build(headlessImport(), []*Slice{
		NewSlice(
			"1",
			"eu",
			pg,
			[]Endpoint{{Addr: addr("10.0.0.1"), Host: "x"}, {Addr: addr("10.0.0.2"), Host: "h"}},
		),
		NewSlice("2", "x.eu", pg, []Endpoint{{Addr: addr("10.0.0.3"), Host: "h"}}),
	})
	for name, want := range map[string]Outcome{
		"eu": NoData, "x.eu": Success, "h.eu": Success, "h.x.eu": Success, "y.eu": NameError,
		"x.x.eu": NameError, "h.x": NameError,
	} {
		if got := s.Host(name, V4, Window{}).Outcome; got != want {
			t.Errorf("%s: outcome %d, want %d", name, got, want)
		}
	}
}

func TestN15DashedAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.0.20": "10-1-0-20", "2001:db8:2::": "2001-db8-2--0", "::1": "0--1", "::": "0--0",
		"2001:db8::5": "2001-db8--5",
	} {
		if got := dashed(addr(in)); got != want || !IsLabel(got) {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestN8DistinctNumbersOfNamedPorts(t *testing.T) {
	ports := []Port{
		{"tcp", "TCP", 42},
		{"udp", "UDP", 42},
		{"", "TCP", 43},
		{"web", "", 80},
		{"web", "tcp", 80},
		{"a.b", "TCP", 44},
		{"zero", "TCP", 0},
	}
	s := Build(
		&Import{
			Name:      "web",
			Namespace: "test",
			Type:      ClusterSetIP,
			Ports:     ports,
			IPs:       []netip.Addr{addr("10.0.0.1")},
		},
		nil,
	)
	if got, want := srv(s.Targets("", "", Window{})), []string{"42 .", "80 .", "44 ."}; !slices.Equal(got, want) {
		t.Errorf("SRV: %v, want %v", got, want)
	}
	if got := s.Port("web", "tcp", SRV).Outcome; got != Success {
		t.Errorf("an empty protocol is TCP: outcome %d", got)
	}
	if got := s.Port("web", "tcp", V4).Outcome; got != NoData {
		t.Errorf("other types of a port's name: outcome %d, want NoData", got)
	}
	if s.Proto("sctp").Outcome != NameError || s.Proto("udp").Outcome != NoData {
		t.Error("_proto exists exactly where a named port has it")
	}
}

// M6: the same subset for all types within an epoch, every endpoint in its turn, never more than the limit.
func TestM6WindowRotates(t *testing.T) {
	var four, six []Endpoint
	for i := range 25 {
		host := fmt.Sprintf("p%d", i)
		four = append(four, Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Host: host})
		a := netip.MustParseAddr("2001:db8::").As16()
		a[15] = byte(i)
		six = append(six, Endpoint{Addr: netip.AddrFrom16(a), Host: host})
	}
	s := Build(headlessImport(), []*Slice{NewSlice("1", "a", pg, four), NewSlice("2", "a", pg, six)})
	seen := map[string]bool{}
	for epoch := range uint64(9) {
		w := Window{Max: 3, Epoch: epoch}
		a4, a6 := ips(s.Self(V4, w).Addrs, 4), ips(s.Self(V6, w).Addrs, 16)
		if len(a4) != 3 || len(a6) != 3 {
			t.Fatalf("epoch %d: %d and %d addresses, want 3 of each", epoch, len(a4), len(a6))
		}
		var fromSRV []string
		for it := s.Targets("", "", w); it.Next(); {
			v4, _ := it.Addrs()
			fromSRV = append(fromSRV, ips(v4, 4)...)
		}
		if !slices.Equal(a4, fromSRV) {
			t.Errorf("epoch %d: A %v, targets of SRV %v", epoch, a4, fromSRV)
		}
		for _, a := range a4 {
			seen[a] = true
		}
	}
	if len(seen) != 25 {
		t.Errorf("9 turns of 3 showed %d of 25 endpoints", len(seen))
	}
}

func TestM6OneHostOfManyAddresses(t *testing.T) {
	var eps []Endpoint
	for i := range 10 {
		eps = append(eps, Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Host: "twin"})
	}
	s := Build(headlessImport(), []*Slice{NewSlice("1", "a", pg, eps)})
	for epoch := range uint64(20) {
		w := Window{Max: 4, Epoch: epoch}
		self, host := s.Self(V4, w).Addrs, s.Host("twin.a", V4, w).Addrs
		if len(self) != 16 || self != host {
			t.Fatalf("epoch %d: %v, by host name %v", epoch, ips(self, 4), ips(host, 4))
		}
	}
}

// Whatever the order of slices, what Build makes is the same, and inputs are not changed.
func TestBuildDoesNotDependOnOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var in []*Slice
		topology := randomTopology(r)
		for i := range 1 + r.IntN(6) {
			var eps []Endpoint
			for range r.IntN(8) {
				eps = append(
					eps,
					Endpoint{
						Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(6))}),
						Host: fmt.Sprintf("h%d", r.IntN(5)),
						Zone: topology.Keep(fmt.Sprintf("z%d", r.IntN(3))),
					},
				)
			}
			in = append(in, NewSlice(fmt.Sprint(i), fmt.Sprintf("c%d", r.IntN(3)), pg, eps))
		}
		a := Rebuild(nil, headlessImport(), in, topology)
		shuffled := slices.Clone(in)
		r.Shuffle(len(shuffled), reflect.Swapper(shuffled))
		if b := Rebuild(nil, headlessImport(), shuffled, topology); !a.Same(b) {
			t.Fatalf("order of slices matters: %v and %v", a, b)
		}
	}
}

// What is taken from the Service before a change is what Build would make from the start.
func TestRebuildIsBuild(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var topology Topology
	random := func(i int) *Slice {
		var eps []Endpoint
		six := r.IntN(3) == 0
		for range r.IntN(6) {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(6))})
			if six {
				a = netip.AddrFrom16([16]byte{0x20, 1, 15: byte(r.IntN(6))})
			}
			eps = append(
				eps,
				Endpoint{
					Addr: a,
					Host: []string{"", "h1", "h2", "h3", "no.label"}[r.IntN(5)],
					Zone: topology.Keep(fmt.Sprintf("z%d", r.IntN(3))),
				},
			)
		}
		ports := []Port{{Name: []string{"pg", "web"}[r.IntN(2)], Number: uint16(1 + r.IntN(2))}}
		return NewSlice(fmt.Sprint(i), fmt.Sprintf("c%d", i%3), ports, eps)
	}
	for range 300 {
		topology = randomTopology(r)
		from := make([]*Slice, 7)
		for i := range from {
			from[i] = random(i)
		}
		var s *Service
		for range 10 {
			i := r.IntN(len(from))
			from[i] = random(i)
			s = Rebuild(s, headlessImport(), from, topology)
			built := Rebuild(nil, headlessImport(), from, topology)
			if !s.Same(built) || !built.Same(s) {
				t.Fatalf("rebuilt %+v, built %+v", s, built)
			}
			if s == nil {
				continue
			}
			sameAnswers(t, s, built, uint64(r.IntN(50)))
			for _, zone := range []string{"z0", "z1", "z2"} {
				a, _ := s.Zone(zone, true)
				b, _ := built.Zone(zone, true)
				if (a == nil) != (b == nil) {
					t.Fatalf("rebuilt %+v, built %+v in zone %s", a, b, zone)
				}
				if a != nil {
					sameAnswers(t, a, b, uint64(r.IntN(50)))
				}
			}
		}
	}
}

func TestReplacedSlicesLeaveMemory(t *testing.T) {
	slice := func(cluster string, i int) *Slice {
		return NewSlice(cluster, cluster, pg, []Endpoint{{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}})
	}
	from := []*Slice{slice("a", 0)}
	for i := range 10 {
		from = append(from, slice(fmt.Sprint("b", i), i))
	}
	s := Rebuild(nil, headlessImport(), from, Topology{})
	var replaced []weak.Pointer[Slice]
	for i := range from { // a cluster's source must not keep the slices that another one had then
		replaced = append(replaced, weak.Make(from[0]), weak.Make(from[i]))
		from[0] = slice("a", 20+i)
		s = Rebuild(s, headlessImport(), from, Topology{})
		from[i] = slice(from[i].cluster, 40+i)
		s = Rebuild(s, headlessImport(), from, Topology{})
	}
	runtime.GC()
	for i, p := range replaced {
		if p.Value() != nil {
			t.Errorf("slice %d was replaced and is still in memory", i)
		}
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(from)
}

func sameAnswers(t *testing.T, s, built *Service, epoch uint64) {
	t.Helper()
	for _, w := range []Window{{}, {Everyone: true}, {Max: 2, Epoch: epoch}} {
		for _, family := range []Wanted{V4, V6} {
			if got, want := s.Self(family, w), built.Self(family, w); got != want {
				t.Fatalf("rebuilt %v, built %v", got, want)
			}
		}
		if got, want := srv(s.Targets("", "", w)), srv(built.Targets("", "", w)); !slices.Equal(got, want) {
			t.Fatalf("rebuilt %v, built %v", got, want)
		}
	}
}

// TestBuildMergesPortsOnce: hosts that stand in the same slices, each with ports of its own, share
// the unions of them.
func TestBuildMergesPortsOnce(t *testing.T) {
	allocations := func(hosts int) float64 {
		var from []*Slice
		for s := range 8 {
			eps := make([]Endpoint, hosts)
			for i := range eps {
				eps[i] = Endpoint{
					Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
					Host: fmt.Sprintf("h%d", i),
				}
			}
			var ports []Port
			for p := range 30 {
				ports = append(ports, Port{Name: fmt.Sprintf("p%d", p), Number: uint16(1 + s*10 + p)})
			}
			from = append(from, NewSlice(fmt.Sprint(s), "a", ports, eps))
		}
		if s := Build(headlessImport(), from); len(srv(s.Targets("p0", "tcp", Window{}))) != hosts*8 {
			t.Errorf("%d hosts: ports were lost", hosts)
		}
		return testing.AllocsPerRun(5, func() { Build(headlessImport(), from) })
	}
	if few, many := allocations(10), allocations(500); many > 4*few {
		t.Errorf("%.0f allocations for 10 hosts, %.0f for 500", few, many)
	}
}

// TestN8PortsAreNotCopiedPerSlice: a host in many slices, each with ports of its own, has all of
// their numbers, and a build takes as much per endpoint as with few slices: neither one host nor
// hosts that all stand in other slices copy the lists each time.
func TestN8PortsAreNotCopiedPerSlice(t *testing.T) {
	const ports = 30
	topology := Topology{Zone: "z1"}
	for name, hosts := range map[string]func(slice, n int) []Endpoint{
		"one host": func(slice, n int) []Endpoint { return []Endpoint{{Host: "h"}} },
		"one host in two zones": func(slice, n int) []Endpoint {
			return []Endpoint{{Host: "h", Zone: topology.Keep(fmt.Sprintf("z%d", 1+2*slice/n))}}
		},
		"hosts that start in other slices": func(slice, n int) (eps []Endpoint) {
			for i := range slice + 1 { // h0 is in all of them
				eps = append(eps, Endpoint{Host: fmt.Sprintf("h%d", i)})
			}
			return eps
		},
	} {
		perEndpoint := func(n int) uint64 {
			var from []*Slice
			endpoints := 0
			for s := range n {
				eps := hosts(s, n)
				for i := range eps {
					eps[i].Addr = netip.AddrFrom4([4]byte{10, byte(s), 0, byte(i)})
				}
				endpoints += len(eps)
				var list []Port
				for p := range ports {
					list = append(
						list,
						Port{Name: strings.Repeat("x", 58) + fmt.Sprint(p), Number: uint16(1 + s*ports + p)},
					)
				}
				from = append(from, NewSlice(fmt.Sprintf("%03d", s), "a", list, eps))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s := Rebuild(nil, headlessImport(), from, topology)
			runtime.ReadMemStats(&after)
			walk := s.Targets(strings.Repeat("x", 58)+"0", "tcp", Window{})
			var numbers []uint16
			for walk.Next() {
				if label, _ := walk.Host(); label == "h" || label == "h0" {
					numbers = append(numbers, walk.Number())
				}
			}
			slices.Sort(numbers) // the near zone is first
			for i := range n {
				if len(numbers) != n || numbers[i] != uint16(1+i*ports) {
					t.Fatalf("%s: %d slices: numbers %v", name, n, numbers)
				}
			}
			return (after.TotalAlloc - before.TotalAlloc) / uint64(endpoints)
		}
		perEndpoint(10) // the builder's own memory is kept
		if few, many := perEndpoint(10), perEndpoint(80); many > 2*few+200 {
			t.Errorf("%s: %d octets per endpoint in 10 slices, %d in 80", name, few, many)
		}
	}
}

func TestIndexHoldsManyServices(t *testing.T) {
	x := new(Table[*Service])
	const n = 5000
	for i := range n {
		imp := &Import{Name: fmt.Sprintf("s%d", i), Namespace: fmt.Sprintf("n%d", i%7), Type: ClusterSetIP}
		x.Set(imp.Name+"."+imp.Namespace, Build(imp, nil), uint64(i)+1)
	}
	for i := range n {
		if key := fmt.Sprintf("s%d.n%d", i, i%7); x.Service(key) == nil || x.Service(key).Key() != key {
			t.Fatalf("%s is lost", key)
		}
	}
	if serial, all := x.Snapshot(); len(all) != n || serial != n {
		t.Errorf("snapshot of %d Services, serial %d", len(all), serial)
	}
}
