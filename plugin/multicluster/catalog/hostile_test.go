package catalog

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cheapest returns the least CPU time of a few runs of f. With the race detector, which takes ten times as long, it
// returns 0, and the test looks for races only.
func cheapest(f func()) time.Duration {
	if raceEnabled {
		f()
		return 0
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := time.Hour
	for range 7 {
		start := threadTime()
		f()
		least = min(least, threadTime()-start)
	}
	return least
}

func threadTime() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Nano())
}

// cut walks over the first n targets, which is what fits into a reply.
func cut(s *Service, name, proto string, n int) (targets int) {
	for w := s.Targets(name, proto, Window{Turn: 7}); targets < n && w.Next(); targets++ {
		w.Addrs()
	}
	return targets
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
		return cheapest(func() {
			for range 20 {
				n++
				from[n] = one(n, "other")
				s = Rebuild(s, headlessImport(), from, Topology{})
			}
		})
	}
	few, many := change(500), change(4000)
	if t.Logf("500 clusters %v, 4,000 %v", few, many); many > 24*few {
		t.Errorf("20 changes among 500 clusters take %v, among 4,000 %v", few, many)
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
		walk := s.Targets("pg", "tcp", w)
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

// TestAWalkRemembersNumbersInOnePlace: every second host has several lists of ports.
func TestAWalkRemembersNumbersInOnePlace(t *testing.T) {
	var one, several []Endpoint
	for i := range 100 {
		one = append(one, Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Host: fmt.Sprint(i)})
		several = append(several, Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), Host: fmt.Sprint(i)})
	}
	s := Build(headlessImport(), []*Slice{
		NewSlice("s", "one", pg, one), NewSlice("s", "several", pg, several),
		NewSlice("t", "several", []Port{pg[0], {Name: "web", Number: 80}}, several),
	})
	targets := 0
	if n := testing.AllocsPerRun(10, func() { targets = cut(s, "", "", 1000) }); n > 2 || targets != 300 {
		t.Errorf("a walk over %d targets takes %v allocations", targets, n)
	}
}

// TestN8PortsHaveABound: an import of 40,000 ports of one name. Those that do not count cost nothing.
func TestN8PortsHaveABound(t *testing.T) {
	ports := make([]Port, 40000)
	for i := range ports {
		ports[i] = Port{Name: "p", Number: uint16(i + 1)}
	}
	packed := noPorts
	all := testing.AllocsPerRun(10, func() { packed = PackPorts(ports) })
	if few := testing.AllocsPerRun(10, func() { PackPorts(ports[:1024]) }); all > 2*few {
		t.Errorf("40,000 ports take %v allocations, 1,024 take %v", all, few)
	}
	if n := len(packed.numbersOf(portName{"p", "tcp"})) / 2; n != 1024 {
		t.Errorf("%d ports count, want 1,024", n)
	}
}
