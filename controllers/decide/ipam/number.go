package ipam

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
)

// number is an address as a number of 128 bits; IPv4 is mapped (RFC 4291 2.5.5.2), so that there is one arithmetic.
type number struct{ high, low uint64 }

func numberOf(a netip.Addr) number {
	b := a.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (n number) addr() netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.high)
	binary.BigEndian.PutUint64(b[8:], n.low)
	return netip.AddrFrom16(b).Unmap()
}

func (n number) cmp(m number) int {
	if c := cmp.Compare(n.high, m.high); c != 0 {
		return c
	}
	return cmp.Compare(n.low, m.low)
}

func (n number) plus(x uint64) number {
	low, carry := bits.Add64(n.low, x, 0)
	return number{n.high + carry, low}
}

func (n number) minus(m number) number {
	low, borrow := bits.Sub64(n.low, m.low, 0)
	high, _ := bits.Sub64(n.high, m.high, borrow)
	return number{high, low}
}

// without returns n with the bits of m cleared.
func (n number) without(m number) number { return number{n.high &^ m.high, n.low &^ m.low} }

// right returns n shifted right.
func (n number) right(by int) number {
	if by >= 64 {
		return number{0, n.high >> (by - 64)}
	}
	return number{n.high >> by, n.low>>by | n.high<<(64-by)} // a shift by 64 gives 0
}

func (n number) or(m number) number { return number{n.high | m.high, n.low | m.low} }

// hosts returns a mask of the host bits of p.
func hosts(p netip.Prefix) number {
	n := p.Addr().BitLen() - p.Bits()
	if n > 64 {
		return number{^uint64(0) >> (128 - n), ^uint64(0)}
	}
	return number{0, ^uint64(0) >> (64 - n)} // a shift by 64 gives 0
}

// span is a run of addresses, ends included.
type span struct{ first, last number }

// whole returns the span of all addresses of p.
func whole(p netip.Prefix) span {
	p = p.Masked()
	first := numberOf(p.Addr())
	return span{first, first.or(hosts(p))}
}

// usable returns the addresses of p that the API server allocates: all but the network address and, for IPv4, the
// broadcast address. It returns false if there are none.
func usable(p netip.Prefix) (s span, ok bool) {
	all := whole(p)
	if all.first == all.last {
		return s, false
	}
	s = span{all.first.plus(1), all.last}
	if p.Addr().Is4() {
		s.last = s.last.minus(number{0, 1})
	}
	return s, s.first.cmp(s.last) <= 0
}

// merge sorts spans and joins those that overlap or touch (V1: overlapping ranges are one pool). It reuses the
// slice.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return a.first.cmp(b.first) })
	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && touches(merged[n-1], s) {
			if merged[n-1].last.cmp(s.last) < 0 {
				merged[n-1].last = s.last
			}
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// touches reports whether b overlaps or directly follows a. b must not begin before a.
func touches(a, b span) bool {
	return b.first.cmp(a.last) <= 0 || b.first.minus(a.last) == number{0, 1}
}

// reaching returns the index of the first of these merged spans that ends at or after n.
func reaching(spans []span, n number) int {
	i, _ := slices.BinarySearchFunc(spans, n, func(s span, n number) int { return s.last.cmp(n) })
	return i
}

func contains(spans []span, n number) bool {
	i := reaching(spans, n)
	return i < len(spans) && spans[i].first.cmp(n) <= 0
}
