package grants

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// PoolOverlap is a pool that overlaps a range of a member. No block comes from the part that overlaps.
type PoolOverlap struct {
	Pool netip.Prefix
	With ipam.Known
}

func (o PoolOverlap) String() string {
	return fmt.Sprintf("pool %s overlaps the %s %s of %s", o.Pool, o.With.Use, o.With.Prefix, o.With.Member)
}

// overlaps returns which pools and blocks overlap a reported range, except Services in a block of the same member: they
// are its purpose. The blocks stay, because VIPs may be in use there. Two blocks that overlap are not reported before a
// member reports one of them as a range for its Services.
func overlaps(pools []netip.Prefix, blocks []ipam.Grant, known []ipam.Known) (of []PoolOverlap, found []Finding) {
	for _, k := range known {
		intended := func(b ipam.Grant) bool { return k.Use == useServices && Inside(k, b) }
		for _, b := range blocks {
			if !b.Prefix.Overlaps(k.Prefix) || intended(b) {
				continue
			}
			owner := k.Member
			if owner == b.Member {
				owner = "the member itself"
			}
			found = append(found, Finding{b.Member,
				fmt.Sprintf("block %s overlaps the %s %s of %s", b.Prefix, k.Use, k.Prefix, owner)})
		}
		for _, p := range pools {
			if p.Overlaps(k.Prefix) && !slices.ContainsFunc(blocks, intended) {
				of = append(of, PoolOverlap{p, k})
			}
		}
	}
	slices.SortFunc(of, func(a, b PoolOverlap) int { return cmp.Compare(a.String(), b.String()) })
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Message, b.Message))
	})
	return of, found
}

// Inside reports whether a range is part of this block and both belong to the same member.
func Inside(k ipam.Known, b ipam.Grant) bool {
	return b.Member == k.Member && b.Prefix.Bits() <= k.Prefix.Bits() && b.Prefix.Overlaps(k.Prefix)
}
