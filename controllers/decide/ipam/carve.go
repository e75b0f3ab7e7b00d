package ipam

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
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
	Use    string // "pod range" or "service range"
}

// Ask is the total number of blocks of a family that a member wants.
type Ask struct {
	Member string
	Family corev1.IPFamily
	Blocks int
	Since  time.Time

	Refused error // why it gets none of those that it lacks
}

// Carving is the input of Carve.
type Carving struct {
	Pools   []netip.Prefix // of both families, in order of preference; each has space for a block
	BitsV4  int            // prefix lengths of new blocks
	BitsV6  int
	Granted []Grant
	Known   []Known
	Asks    []Ask
}

// Carved is the result of Carve. Carve only adds: it never shrinks or removes a granted block.
type Carved struct {
	Grants  []Grant
	Refused []AskRefused
}

// AskRefused is an Ask that cannot be granted now.
type AskRefused struct {
	Member string
	Family corev1.IPFamily
	Err    error
}

// owner is a member, as to its blocks of one family.
type owner struct {
	member string
	family corev1.IPFamily
}

func (a *Ask) owner() owner { return owner{a.Member, a.Family} }

// Carve grants blocks that overlap neither each other nor any known range, so that each address of a block identifies
// one owner in all members. The first block of every member comes before any second one, and older requests before
// newer ones. A new block is the lowest free one of the first pool that has one. Except for the pools, the order of the
// input does not matter.
func Carve(in Carving) Carved {
	var taken []netip.Prefix
	have := map[owner]int{}
	for _, g := range in.Granted {
		taken = append(taken, g.Prefix)
		have[owner{g.Member, Family(g.Prefix.Addr())}]++
	}
	for _, k := range in.Known {
		taken = append(taken, k.Prefix)
	}
	taken = clusterset.Outermost(taken)
	var out Carved
	refused, last := map[owner]bool{}, map[netip.Prefix]netip.Prefix{}
	for _, t := range requests(in.Asks, have) {
		if refused[t.owner()] {
			continue
		}
		p, err := netip.Prefix{}, t.Refused
		if err == nil {
			p, err = allocate(in.Pools, taken, last, t.Family, in.length(t.Family))
		}
		if err != nil {
			refused[t.owner()] = true
			out.Refused = append(out.Refused, AskRefused{Member: t.Member, Family: t.Family, Err: err})
			continue
		}
		at, _ := slices.BinarySearchFunc(taken, p, netip.Prefix.Compare)
		taken = slices.Insert(taken, at, p)
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

// request is one missing block of a member: the nth of its family.
type request struct {
	Ask
	nth int
}

// requests returns the missing blocks in the order in which they are granted.
func requests(asks []Ask, have map[owner]int) []request {
	var all []request
	for _, a := range asks {
		for n := have[a.owner()]; n < a.Blocks; n++ {
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

// allocate returns the lowest free block of the first pool that has one. last has, by pool, the block that it returned
// last: all below are taken.
func allocate(
	pools, taken []netip.Prefix, last map[netip.Prefix]netip.Prefix, f corev1.IPFamily, length int,
) (netip.Prefix, error) {
	ofFamily := false
	for _, p := range pools {
		if Family(p.Addr()) != f {
			continue
		}
		ofFamily = true
		from, known := last[p]
		if !known {
			from = netip.PrefixFrom(p.Masked().Addr(), length)
		}
		if found, ok := lowestFree(p, from, taken); ok {
			last[p] = found
			return found, nil
		}
	}
	if !ofFamily {
		return netip.Prefix{}, fmt.Errorf("no pool is of %s; add one to the ClusterSet", f)
	}
	return netip.Prefix{}, fmt.Errorf("%w: no block of /%d is free in the pools of %s; add a pool to the ClusterSet",
		ErrFull, length, f)
}

// lowestFree returns the lowest free block from this one on. It goes from one taken prefix to the next, because a pool
// may have far more blocks. taken is sorted, and none is inside another.
func lowestFree(pool, block netip.Prefix, taken []netip.Prefix) (netip.Prefix, bool) {
	at, _ := slices.BinarySearchFunc(taken, block, netip.Prefix.Compare)
	for _, t := range taken[max(at-1, 0):] { // the one before may cover it
		if !t.Overlaps(block) {
			if block.Addr().Less(t.Addr()) {
				return block, true
			}
			continue
		}
		end := lastOf(block)
		if t.Bits() < block.Bits() {
			end = lastOf(t)
		}
		next := end.Next()
		if !pool.Contains(next) {
			return netip.Prefix{}, false
		}
		block = netip.PrefixFrom(next, block.Bits())
	}
	return block, true
}

// FreeBlocks returns how many blocks of this prefix length, at least the pool's, are free in a pool, at most
// math.MaxUint64. A block that is taken in part is not free.
func FreeBlocks(pool netip.Prefix, taken []netip.Prefix, length int) uint64 {
	if slices.ContainsFunc(taken, func(t netip.Prefix) bool { return covers(t, pool) }) {
		return 0
	}
	if length-pool.Bits() >= 64 {
		return math.MaxUint64
	}
	free, touched := uint64(1)<<(length-pool.Bits()), map[netip.Prefix]bool{}
	for _, t := range clusterset.Outermost(taken) {
		if !t.Overlaps(pool) {
			continue
		}
		block := netip.PrefixFrom(t.Addr(), length).Masked()
		switch {
		case touched[block]:
		case t.Bits() <= length:
			free -= 1 << (length - t.Bits())
		default:
			touched[block] = true
			free--
		}
	}
	return free
}
