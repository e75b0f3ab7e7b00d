package catalog

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hostileSlices are what an exporter within the hub's limits can publish for one Service: slices of
// 1,000 endpoints and 256 ports, names of 63 octets, a zone for each endpoint. Each slice has ports
// of its own. Only the last one has the port "rare".
func hostileSlices(slices int) []*Slice {
	long := strings.Repeat("x", 55)
	all := make([]*Slice, slices)
	for i := range all {
		all[i] = hostileSlice(i, i == slices-1, long)
	}
	return all
}

func hostileSlice(i int, last bool, long string) *Slice {
	ports := []Port{{Name: "common", Number: 80}}
	for p := range 254 {
		ports = append(ports, Port{Name: fmt.Sprintf("%s-%02d-%03d", long, i, p), Number: uint16(1000 + i*254 + p)})
	}
	if last {
		ports = append(ports, Port{Name: "rare", Number: 81})
	}
	endpoints := make([]Endpoint, 1000)
	for e := range endpoints {
		endpoints[e] = Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(i), byte(e >> 8), byte(e)}),
			Host: fmt.Sprintf("%s-%02d-%04d", long, i, e), Zone: fmt.Sprintf("zone-%02d-%04d", i, e),
		}
	}
	return NewSlice(fmt.Sprintf("slice-%02d", i), "evil", ports, endpoints)
}

var begin = time.Now()

// fastest is the shortest of a few runs: what is left without the noise of the machine.
func fastest(f func()) time.Duration {
	return least(func() time.Duration { return time.Since(begin) }, f)
}

// cheapest is the least CPU time of a few runs. Its clock is coarse.
func cheapest(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return least(threadTime, f)
}

// least is 0 with the race detector, which takes ten times as long: then the tests look for races only.
func least(clock func() time.Duration, f func()) time.Duration {
	if raceEnabled {
		f()
		return 0
	}
	least := time.Hour
	for range 7 {
		start := clock()
		f()
		least = min(least, clock()-start)
	}
	return least
}

// threadTime is the CPU time of the thread.
func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var used syscall.Rusage
	if err := syscall.Getrusage(thread, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// cut walks over the first n targets, which is what fits into a reply.
func cut(s *Service, name, proto string, n int) (targets int) {
	for w := s.Targets(name, proto, Window{Turn: 7}).Walk(); targets < n && w.Next(); targets++ {
		w.Addrs()
	}
	return targets
}

// TestNoQuestionOfAHostileExportIsExpensive: every kind takes at most 5 ms.
func TestNoQuestionOfAHostileExportIsExpensive(t *testing.T) {
	for name, topology := range map[string]Topology{"plain": {}, "zonal": {Zonal: true, Zone: "zone-00-0000"}} {
		s := Rebuild(nil, headlessImport(), hostileSlices(50), topology)
		const stream = 64 << 10 / 20 // records, at the most
		long := strings.Repeat("x", 55)
		for kind, ask := range map[string]func(){
			"A":              func() { s.Self(V4, Window{Turn: 12345}) },
			"AAAA":           func() { s.Self(V6, Window{}) },
			"SRV":            func() { s.Self(SRV, Window{}); cut(s, "", "", stream) },
			"common port":    func() { s.Port("common", "tcp", SRV, Window{}); cut(s, "common", "tcp", stream) },
			"rare port":      func() { s.Port("rare", "tcp", SRV, Window{}); cut(s, "rare", "tcp", stream) },
			"absent port":    func() { s.Port("absent", "tcp", SRV, Window{}); cut(s, "absent", "tcp", stream) },
			"protocol":       func() { s.Proto("tcp", Window{}) },
			"no protocol":    func() { s.Proto("sctp", Window{}) },
			"host":           func() { s.Host(long+"-49-0999.evil", V4, Window{}) },
			"no host":        func() { s.Host("absent.evil", V4, Window{}) },
			"cluster":        func() { s.Host("evil", V4, Window{}) },
			"no cluster":     func() { s.Host("absent", V4, Window{}) },
			"zone":           func() { s.Zone("zone-00-0000", true) },
			"A in a window":  func() { s.Self(V4, Window{Max: 100, Epoch: 3}) },
			"rare in window": func() { s.Targets("rare", "tcp", Window{Max: 100, Epoch: 3}).Walk() },
		} {
			if took := fastest(ask); took > 5*time.Millisecond {
				t.Errorf("%s: %s takes %v", name, kind, took)
			}
		}
		if n := len(s.headless.zones); topology.Zonal && n > maxZones {
			t.Errorf("%d zones have a name, want at most %d", n, maxZones)
		}
	}
}

// TestRarePortCostsNoMore than twice what a port costs that all endpoints have: of a port that only
// the last of many slices has, the answer is as long as with one slice.
func TestRarePortCostsNoMore(t *testing.T) {
	s := Build(headlessImport(), hostileSlices(50))
	if n := cut(s, "rare", "tcp", 1<<20); n != 1000 {
		t.Fatalf("%d targets of the rare port", n)
	}
	const records = 1000
	common := fastest(func() { s.Port("common", "tcp", SRV, Window{}); cut(s, "common", "tcp", records) })
	rare := fastest(func() { s.Port("rare", "tcp", SRV, Window{}); cut(s, "rare", "tcp", records) })
	if t.Logf("common %v, rare %v", common, rare); rare > 2*common+time.Millisecond {
		t.Errorf("the rare port takes %v, the common one %v", rare, common)
	}
}

// TestOneChangeOfAHostileExportIsCheap: it takes at most 50 ms.
func TestOneChangeOfAHostileExportIsCheap(t *testing.T) {
	for name, topology := range map[string]Topology{"plain": {}, "zonal": {Zonal: true}} {
		from := hostileSlices(50)
		s := Rebuild(nil, headlessImport(), from, topology)
		i := 0
		took := cheapest(func() {
			i++
			from[0] = NewSlice("slice-00", "evil", []Port{{Name: "common", Number: uint16(i)}},
				[]Endpoint{{Addr: netip.AddrFrom4([4]byte{10, 200, 0, byte(i)}), Host: "h"}})
			s = Rebuild(s, headlessImport(), from, topology)
		})
		if t.Logf("%s: %v", name, took); took > 50*time.Millisecond {
			t.Errorf("%s: one change takes %v", name, took)
		}
	}
}

// TestChangesAreLinearInClusters: one of 4,000 clusters changes.
func TestChangesAreLinearInClusters(t *testing.T) {
	change := func(clusters int) time.Duration {
		from := make([]*Slice, clusters)
		one := func(i int, host string) *Slice {
			return NewSlice(
				"s",
				fmt.Sprintf("c%d", i),
				pg,
				[]Endpoint{{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Host: host}},
			)
		}
		for i := range from {
			from[i] = one(i, "h")
		}
		s, n := Build(headlessImport(), from), 0
		return fastest(func() {
			n++
			from[n] = one(n, "other")
			s = Rebuild(s, headlessImport(), from, Topology{})
		})
	}
	few, many := change(500), change(4000)
	if t.Logf("500 clusters %v, 4,000 %v", few, many); many > 24*few+time.Millisecond {
		t.Errorf("a change among 500 clusters takes %v, among 4,000 %v", few, many)
	}
}

// TestTurnsInterleaveClusters: wherever an answer begins, clusters alternate, and every endpoint is
// first in its turn.
func TestTurnsInterleaveClusters(t *testing.T) {
	var from []*Slice
	for c := range 3 {
		var endpoints []Endpoint
		for i := range 100 {
			endpoints = append(
				endpoints,
				Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(c), 0, byte(i)}), Host: fmt.Sprintf("h%d", i)},
			)
		}
		from = append(from, NewSlice("s", fmt.Sprintf("c%d", c), pg, endpoints))
	}
	s := Build(headlessImport(), from)
	firstA, firstSRV := map[string]bool{}, map[string]bool{}
	for turn := range uint64(300) {
		w := Window{Turn: turn}
		addrs, seen := s.Self(V4, w).Addrs, map[byte]int{}
		firstA[addrs[:4]] = true
		for i := range 29 { // what fits into 512 octets
			seen[addrs[4*i+1]]++
		}
		if len(addrs) != 1200 || len(seen) != 3 || seen[0] < 9 || seen[1] < 9 || seen[2] < 9 {
			t.Fatalf("turn %d: %d octets, clusters of the first 29 %v", turn, len(addrs), seen)
		}
		walk := s.Targets("pg", "tcp", w).Walk()
		walk.Next()
		if v4, _ := walk.Addrs(); v4 != addrs[:4] {
			t.Fatalf("turn %d: SRV begins with another endpoint than A", turn)
		}
		label, cluster := walk.Host()
		firstSRV[label+"."+cluster] = true
	}
	if len(firstA) != 300 || len(firstSRV) != 300 {
		t.Errorf("%d addresses and %d targets of 300 were first", len(firstA), len(firstSRV))
	}
	if n := testing.AllocsPerRun(100, func() { s.Self(V4, Window{Turn: 17}) }); n != 0 {
		t.Errorf("a turn of addresses takes %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { cut(s, "pg", "tcp", 300) }); n != 0 {
		t.Errorf("a walk takes %v allocations", n)
	}
}
