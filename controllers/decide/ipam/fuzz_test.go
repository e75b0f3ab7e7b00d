package ipam

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// FuzzAllocator: whatever is held and dropped, no address is given that is held, or outside of its range, and what was dropped is free.
func FuzzAllocator(f *testing.F) {
	f.Add([]byte{10, 0, 0, 0}, uint8(29), []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 200, 201})
	f.Add([]byte{0xfd, 15: 0}, uint8(124), []byte{0, 255, 1, 2, 3})
	f.Add([]byte{255, 255, 255, 255}, uint8(0), []byte{1})
	f.Add(netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").AsSlice(), uint8(0), []byte{1, 2})
	f.Fuzz(func(t *testing.T, base []byte, length uint8, steps []byte) {
		first, ok := netip.AddrFromSlice(base)
		if !ok || first.Is4In6() || int(length) > first.BitLen() {
			t.Skip("no prefix, or one that the API server refuses")
		}
		r := Range{Prefix: netip.PrefixFrom(first, int(length)), Use: Exclusive}
		a := NewAllocator(ModeExclusive, []Range{r})
		held := map[netip.Addr]Held{}
		for _, step := range steps {
			h := Held{Owner: owner(int(step & 127)), Address: neighbour(r.Prefix, step&127)}
			if step >= 128 {
				a.Drop(h)
				delete(held, h.Address)
			} else if h.Address.IsValid() {
				a.Hold(h)
				held[h.Address] = h
			}
			asked := Wanted{Owner: owner(1000), Families: []corev1.IPFamily{family(first)}}
			reserve, refused := a.Assign([]Wanted{asked}, now)
			if len(reserve)+len(refused) != 1 {
				t.Fatalf("one request, answers %v %v", reserve, refused)
			}
			for _, got := range reserve {
				if _, taken := held[got.Address]; taken || !r.Prefix.Contains(got.Address) || got.Address == r.Prefix.Masked().Addr() {
					t.Fatalf("%s out of %s, held %v", got.Address, r.Prefix, held)
				}
			}
			for range refused {
				hosts := first.BitLen() - int(length)
				if room := 1<<min(hosts, 20) - 1; len(held) < room-1 && hosts > 1 {
					t.Fatalf("refused though only %d of %s are held", len(held), r.Prefix)
				}
			}
		}
		for _, h := range held {
			a.Drop(h)
		}
		if len(a.claims)+len(a.owned)+len(a.pool(family(first)).fresh.taken.words) > 0 {
			t.Fatalf("something is left of nothing: %+v", a)
		}
	})
}

// neighbour is the nth address behind the prefix' own.
func neighbour(p netip.Prefix, n byte) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}
