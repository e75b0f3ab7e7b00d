package catalog

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// seed is that of every table of hosts; tables live and die with the process.
var seed = maphash.MakeSeed()

// ready are the slices with an endpoint, in the order of (cluster, name) that makes answers stable (M2).
func ready(all []*Slice) []*Slice {
	out := make([]*Slice, 0, len(all))
	for _, s := range all {
		if s.Len() > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *Slice) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.name, b.name))
	})
	return out
}

// join makes the headless of slices that ready gave. A cluster whose slices are those of old, nil for none, is taken from there:
// most changes are those of one slice.
func join(from []*Slice, old *headless) *headless {
	h := new(headless)
	if old != nil {
		h.parts = make([]*part, 0, len(old.parts))
	}
	for len(from) > 0 {
		n := 1
		for n < len(from) && from[n].cluster == from[0].cluster {
			n++
		}
		p := old.made(from[:n])
		if p == nil {
			p = newPart(from[:n])
		}
		h.parts, from = append(h.parts, p), from[n:]
		h.ring += len(p.hosts) - 1
	}
	h.all4 = distinct(h.parts, 4, func(p *part) string { return p.v4 })
	h.all6 = distinct(h.parts, 16, func(p *part) string { return p.v6 })
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

// distinct joins the addresses of all parts, each once.
func distinct(parts []*part, width int, of func(*part) string) string {
	all := of(parts[0])
	if len(parts) > 1 {
		each := make([]string, len(parts))
		for i, p := range parts {
			each[i] = of(p)
		}
		all = strings.Join(each, "")
	}
	b := builders.Get().(*builder)
	defer builders.Put(b)
	b.seen = cleared(b.seen, tableSize(len(all)/width))
	var once strings.Builder
	next := 0
	for off := 0; off < len(all); off += width {
		if !b.first(all, off, width) {
			once.WriteString(all[next:off])
			next = off + width
		}
	}
	if next == 0 {
		return all
	}
	once.WriteString(all[next:])
	return strings.Clone(once.String())
}

// first tells whether the address at an offset stands nowhere before, and takes note of it.
func (b *builder) first(all string, off, width int) bool {
	addr, mask := all[off:][:width], uint32(len(b.seen)-1)
	i := hashAddr(addr) & mask
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

// hashAddr hashes a packed address.
func hashAddr(addr string) uint32 {
	var h uint64
	for ; len(addr) >= 4; addr = addr[4:] {
		h = (h ^ (uint64(addr[0])<<24 | uint64(addr[1])<<16 | uint64(addr[2])<<8 | uint64(addr[3]))) * 0x9e3779b97f4a7c15
	}
	return uint32(h >> 32)
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
