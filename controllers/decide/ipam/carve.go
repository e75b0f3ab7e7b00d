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

// Grant is a block of a member's own.
type Grant struct {
	Member string
	Prefix netip.Prefix
}

// Known is a range that a member uses, as far as it told: for services or for pods. Its own ServiceCIDRs inside its
// blocks may be among
// them.
type Known struct {
	Member string
	Prefix netip.Prefix
	For    string
}

// Ask is how many blocks of a family a member wants to have in all.
type Ask struct {
	Member string
	Family corev1.IPFamily
	Blocks int
	Since  time.Time
}

// Carving is all that the hub's grants depend on.
type Carving struct {
	Pools   []netip.Prefix // of both families, in the order in which they are used up
	BitsV4  int            // how long the prefix of a new block is
	BitsV6  int
	Granted []Grant
	Known   []Known
	// Own are those of the Known of a member that may lie in a block of its own. A block that was granted and
	// forgotten is there again by them.
	Own  map[string][]netip.Prefix
	Asks []Ask
}

// Carved is what is to be granted beside what is. Nothing that was granted ever shrinks or goes here.
type Carved struct {
	Grants   []Grant
	Refused  []AskRefused
	Overlaps []Overlap
}

// AskRefused is a request that stays open.
type AskRefused struct {
	Member string
	Family corev1.IPFamily
	Err    error
}

// Overlap is a granted block that meets somebody else's block or range: one that became known too late, or was
// granted by hand.
type Overlap struct {
	Block Grant
	With  Known
}

// block is what For says of a granted block.
const block = "block"

// Carve grants blocks that overlap neither each other nor any range that a member is known to use: in every member,
// an address of any block may stand for that block's owner only. Blocks that a member has ranges of its own in, and
// nobody else anything, go first. First blocks go before second ones, then the oldest request, and a block is the
// lowest that is free in the first pool that has one. The order of
// the input does not matter but for that of the pools.
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
	back := returning(in)
	all := slices.DeleteFunc(turns(in.Asks, have), func(t turn) bool {
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
		p, err := cut(in.Pools, taken, t.Family, in.length(t.Family))
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

// returning are the blocks of a pool in which a member has ranges of its own and nobody else has anything, nor it
// anything else; from the
// lowest on.
func returning(in Carving) map[Ask][]netip.Prefix {
	own := map[Known]bool{}
	for member, ranges := range in.Own {
		for _, r := range ranges {
			own[Known{Member: member, Prefix: r}] = true
		}
	}
	of := map[netip.Prefix]string{} // "": not one member's alone
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

// turn is one block that a member is short of; nth of its family.
type turn struct {
	Ask
	nth int
}

func turns(asks []Ask, have map[Ask]int) []turn {
	var all []turn
	for _, a := range asks {
		for n := have[Ask{Member: a.Member, Family: a.Family}]; n < a.Blocks; n++ {
			all = append(all, turn{Ask: a, nth: n})
		}
	}
	slices.SortFunc(all, func(a, b turn) int {
		return cmp.Or(
			cmp.Compare(a.nth, b.nth),
			a.Since.Compare(b.Since),
			cmp.Compare(a.Member, b.Member),
			cmp.Compare(a.Family, b.Family),
		)
	})
	return all
}

func cut(pools []netip.Prefix, taken []span, f corev1.IPFamily, length int) (netip.Prefix, error) {
	fits := false
	for _, p := range pools {
		if Family(p.Addr()) != f || p.Bits() > length || length > p.Addr().BitLen() {
			continue
		}
		fits = true
		if found, ok := lowest(p, taken, length); ok {
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

// lowest goes from one taken span to the next, not from one block to the next.
func lowest(pool netip.Prefix, taken []span, length int) (netip.Prefix, bool) {
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

// insert adds a span that meets none of these merged ones, and keeps them merged.
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

// overlaps finds the blocks that meet another's block or range. Prefixes that meet lie one inside the other, so
// that those around one are
// the stack of what was passed in order and has not ended.
func overlaps(granted []Grant, known []Known) []Overlap {
	all := make([]Known, 0, len(granted)+len(known))
	for _, g := range granted {
		all = append(all, Known{Member: g.Member, Prefix: g.Prefix.Masked(), For: block})
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
			case outer.For == block && (outer.Member != k.Member || k.For == block):
				found = append(found, Overlap{Block: Grant{outer.Member, outer.Prefix}, With: k})
			case k.For == block && outer.Member != k.Member:
				found = append(found, Overlap{Block: Grant{k.Member, k.Prefix}, With: outer})
			}
		}
		around = append(around, k)
	}
	return found
}

// FreeBlocks is how many blocks of this length are free in a pool, at most the largest number there is. A block
// that is taken in part is taken.
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

// blocks is how many blocks of 2^shift addresses s holds, of which it is a multiple.
func blocks(s span, shift int) uint64 {
	n := s.last.minus(s.first).right(shift)
	if n.high > 0 {
		return math.MaxUint64
	}
	return add(n.low, 1)
}

func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry > 0 {
		return math.MaxUint64
	}
	return sum
}
