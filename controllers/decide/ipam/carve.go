package ipam

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Grant is a block that a member owns.
type Grant struct {
	Member string
	Prefix netip.Prefix
}

// Known is a range that a member reports as used for Services or Pods. It may be a ServiceCIDR inside a block of the
// same member.
type Known struct {
	Member string
	Prefix netip.Prefix
	For    string
}

// Ask is the total number of blocks of a family that a member wants.
type Ask struct {
	Member string
	Family corev1.IPFamily
	Blocks int
	Since  time.Time
}

// Carving is the input of Carve.
type Carving struct {
	Pools   []netip.Prefix // of both families, in order of preference
	BitsV4  int            // prefix lengths of new blocks
	BitsV6  int
	Granted []Grant
	Known   []Known
	// Own has the Known ranges by which a member regains a block whose grant the hub has lost.
	Own  map[string][]netip.Prefix
	Asks []Ask
}

// Carved is the result of Carve. Carve only adds: it never shrinks or removes a granted block.
type Carved struct {
	Grants   []Grant
	Refused  []AskRefused
	Overlaps []Overlap
}

// AskRefused is an Ask that cannot be granted now.
type AskRefused struct {
	Member string
	Family corev1.IPFamily
	Err    error
}

// Overlap is a granted block that overlaps a block or range of another member, which became known later or was
// granted by hand.
type Overlap struct {
	Block Grant
	With  Known
}

// useBlock is the value of Known.For for a granted block.
const useBlock = "block"

// Carve grants blocks that overlap neither each other nor any known range, so that each address of a block identifies
// one owner in all members. Lost blocks come first, for members with a range in Own. The first block of every member
// comes before any second one, and older requests before newer ones. A new block is the lowest free one of the first
// pool that has one. Except for the pools, the order of the input does not matter.
func Carve(in Carving) Carved {
	var taken []span
	have := map[Ask]int{}
	for _, g := range in.Granted {
		taken = append(taken, whole(g.Prefix))
		have[Ask{Member: g.Member, Family: Family(g.Prefix.Addr())}]++
	}
	for _, k := range in.Known {
		taken = append(taken, whole(k.Prefix))
	}
	out := Carved{Overlaps: overlaps(in.Granted, in.Known)}
	back := lostBlocks(in)
	all := slices.DeleteFunc(requests(in.Asks, have), func(t request) bool {
		who := Ask{Member: t.Member, Family: t.Family}
		if len(back[who]) == 0 {
			return false
		}
		p := back[who][0]
		back[who] = back[who][1:]
		taken = append(taken, whole(p))
		out.Grants = append(out.Grants, Grant{Member: t.Member, Prefix: p})
		return true
	})
	taken = merge(taken)
	refused := map[Ask]bool{}
	for _, t := range all {
		who := Ask{Member: t.Member, Family: t.Family}
		if refused[who] {
			continue
		}
		p, err := allocate(in.Pools, taken, t.Family, in.length(t.Family))
		if err != nil {
			refused[who] = true
			out.Refused = append(out.Refused, AskRefused{Member: t.Member, Family: t.Family, Err: err})
			continue
		}
		taken = insert(taken, whole(p))
		out.Grants = append(out.Grants, Grant{Member: t.Member, Prefix: p})
	}
	return out
}

func (in *Carving) length(f corev1.IPFamily) int {
	if f == corev1.IPv6Protocol {
		return in.BitsV6
	}
	return in.BitsV4
}

// lostBlocks returns, in ascending order, the blocks in a pool whose only known ranges are Own ranges of one member.
func lostBlocks(in Carving) map[Ask][]netip.Prefix {
	own := map[Known]bool{}
	for member, ranges := range in.Own {
		for _, r := range ranges {
			own[Known{Member: member, Prefix: r}] = true
		}
	}
	of := map[netip.Prefix]string{} // "": shared by members, or used otherwise
	var wide []span
	use := func(member string, p netip.Prefix, its bool) {
		length := in.length(Family(p.Addr()))
		if p.Bits() < length || length > p.Addr().BitLen() {
			wide = append(wide, whole(p))
			return
		}
		b := netip.PrefixFrom(p.Addr(), length).Masked()
		if was, there := of[b]; !its || there && was != member {
			member = ""
		}
		of[b] = member
	}
	for _, g := range in.Granted {
		use(g.Member, g.Prefix, false)
	}
	for _, k := range in.Known {
		use(k.Member, k.Prefix, own[Known{Member: k.Member, Prefix: k.Prefix}])
	}
	wide = merge(wide)
	out := map[Ask][]netip.Prefix{}
	for b, member := range of {
		i := reaching(wide, whole(b).first)
		if member == "" || i < len(wide) && wide[i].first.cmp(whole(b).last) <= 0 ||
			!slices.ContainsFunc(in.Pools, func(p netip.Prefix) bool { return covers(p, b) }) {
			continue
		}
		who := Ask{Member: member, Family: Family(b.Addr())}
		out[who] = append(out[who], b)
	}
	for _, all := range out {
		slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	}
	return out
}

// request is one missing block of a member: the nth of its family.
type request struct {
	Ask
	nth int
}

// requests returns the missing blocks in the order in which they are granted.
func requests(asks []Ask, have map[Ask]int) []request {
	var all []request
	for _, a := range asks {
		for n := have[Ask{Member: a.Member, Family: a.Family}]; n < a.Blocks; n++ {
			all = append(all, request{Ask: a, nth: n})
		}
	}
	slices.SortFunc(all, func(a, b request) int {
		return cmp.Or(
			cmp.Compare(a.nth, b.nth),
			a.Since.Compare(b.Since),
			cmp.Compare(a.Member, b.Member),
			cmp.Compare(a.Family, b.Family),
		)
	})
	return all
}

// allocate returns the lowest free block of the first pool that has one.
func allocate(pools []netip.Prefix, taken []span, f corev1.IPFamily, length int) (netip.Prefix, error) {
	fits := false
	for _, p := range pools {
		if Family(p.Addr()) != f || p.Bits() > length || length > p.Addr().BitLen() {
			continue
		}
		fits = true
		if found, ok := lowestFree(p, taken, length); ok {
			return found, nil
		}
	}
	if !fits {
		return netip.Prefix{}, fmt.Errorf(
			"%w: no pool of %s holds a block of /%d; add one to the ClusterSet, or make its blocks smaller",
			ErrMismatchedNetwork,
			f,
			length,
		)
	}
	return netip.Prefix{}, fmt.Errorf(
		"%w: no block of /%d is free in the pools of %s; add a pool to the ClusterSet",
		ErrFull,
		length,
		f,
	)
}

// lowestFree returns the lowest free block. It skips from one taken span to the next, because a pool may have far more
// blocks than spans.
func lowestFree(pool netip.Prefix, taken []span, length int) (netip.Prefix, bool) {
	all := whole(pool)
	inside := hosts(netip.PrefixFrom(all.first.addr(), length))
	for first := all.first; ; {
		i := reaching(taken, first)
		if i == len(taken) || taken[i].first.cmp(first.or(inside)) > 0 {
			return netip.PrefixFrom(first.addr(), length), true
		}
		end := taken[i].last.or(inside) // the last address of the block in which the taken span ends
		if end.cmp(all.last) >= 0 {
			return netip.Prefix{}, false
		}
		first = end.plus(1)
	}
}

// insert adds a span that overlaps none of these merged spans, and keeps them merged.
func insert(spans []span, s span) []span {
	i := reaching(spans, s.first)
	if i < len(spans) && touches(s, spans[i]) {
		s.last = spans[i].last
		spans = slices.Delete(spans, i, i+1)
	}
	if i > 0 && touches(spans[i-1], s) {
		spans[i-1].last = s.last
		return spans
	}
	return slices.Insert(spans, i, s)
}

// overlaps returns the blocks that overlap a block or range of another member. Of two prefixes that overlap, one
// contains the other: in sorted order, the prefixes around the current one form a stack.
func overlaps(granted []Grant, known []Known) []Overlap {
	all := make([]Known, 0, len(granted)+len(known))
	for _, g := range granted {
		all = append(all, Known{Member: g.Member, Prefix: g.Prefix.Masked(), For: useBlock})
	}
	for _, k := range known {
		k.Prefix = k.Prefix.Masked()
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b Known) int {
		return cmp.Or(
			a.Prefix.Addr().Compare(b.Prefix.Addr()),
			cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()),
			cmp.Compare(a.Member, b.Member),
			cmp.Compare(a.For, b.For),
		)
	})
	var found []Overlap
	var around []Known
	for _, k := range all {
		for len(around) > 0 && !around[len(around)-1].Prefix.Overlaps(k.Prefix) {
			around = around[:len(around)-1]
		}
		for _, outer := range around {
			switch {
			case outer.For == useBlock && (outer.Member != k.Member || k.For == useBlock):
				found = append(found, Overlap{Block: Grant{outer.Member, outer.Prefix}, With: k})
			case k.For == useBlock && outer.Member != k.Member:
				found = append(found, Overlap{Block: Grant{k.Member, k.Prefix}, With: outer})
			}
		}
		around = append(around, k)
	}
	return found
}

// FreeBlocks returns how many blocks of this prefix length are free in a pool, at most math.MaxUint64. A block that is
// taken in part is not free.
func FreeBlocks(pool netip.Prefix, taken []netip.Prefix, length int) uint64 {
	if pool.Bits() > length || length > pool.Addr().BitLen() {
		return 0
	}
	all := whole(pool)
	shift := pool.Addr().BitLen() - length
	inside := hosts(netip.PrefixFrom(all.first.addr(), length))
	var used []span
	for _, t := range taken {
		switch {
		case !t.Overlaps(pool):
		case t.Bits() <= pool.Bits():
			return 0
		default:
			s := whole(t)
			used = append(used, span{s.first.without(inside), s.last.or(inside)})
		}
	}
	var free uint64
	next := all.first
	for _, s := range merge(used) {
		if next.cmp(s.first) < 0 {
			free = add(free, blocks(span{next, s.first.minus(number{0, 1})}, shift))
		}
		if s.last == all.last {
			return free
		}
		next = s.last.plus(1)
	}
	return add(free, blocks(span{next, all.last}, shift))
}

// blocks returns the number of blocks of 2^shift addresses in s, whose size is a multiple of that.
func blocks(s span, shift int) uint64 {
	n := s.last.minus(s.first).right(shift)
	if n.high > 0 {
		return math.MaxUint64
	}
	return add(n.low, 1)
}

// add saturates at math.MaxUint64.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry > 0 {
		return math.MaxUint64
	}
	return sum
}
