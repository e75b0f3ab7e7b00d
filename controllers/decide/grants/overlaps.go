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
		out = append(
			out,
			Said{
				o.Block.Member,
				fmt.Sprintf(
					"block %s meets the %s %s of %s",
					o.Block.Prefix,
					o.With.For,
					o.With.Prefix,
					o.With.Member,
				),
			},
		)
	}
	for _, b := range blocks {
		told := all[b.Member]
		for use, ranges := range told.ranges() {
			for _, r := range ranges {
				// A member's ServiceCIDRs in its own block are what the block is for.
				if r.Overlaps(b.Prefix) && (use == pods || r.Bits() < b.Prefix.Bits()) {
					out = append(
						out,
						Said{
							b.Member,
							fmt.Sprintf("block %s meets the %s %s of the member itself", b.Prefix, use, r),
						},
					)
				}
			}
		}
	}
	slices.SortFunc(
		out,
		func(a, b Said) int { return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Message, b.Message)) },
	)
	return out
}

// Meeting is a pool that holds what a member uses: there no block is cut.
type Meeting struct {
	Pool netip.Prefix
	With ipam.Known
}

func (m Meeting) String() string {
	return fmt.Sprintf("pool %s meets the %s %s of %s", m.Pool, m.With.For, m.With.Prefix, m.With.Member)
}

// meets leaves out what lies in blocks of the member's own.
func meets(pools []netip.Prefix, known []ipam.Known, blocks []ipam.Grant) (out []Meeting) {
	for _, k := range known {
		for _, p := range pools {
			if p.Overlaps(k.Prefix) &&
				!slices.ContainsFunc(blocks, func(b ipam.Grant) bool { return Inside(k, b) }) {
				out = append(out, Meeting{p, k})
			}
		}
	}
	slices.SortFunc(out, func(a, b Meeting) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// Inside reports whether a range lies in this block of the same member.
func Inside(k ipam.Known, b ipam.Grant) bool {
	return b.Member == k.Member && b.Prefix.Bits() <= k.Prefix.Bits() && b.Prefix.Overlaps(k.Prefix)
}

// conditions says how the ClusterSet stands. LastTransitionTime is left to the caller.
func conditions(set *hubv1alpha1.ClusterSet, plan *Plan, pools []netip.Prefix) (out []metav1.Condition) {
	if mode := set.Spec.VIPs.Mode; mode != "" && mode != hubv1alpha1.VIPModeShared {
		c := metav1.Condition{
			Status:  metav1.ConditionTrue,
			Reason:  "Granted",
			Message: "Every member has the blocks that it asks for.",
		}
		switch {
		case len(pools) == 0:
			c = metav1.Condition{Status: metav1.ConditionFalse, Reason: "NoPools", Message: fmt.Sprintf(
				"Mode %s has no pool that blocks can be cut from: add one to spec.vips.pools. Until then VIPs "+
					"come from ServiceCIDRs that are labelled by hand.",
				mode,
			)}
		case plan.Waiting:
			c = metav1.Condition{
				Status: metav1.ConditionFalse,
				Reason: ReasonWaiting,
				Message: "The hub may come from a backup: blocks are gone from status.blocks, or they were " +
					"edited, or a member is silent since the hub's program started. " +
					"More are granted two minutes after the last of them was heard, by when they have told what " +
					"they hold; after four at most.",
			}
		case len(plan.Refused) > 0:
			c = metav1.Condition{
				Status:  metav1.ConditionFalse,
				Reason:  "NoPools",
				Message: Few(refusals(plan.Refused)) + ".",
			}
			if slices.ContainsFunc(
				plan.Refused,
				func(r ipam.AskRefused) bool { return errors.Is(r.Err, ipam.ErrFull) },
			) {
				c.Reason = "PoolsFull"
			}
		}
		c.Type = hubv1alpha1.ConditionBlocksGranted
		out = append(out, c)
	}
	if len(set.Spec.VIPs.Pools)+len(set.Status.Blocks) == 0 {
		return out
	}
	c := metav1.Condition{
		Status:  metav1.ConditionTrue,
		Reason:  "NoOverlap",
		Message: "Pools and blocks meet nothing that a member is known to use.",
	}
	switch {
	case len(plan.Unusable) > 0:
		c = metav1.Condition{
			Status:  metav1.ConditionFalse,
			Reason:  "PoolInvalid",
			Message: Few(plan.Unusable) + ". No block is cut from there.",
		}
	case len(plan.Meets)+len(plan.Overlaps) > 0:
		c = metav1.Condition{Status: metav1.ConditionFalse, Reason: "RangesOverlap"}
		var met []string
		for _, m := range plan.Meets {
			met = append(met, m.String())
		}
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
