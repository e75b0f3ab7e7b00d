// Package ipam measures controllers/decide/ipam by its sizes (SPEC V5), as ratios: what a request, a plan, a repair and a grant cost with
// much in the cluster, beside the same with little; and beside a walk through the range, as the API server's allocator does it.
//
//	go test -run '^$' -bench . ./test/bench/ipam   every figure
//	go test -run TestV5 -v ./test/bench/ipam       the ratios, and whether they are within their bounds
package ipam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

var (
	v4   = corev1.IPv4Protocol
	v6   = corev1.IPv6Protocol
	now  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	both = []corev1.IPFamily{v4, v6}
)

func owner(n int) ipam.Owner { return ipam.Owner{Namespace: "shop", Name: fmt.Sprintf("s%d", n)} }

// ranges are n of each family that do not touch: a cluster that grew a piece at a time.
func ranges(n, bits4, bits6 int) (all []ipam.Range) {
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 6), byte(i << 2), 0})
		b := netip.AddrFrom16([16]byte{0: 0xfd, 6: byte(i >> 8), 7: byte(i)})
		all = append(all, ipam.Range{Prefix: netip.PrefixFrom(a, bits4), Use: ipam.Exclusive}, ipam.Range{Prefix: netip.PrefixFrom(b, bits6), Use: ipam.Exclusive})
	}
	return all
}

// input is a cluster, and what is asked in it.
type input struct {
	Mode   ipam.Mode
	Ranges []ipam.Range
	Held   []ipam.Held
	Wanted []ipam.Wanted
	Now    time.Time
}

func reserve(in input) []ipam.Reservation {
	all, _ := allocator(in).Assign(in.Wanted, in.Now)
	return all
}

// cluster has this many VIPs of each family in this many ranges, and room for more.
func cluster(vips, n int) input {
	in := input{Mode: ipam.ModeExclusive, Ranges: ranges(n, 22, 64), Now: now}
	if n == 1 {
		in.Ranges = []ipam.Range{{Prefix: netip.MustParsePrefix("10.0.0.0/16"), Use: ipam.Exclusive}, {Prefix: netip.MustParsePrefix("fd00::/64"), Use: ipam.Exclusive}}
	}
	for i := range vips {
		in.Wanted = append(in.Wanted, ipam.Wanted{Owner: owner(i), Families: both, Since: now.Add(time.Duration(i) * time.Second)})
	}
	for _, r := range reserve(in) {
		in.Held = append(in.Held, ipam.Held{Owner: r.Owner, Address: r.Address})
	}
	return in
}

func allocator(in input) *ipam.Allocator {
	a := ipam.NewAllocator(in.Mode, in.Ranges)
	for _, h := range in.Held {
		a.Hold(h)
	}
	return a
}

// request is what one import costs: decided, noted, and dropped again.
func request(in input) func() {
	a := allocator(in)
	var wanted []ipam.Wanted // of different names, so that no cache remembers the search
	for i := range 1024 {
		wanted = append(wanted, ipam.Wanted{Owner: owner(1_000_000 + i), Families: both})
	}
	i := 0
	return func() {
		reserve, _ := a.Assign(wanted[i%1024:i%1024+1], now)
		i++
		for _, r := range reserve {
			a.Hold(ipam.Held{Owner: r.Owner, Address: r.Address})
		}
		for _, r := range reserve {
			a.Drop(ipam.Held{Owner: r.Owner, Address: r.Address})
		}
	}
}

func loop(b *testing.B, name string, op func()) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			op()
		}
	})
}

var sizes = [][2]int{{10, 1}, {1000, 1}, {10000, 1}, {10, 1000}, {1000, 1000}, {10000, 1000}}

func BenchmarkRequest(b *testing.B) {
	for _, s := range sizes {
		loop(b, fmt.Sprintf("%d-vips/%d-ranges", s[0], s[1]), request(cluster(s[0], s[1])))
	}
}

// filled is a /16 with all but one of its addresses held; the one is the farthest from where the search for owner(0) begins.
func filled(left int) (in input, held map[netip.Addr]bool) {
	in = input{Mode: ipam.ModeExclusive, Ranges: []ipam.Range{{Prefix: netip.MustParsePrefix("10.0.0.0/16"), Use: ipam.Exclusive}}, Now: now}
	in.Wanted = []ipam.Wanted{{Owner: owner(0), Families: both[:1]}}
	a := reserve(in)[0].Address
	held = map[netip.Addr]bool{}
	for range 1<<16 - 2 - left {
		in.Held = append(in.Held, ipam.Held{Address: a, Foreign: true})
		held[a] = true
		if a = a.Next(); a == netip.MustParseAddr("10.0.255.255") {
			a = netip.MustParseAddr("10.0.0.1")
		}
	}
	return in, held
}

func search(left int) func() {
	in, _ := filled(left)
	a := allocator(in)
	return func() {
		if reserve, refused := a.Assign(in.Wanted, now); len(reserve)+len(refused) != 1 {
			panic("no answer")
		}
	}
}

// walk is the API server's way: address by address from where the search begins, each looked up.
func walk(left int) func() {
	in, held := filled(left)
	in.Held = nil
	start := reserve(in)[0].Address
	return func() {
		a := start
		for n := 0; held[a] && n < 1<<16; n++ {
			if a = a.Next(); a == netip.MustParseAddr("10.0.255.255") {
				a = netip.MustParseAddr("10.0.0.1")
			}
		}
		if held[a] != (left == 0) {
			panic("not found")
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	loop(b, "empty", search(1<<16-2))
	loop(b, "one-left", search(1))
	loop(b, "full", search(0))
	loop(b, "one-left-by-a-walk", walk(1))
}

// grants is a hub with this many members, a block each and two known ranges each, of whom one asks for another block.
func grants(members int) func(b *testing.B) {
	return func(b *testing.B) {
		in := ipam.Carving{Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, BitsV4: 20}
		for i := range members {
			name := fmt.Sprintf("m%d", i)
			in.Granted = append(in.Granted, ipam.Grant{Member: name, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 4), byte(i << 4), 0}), 20)})
			in.Known = append(in.Known, ipam.Known{Member: name, Prefix: netip.MustParsePrefix("172.16.0.0/16"), For: "pods"},
				ipam.Known{Member: name, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), 0}), 24), For: "services"})
		}
		in.Asks = []ipam.Ask{{Member: "m0", Family: v4, Blocks: 2}}
		b.ReportAllocs()
		for b.Loop() {
			if len(ipam.Carve(in).Grants) != 1 {
				b.Fatal("nothing was granted")
			}
		}
	}
}

func BenchmarkCarve(b *testing.B) {
	for _, members := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("%d-members", members), grants(members))
	}
}

// ratiosOf times operations in turn, and returns what each takes as a multiple of the first: of many short runs the fastest, since what
// else the machine does only adds.
func ratiosOf(runs, each int, ops ...func()) []float64 {
	best := make([]time.Duration, len(ops))
	for range runs {
		for i, op := range ops {
			begin := time.Now()
			for range each {
				op()
			}
			if d := time.Since(begin); best[i] == 0 || d < best[i] {
				best[i] = d
			}
		}
	}
	multiples := make([]float64, len(ops))
	for i := range ops {
		multiples[i] = float64(best[i]) / float64(best[0])
	}
	return multiples
}

// bound leaves room for what larger maps cost the processor's caches, and none for anything that grows with the sizes: those differ by
// a factor of a thousand and more.
const bound = 8

// TestV5ARequestCostsTheSame with much in the cluster as with little.
func TestV5ARequestCostsTheSame(t *testing.T) {
	var ops []func()
	for _, s := range sizes {
		ops = append(ops, request(cluster(s[0], s[1])))
	}
	for i, ratio := range ratiosOf(20, 100, ops...) {
		t.Logf("%5d VIPs in %4d ranges: %.2f × what it costs with %d in %d", sizes[i][0], sizes[i][1], ratio, sizes[0][0], sizes[0][1])
		if ratio > bound {
			t.Errorf("%d VIPs in %d ranges: %.1f ×, want at most %d", sizes[i][0], sizes[i][1], ratio, bound)
		}
	}
}

// TestV5FullIsAsFastAsEmpty: an address is found, or found not to be there, in a /16.
func TestV5FullIsAsFastAsEmpty(t *testing.T) {
	names := []string{"empty", "one address left", "full"}
	for i, ratio := range ratiosOf(20, 200, search(1<<16-2), search(1), search(0)) {
		t.Logf("%s: %.2f × what it costs in an empty one", names[i], ratio)
		if ratio > bound {
			t.Errorf("%s: %.1f ×, want at most %d", names[i], ratio, bound)
		}
	}
	t.Logf("a walk to the one address left: %.0f × the search", ratiosOf(5, 1, search(1), walk(1))[1])
}
