package grants

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// conditions returns the conditions of the ClusterSet without LastTransitionTime, which the caller sets.
func conditions(set *hubv1alpha1.ClusterSet, plan *Plan, pools []netip.Prefix) (out []metav1.Condition) {
	if mode := set.Spec.VIPs.Mode; mode != "" && mode != hubv1alpha1.VIPModeShared {
		out = append(out, blocksGranted(mode, plan, pools))
	}
	if len(set.Spec.VIPs.Pools)+len(set.Status.Blocks) > 0 {
		out = append(out, poolsValid(plan))
	}
	return out
}

func blocksGranted(mode hubv1alpha1.VIPMode, plan *Plan, pools []netip.Prefix) metav1.Condition {
	c := metav1.Condition{Type: hubv1alpha1.ConditionBlocksGranted, Status: metav1.ConditionFalse}
	switch {
	case len(pools) == 0:
		c.Reason = "NoPools"
		c.Message = fmt.Sprintf("Mode %s has no usable pool: add one to spec.vips.pools. Until then VIPs come from "+
			"blocks granted before and ServiceCIDRs labelled by hand, and else from each cluster's own ranges.", mode)
	case plan.Waiting:
		c.Reason = "Waiting"
		c.Message = "The hub controller has just started, or status.blocks lacks blocks that it had: the hub may " +
			"have been restored from a backup. Granting resumes after two minutes. Members report their ranges " +
			"meanwhile."
	case len(plan.Refused) > 0:
		c.Reason = "PropertyInvalid" // unless something else is wrong, too
		var messages []string
		for _, r := range plan.Refused {
			messages = append(messages, fmt.Sprintf("%s: %v", r.Member, r.Err))
			switch {
			case errors.Is(r.Err, ipam.ErrFull):
				c.Reason = "PoolsFull"
			case c.Reason != "PoolsFull" && !errors.Is(r.Err, errUnreadable):
				c.Reason = "NoPools"
			}
		}
		slices.Sort(messages)
		c.Message = Summary(slices.Compact(messages)) + "."
	default:
		c.Status, c.Reason = metav1.ConditionTrue, "Granted"
		c.Message = "Every member has the blocks that it asks for."
	}
	return c
}

func poolsValid(plan *Plan) metav1.Condition {
	c := metav1.Condition{Type: hubv1alpha1.ConditionPoolsValid, Status: metav1.ConditionFalse}
	switch {
	case len(plan.Unusable) > 0:
		c.Reason, c.Message = "PoolInvalid", Summary(plan.Unusable)+". No block comes from an invalid pool."
	case len(plan.PoolOverlaps)+len(plan.Overlaps) > 0:
		var messages []string
		for _, o := range plan.PoolOverlaps {
			messages = append(messages, o.String())
		}
		for _, o := range plan.Overlaps {
			messages = append(messages, o.Member+": "+o.Message)
		}
		c.Reason = "RangesOverlap"
		c.Message = Summary(messages) +
			". No block comes from a range that a member uses: choose pools that no member uses. If the range is a " +
			"block that a restored hub has lost, add it to status.blocks again."
	default:
		c.Status, c.Reason = metav1.ConditionTrue, "NoOverlap"
		c.Message = "Pools and blocks overlap no range that a member is known to use."
	}
	return c
}

// Summary joins the first three messages and counts the others, so that the result fits into an Event.
func Summary(messages []string) string {
	const limit = 3
	if n := len(messages); n > limit {
		return fmt.Sprintf("%s; and %d more", strings.Join(messages[:limit], "; "), n-limit)
	}
	return strings.Join(messages, "; ")
}
