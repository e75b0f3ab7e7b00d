package catalog

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// seed is that of every table; tables live and die with the process. Names and addresses are a peer's to choose: with a seed it cannot
// choose those that collide.
var (
	seed   = maphash.MakeSeed()
	factor = [5]uint64{random("0"), random("1"), random("2"), random("3"), random("4")}
)

func random(of string) uint64 { return maphash.String(seed, of) }

// ready are the slices with an endpoint, in the order of (rank, cluster, name) that makes answers stable (M2, T2).
func ready(all []*Slice, t Topology) []*Slice {
	out := make([]*Slice, 0, len(all))
	for _, s := range all {
		for ; s != nil; s = s.more {
			if s.count() > 0 {
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b *Slice) int {
		if a.cluster == b.cluster && a.zone == b.zone { // most
			return cmp.Compare(a.name, b.name)
		}
		return cmp.Or(cmp.Compare(t.rank(a.cluster, a.zone), t.rank(b.cluster, b.zone)),
			cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.name, b.name), cmp.Compare(a.zone, b.zone))
	})
	return out
}

// join makes the headless of slices that ready gave. What a cluster adds is taken from old, nil for none, where its slices are those
// of then: most changes are those of one slice.
func join(from []*Slice, old *headless, t Topology) *headless {
	h := new(headless)
	if old != nil {
		h.parts = make([]*part, 0, len(old.parts))
	}
	for len(from) > 0 {
		rank, n := t.rank(from[0].cluster, from[0].zone), 1
		for n < len(from) && from[n].cluster == from[0].cluster && t.rank(from[n].cluster, from[n].zone) == rank {
			n++
		}
		p := old.made(from[:n])
		if p == nil {
			p = newPart(from[:n], rank)
		}
		h.parts, from = append(h.parts, p), from[n:]
	}
	if old != nil && slices.Equal(h.parts, old.parts) {
		return old
	}
	h.rank(t)
	near := h.parts[:h.tiers[h.near()].parts]
	h.all4, h.near4 = distinct(h.parts, near, 4, func(p *part) string { return p.v4 })
	h.all6, h.near6 = distinct(h.parts, near, 16, func(p *part) string { return p.v6 })
	h.span()
	return h
}

// made is the part of these slices, nil if there is none.
func (h *headless) made(from []*Slice) *part {
	if h != nil {
		for _, p := range h.parts {
			if slices.Equal(p.from, from) {
				return p
			}
		}
	}
	return nil
}

// zonal makes the Services that each zone's endpoints are alone, of slices that ready gave.
func (s *Service) zonal(from []*Slice, old *headless, t Topology) {
	byZone := make(map[string][]*Slice)
	for _, sl := range from {
		if sl.zone != "" {
			byZone[sl.zone] = append(byZone[sl.zone], sl)
		}
	}
	zones := make(map[string]*Service, len(byZone))
	for zone, from := range byZone {
		var before *headless
		if old != nil && old.zones[zone] != nil {
			before = old.zones[zone].headless
		}
		view := *s
		view.headless = join(from, before, t)
		zones[zone] = &view
	}
	s.headless.zones = zones
}

// distinct joins the addresses of all parts, each once, and is how many octets of them those of the first parts take.
func distinct(parts, first []*part, width int, of func(*part) string) (all string, near int) {
	all = of(parts[0])
	if len(parts) > 1 {
		each := make([]string, len(parts))
		for i, p := range parts {
			each[i] = of(p)
		}
		all = strings.Join(each, "")
	}
	for _, p := range first {
		near += len(of(p))
	}
	return once(all, width, near)
}

// once is packed addresses each once, and how many octets those up to an end take then.
func once(all string, width, end int) (distinct string, near int) {
	near = end
	b := builders.Get().(*builder)
	defer builders.Put(b)
	b.seen, b.zero = cleared(b.seen, tableSize(len(all)/width)), false
	var out strings.Builder
	next := 0
	for off := 0; off < len(all); off += width {
		first := false
		if width == 4 {
			first = b.first4(all[off:][:4])
		} else {
			first = b.first(all, off, width)
		}
		if !first {
			out.WriteString(all[next:off])
			next = off + width
			if off < end {
				near -= width
			}
		}
	}
	if next == 0 {
		return all, near
	}
	out.WriteString(all[next:])
	return strings.Clone(out.String()), near
}

// first4 tells whether an IPv4 address is in seen, where it stands itself, for the first time. Most addresses are IPv4, and every change
// of a large Service asks for all of them.
func (b *builder) first4(addr string) bool {
	n, mask := word(addr), uint32(len(b.seen)-1)
	if n == 0 { // is a free place
		first := !b.zero
		b.zero = true
		return first
	}
	i := uint32(uint64(n)*factor[0]>>32) & mask
	for ; b.seen[i] != 0; i = (i + 1) & mask {
		if b.seen[i] == n {
			return false
		}
	}
	b.seen[i] = n
	return true
}

// first tells whether the address at an offset stands nowhere before, and takes note of it.
func (b *builder) first(all string, off, width int) bool {
	addr, mask := all[off:][:width], uint32(len(b.seen)-1)
	i := hashAddr(addr, 0) & mask
	for ; b.seen[i] != 0; i = (i + 1) & mask {
		if all[b.seen[i]-1:][:width] == addr {
			return false
		}
	}
	b.seen[i] = uint32(off) + 1
	return true
}

// cleared is a table of n zeroes, in the memory of the old one if that suffices.
func cleared(old []uint32, n int) []uint32 {
	if cap(old) < n {
		return make([]uint32, n)
	}
	old = old[:n]
	clear(old)
	return old
}

// tableSize is the power of two that holds n entries with a quarter of it free.
func tableSize(n int) int { return 1 << bits.Len(uint(n+n/3)) }

func hashLabel(label string) uint32 { return uint32(maphash.String(seed, label)) }

// hashAddr hashes a packed address and a number that goes with it, 0 for none. Words times random factors, added up, collide by chance alone
// (multilinear hashing), and addresses that follow each other hardly ever.
func hashAddr(addr string, with uint32) uint32 {
	h := uint64(with) * factor[4]
	for i := 0; len(addr) >= 4; i, addr = i+1, addr[4:] {
		h += uint64(word(addr)) * factor[i&3]
	}
	return uint32(h >> 32)
}

// word is the number that four octets are.
func word(b string) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// dashed names an endpoint without hostname by its address (N15). A label may not begin or end in a dash.
func dashed(addr string) string {
	a, _ := netip.AddrFromSlice([]byte(addr))
	s := strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, a.String())
	if s[0] == '-' {
		s = "0" + s
	}
	if s[len(s)-1] == '-' {
		s += "0"
	}
	return s
}
