package grants

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// overlaps are the blocks that meet what became known too late. They stay: VIPs are in use there.
func overlaps(found []ipam.Overlap, blocks []ipam.Grant, all map[string]Told) (out []Said) {
	for _, o := range found {
		out = append(out, Said{o.Block.Member, fmt.Sprintf("block %s meets the %s %s of %s", o.Block.Prefix, o.With.For, o.With.Prefix, o.With.Member)})
	}
	for _, b := range blocks {
		told := all[b.Member]
		for use, ranges := range told.ranges() {
			for _, r := range ranges {
				// A member's ServiceCIDRs in its own block are what the block is for.
				if r.Overlaps(b.Prefix) && (use == pods || r.Bits() < b.Prefix.Bits()) {
					out = append(out, Said{b.Member, fmt.Sprintf("block %s meets the %s %s of the member itself", b.Prefix, use, r)})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Said) int { return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Message, b.Message)) })
	return out
}

// meets are the pools that hold what a member uses, but for what lies in blocks of its own.
func meets(pools []netip.Prefix, known []ipam.Known, blocks []ipam.Grant) (out []string) {
	for _, k := range known {
		own := slices.ContainsFunc(blocks, func(b ipam.Grant) bool {
			return b.Member == k.Member && b.Prefix.Bits() <= k.Prefix.Bits() && b.Prefix.Overlaps(k.Prefix)
		})
		for _, p := range pools {
			if !own && p.Overlaps(k.Prefix) {
				out = append(out, fmt.Sprintf("pool %s meets the %s %s of %s", p, k.For, k.Prefix, k.Member))
			}
		}
	}
	slices.Sort(out)
	return out
}

// conditions says how the ClusterSet stands. LastTransitionTime is left to the caller.
func conditions(set *hubv1alpha1.ClusterSet, plan *Plan, pools []netip.Prefix, wrong, met []string) (out []metav1.Condition) {
	if mode := set.Spec.VIPs.Mode; mode != "" && mode != hubv1alpha1.VIPModeShared {
		c := metav1.Condition{Status: metav1.ConditionTrue, Reason: "Granted", Message: "Every member has the blocks that it asks for."}
		switch {
		case len(pools) == 0:
			c = metav1.Condition{Status: metav1.ConditionFalse, Reason: "NoPools", Message: fmt.Sprintf(
				"Mode %s has no pool that blocks can be cut from: add one to spec.vips.pools. Until then VIPs come from ServiceCIDRs that are labelled by hand.", mode)}
		case len(plan.Refused) > 0:
			c = metav1.Condition{Status: metav1.ConditionFalse, Reason: "NoPools", Message: Few(refusals(plan.Refused)) + "."}
			if slices.ContainsFunc(plan.Refused, func(r ipam.AskRefused) bool { return errors.Is(r.Err, ipam.ErrFull) }) {
				c.Reason = "PoolsFull"
			}
		}
		c.Type = hubv1alpha1.ConditionBlocksGranted
		out = append(out, c)
	}
	if len(set.Spec.VIPs.Pools)+len(set.Status.Blocks) == 0 {
		return out
	}
	c := metav1.Condition{Status: metav1.ConditionTrue, Reason: "NoOverlap", Message: "Pools and blocks meet nothing that a member is known to use."}
	switch {
	case len(wrong) > 0:
		c = metav1.Condition{Status: metav1.ConditionFalse, Reason: "PoolInvalid", Message: Few(wrong) + ". No block is cut from there."}
	case len(met)+len(plan.Overlaps) > 0:
		c = metav1.Condition{Status: metav1.ConditionFalse, Reason: "RangesOverlap"}
		for _, o := range plan.Overlaps {
			met = append(met, o.Member+": "+o.Message)
		}
		c.Message = Few(met) + ". No block is cut from what members use: pools should be ranges that nobody does."
	}
	c.Type = hubv1alpha1.ConditionPoolsValid
	return append(out, c)
}

func refusals(refused []ipam.AskRefused) (out []string) {
	for _, r := range refused {
		out = append(out, fmt.Sprintf("%s: %v", r.Member, r.Err))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Few keeps a message within what an Event can hold.
func Few(all []string) string {
	const most = 3
	if n := len(all); n > most {
		return fmt.Sprintf("%s; and %d more", strings.Join(all[:most], "; "), n-most)
	}
	return strings.Join(all, "; ")
}
