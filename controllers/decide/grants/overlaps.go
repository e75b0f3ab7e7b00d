package grants

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// overlaps reports granted blocks that overlap another block or a reported range. The blocks stay, because VIPs may be
// in use there.
func overlaps(found []ipam.Overlap, blocks []ipam.Grant, reported map[string]Reported) (out []Finding) {
	for _, o := range found {
		out = append(out, Finding{o.Block.Member, fmt.Sprintf("block %s overlaps the %s %s of %s",
			o.Block.Prefix, o.With.Use, o.With.Prefix, o.With.Member)})
	}
	for _, b := range blocks {
		r := reported[b.Member]
		for use, ranges := range r.ranges() {
			for _, p := range ranges {
				// A member's ServiceCIDRs inside its own block are the purpose of the block.
				if p.Overlaps(b.Prefix) && (use == usePods || p.Bits() < b.Prefix.Bits()) {
					out = append(out, Finding{b.Member,
						fmt.Sprintf("block %s overlaps the %s %s of the member itself", b.Prefix, use, p)})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Message, b.Message))
	})
	return out
}

// PoolOverlap is a pool that overlaps a range of a member. No block comes from the part that overlaps.
type PoolOverlap struct {
	Pool netip.Prefix
	With ipam.Known
}

func (o PoolOverlap) String() string {
	return fmt.Sprintf("pool %s overlaps the %s %s of %s", o.Pool, o.With.Use, o.With.Prefix, o.With.Member)
}

// poolOverlaps returns the pools that overlap a reported range, unless that is inside a block of the same member.
func poolOverlaps(pools []netip.Prefix, known []ipam.Known, blocks []ipam.Grant) (out []PoolOverlap) {
	for _, k := range known {
		for _, p := range pools {
			if p.Overlaps(k.Prefix) &&
				!slices.ContainsFunc(blocks, func(b ipam.Grant) bool { return Inside(k, b) }) {
				out = append(out, PoolOverlap{p, k})
			}
		}
	}
	slices.SortFunc(out, func(a, b PoolOverlap) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// Inside reports whether a range is part of this block and both belong to the same member.
func Inside(k ipam.Known, b ipam.Grant) bool {
	return b.Member == k.Member && b.Prefix.Bits() <= k.Prefix.Bits() && b.Prefix.Overlaps(k.Prefix)
}
