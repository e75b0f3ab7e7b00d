package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Standing is the input of Plan: what a member has, and what the hub granted it.
type Standing struct {
	Mode     Mode
	Families []corev1.IPFamily
	Pools    map[corev1.IPFamily]bool // the families that have a pool
	Blocks   []netip.Prefix           // that the hub granted to it
	Pods     []netip.Prefix           // its Pod ranges, if they are reported
	Ranges   []Range                  // of all its ServiceCIDRs
	Ours     map[string]bool          // names of the ServiceCIDRs that the agent made
	VIPs     []Held
	Taken    []netip.Addr // addresses that have an IPAddress
}

// Layout is the result of Plan.
type Layout struct {
	Create  []Range
	Invalid []error  // why no ServiceCIDR is made of a block
	Delete  []string // names of ServiceCIDRs
	// Want is the total number of blocks of each family that the member asks the hub for: of one without a pool no more
	// than it has.
	Want map[corev1.IPFamily]int
}

// Plan decides which ServiceCIDRs a member has. It never deletes one that an administrator created. It deletes one of
// the agent's own if the mode does not use it and every VIP in it is also covered by another range (SPEC V2).
func Plan(s Standing) Layout {
	out := Layout{Want: map[corev1.IPFamily]int{}}
	if s.Mode == ModeShared {
		out.Delete = unused(s)
		return out
	}
	for _, f := range s.Families {
		blocks := 0
		for _, b := range s.Blocks {
			if Family(b.Addr()) != f || b.Overlaps(mapped) {
				continue
			}
			if blocks++; blocks > clusterset.MaxBlocksWanted {
				out.Invalid = append(out.Invalid, fmt.Errorf("no ServiceCIDR is made of blocks of %s "+
					"after the first %d", f, clusterset.MaxBlocksWanted))
				break
			}
			p := whole64(b.Masked())
			if hasRange(s.Ranges, p) {
				continue
			}
			if err := s.check(p); err != nil {
				out.Invalid = append(out.Invalid, fmt.Errorf("no ServiceCIDR is made of block %s: %w", b, err))
				continue
			}
			out.Create = append(out.Create, Range{Name: freeName(p, s.Ranges), Prefix: p, VIPs: true})
		}
		if out.Want[f] = blocks; !s.Pools[f] {
			continue
		}
		out.Want[f] = max(1, blocks)
		created := slices.ContainsFunc(out.Create, func(r Range) bool { return Family(r.Prefix.Addr()) == f })
		if blocks > 0 && !created && nearlyFull(s, f) {
			out.Want[f]++
		}
	}
	return out
}

// check returns why p must not become a ServiceCIDR, although the hub granted it: the hub may be taken over.
func (s *Standing) check(p netip.Prefix) error {
	if i := slices.IndexFunc(s.Pods, p.Overlaps); i >= 0 {
		return fmt.Errorf("%s overlaps %s in ClusterProperty %s", p, s.Pods[i], clusterset.PropertyPodRanges)
	}
	_, err := clusterset.ParseRanges(p.String())
	return err
}

func hasRange(all []Range, p netip.Prefix) bool {
	return slices.ContainsFunc(all, func(r Range) bool {
		return r.VIPs && r.State != Terminating && covers(r.Prefix, p)
	})
}

// Name returns the name of the ServiceCIDR that the agent makes of a prefix.
func Name(p netip.Prefix) string {
	return "clusterset-vips-shared-" + strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p.String())
}

// freeName returns Name, or a variant if a ServiceCIDR of that name is still being deleted, or is a user's.
func freeName(p netip.Prefix, all []Range) string {
	name := Name(p)
	for n := 2; slices.ContainsFunc(all, func(r Range) bool { return r.Name == name }); n++ {
		name = fmt.Sprintf("%s-%d", Name(p), n)
	}
	return name
}

// nearlyFull reports whether the member needs another block: at most a quarter of its addresses for VIPs is free, and
// at most 64.
func nearlyFull(s Standing, f corev1.IPFamily) bool {
	var serving []Range
	for _, r := range s.Ranges {
		if r.VIPs && (r.State == Ready || r.State == NotReady) && Family(r.Prefix.Addr()) == f {
			serving = append(serving, r)
		}
	}
	var free, size float64
	for _, u := range Usages(serving, s.Taken) {
		free, size = free+float64(u.Available), size+float64(u.Available)+float64(u.Allocated)
	}
	return free*4 <= min(size, 256)
}

// unused returns the names of the agent's ServiceCIDRs whose VIPs are all covered by other ranges as well.
func unused(s Standing) (names []string) {
	stay := slices.DeleteFunc(
		slices.Clone(s.Ranges),
		func(r Range) bool { return r.State == NotReady || r.State == Terminating },
	)
	for _, name := range slices.Sorted(maps.Keys(s.Ours)) {
		stays := func(r Range) bool {
			return r.Name == name && (r.State == Terminating || len(Holding(r, stay, s.VIPs)) > 0)
		}
		if s.Ours[name] && !slices.ContainsFunc(s.Ranges, stays) {
			names = append(names, name)
			stay = slices.DeleteFunc(stay, func(r Range) bool { return r.Name == name })
		}
	}
	return names
}

// whole64 returns the part of a block that one ServiceCIDR can have: for a shorter IPv6 prefix the API server makes no
// allocator.
func whole64(b netip.Prefix) netip.Prefix {
	if b.Addr().Is6() && b.Bits() < 64 {
		return netip.PrefixFrom(b.Addr(), 64)
	}
	return b
}

func covers(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
