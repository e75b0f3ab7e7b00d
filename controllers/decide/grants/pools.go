package grants

import (
	"fmt"
	"net/netip"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// Pool is a pool that blocks are cut from.
type Pool struct {
	Prefix  netip.Prefix
	Granted int    // blocks in it, of any size
	Free    uint64 // blocks of the current size; saturates
}

// Size returns the prefix length of a new block in this pool.
func Size(v *hubv1alpha1.VIPs, p netip.Prefix) int {
	if p.Addr().Is4() {
		return int(v.Blocks.IPv4Bits)
	}
	return int(v.Blocks.IPv6Bits)
}

// Usable returns the pools that blocks can come from, and for each of the others why it is unusable. If two pools
// overlap, the first is usable.
func Usable(v *hubv1alpha1.VIPs) (pools []netip.Prefix, unusable []string) {
	for _, text := range v.Pools {
		p, err := netip.ParsePrefix(text)
		why := ""
		switch {
		case err != nil || p.Addr().Is4In6():
			why = "is no CIDR of IPv4 or IPv6: write it as 10.200.0.0/13 or fd00:c5::/48"
		case p != p.Masked():
			why = fmt.Sprintf("has bits set after its prefix: write %s", p.Masked())
		case p.Bits() > Size(v, p):
			why = fmt.Sprintf("is smaller than a block of /%d: remove it, or make blocks smaller", Size(v, p))
		}
		for _, other := range pools {
			if why == "" && p.Overlaps(other) {
				why = fmt.Sprintf("overlaps pool %s: remove one of them", other)
			}
		}
		if why != "" {
			unusable = append(unusable, fmt.Sprintf("pool %s %s", text, why))
			continue
		}
		pools = append(pools, p)
	}
	return pools, unusable
}

// countPools counts the granted and the free blocks of each pool.
func countPools(v *hubv1alpha1.VIPs, pools []netip.Prefix, granted []ipam.Grant, known []ipam.Known) []Pool {
	var taken []netip.Prefix
	for _, g := range granted {
		taken = append(taken, g.Prefix)
	}
	for _, k := range known {
		taken = append(taken, k.Prefix)
	}
	out := make([]Pool, 0, len(pools))
	for _, p := range pools {
		pool := Pool{Prefix: p, Free: ipam.FreeBlocks(p, taken, Size(v, p))}
		for _, g := range granted {
			if g.Prefix.Overlaps(p) {
				pool.Granted++
			}
		}
		out = append(out, pool)
	}
	return out
}
