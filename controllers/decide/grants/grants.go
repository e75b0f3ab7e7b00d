// Package grants decides which member owns which blocks of a ClusterSet's pools (DESIGN §5, SPEC V2). It does no I/O:
// its input is the ClusterSet and the ClusterProfiles; its result is the list of blocks, and what to report. Package
// ipam chooses the blocks.
package grants

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// Facts is the input of Decide, which does not change it.
type Facts struct {
	Set      *hubv1alpha1.ClusterSet
	Profiles []inventoryv1alpha1.ClusterProfile // all of the namespace
	// Paused means that members may use blocks that the ClusterSet does not list: nothing is granted.
	Paused bool
}

// Plan is the result of Decide: the new status of the ClusterSet, and what to report.
type Plan struct {
	Blocks            []hubv1alpha1.Block
	Conditions        []metav1.Condition // all; other types that Decide sets are to be removed
	Granted, Released []hubv1alpha1.Block
	Waiting           bool // there are blocks to grant, and the Facts are Paused

	Refused      []ipam.AskRefused
	Overlaps     []Finding // of granted blocks with reported ranges
	Pools        []Pool
	Unusable     []string // pools, each with the reason
	PoolOverlaps []PoolOverlap
}

// Finding is a message about one member.
type Finding struct{ Member, Message string }

// Lost returns the owners of blocks that have no ClusterProfile and no recorded departure. Their blocks are kept.
func Lost(set *hubv1alpha1.ClusterSet, profiles []inventoryv1alpha1.ClusterProfile) (ids []string) {
	_, lost := absent(set.Status.Blocks, set, profiles)
	return lost
}

// absent returns the owners of blocks that have no ClusterProfile, by whether their departure is recorded. Those that
// departed have nothing left on the hub: until then, a finalizer keeps their ClusterProfile (inventory). A missing
// ClusterProfile alone is no departure (DESIGN §2): an emptied or restored hub takes no blocks away.
func absent(
	blocks []hubv1alpha1.Block, set *hubv1alpha1.ClusterSet, profiles []inventoryv1alpha1.ClusterProfile,
) (departed, lost []string) {
	seen := map[string]bool{}
	for _, p := range profiles {
		seen[p.Name] = true
	}
	for _, b := range blocks {
		switch {
		case seen[b.ClusterID]:
		case slices.ContainsFunc(set.Status.Departed, func(d hubv1alpha1.Departure) bool {
			return d.ClusterID == b.ClusterID
		}):
			departed = append(departed, b.ClusterID)
		default:
			lost = append(lost, b.ClusterID)
		}
		seen[b.ClusterID] = true
	}
	return departed, lost
}

// Decide grants free blocks to the members that want them, and releases those of departed members. A released block is
// not granted by the same decision: the API first shows it without an owner.
func Decide(f Facts) Plan {
	v := &f.Set.Spec.VIPs
	pools, unusable := Usable(v)
	in := ipam.Carving{Pools: pools, Granted: parse(f.Set.Status.Blocks)}
	in.BitsV4, in.BitsV6 = int(v.Blocks.IPv4Bits), int(v.Blocks.IPv6Bits)
	plan := Plan{Unusable: unusable}
	for i := range f.Profiles {
		p := &f.Profiles[i]
		if !clusterset.IsOurs(p) {
			continue
		}
		r := Read(p.Status.Properties)
		for use, ranges := range r.ranges() {
			for _, prefix := range ranges {
				in.Known = append(in.Known, ipam.Known{Member: p.Name, Prefix: prefix, Use: use})
			}
		}
		if !eligible(v, p) {
			continue
		}
		for _, ask := range asks(p, &r, pools) {
			if len(r.Unreadable) > 0 {
				ask.Refused = fmt.Errorf("%w: %s", errUnreadable, r.Unreadable[0])
			}
			if ask.Refused != nil || r.complete() {
				in.Asks = append(in.Asks, ask)
			}
		}
	}
	carved := ipam.Carve(in)
	plan.Refused = carved.Refused
	if plan.Waiting = f.Paused && len(carved.Grants) > 0; plan.Waiting {
		carved.Grants = nil
	}
	plan.apply(f, carved.Grants)
	plan.Pools = countPools(v, pools, in.Granted, in.Known)
	plan.PoolOverlaps, plan.Overlaps = overlaps(pools, in.Granted, in.Known)
	plan.Conditions = conditions(f.Set, &plan, pools)
	return plan
}

// errUnreadable is why a member gets no block that has a property that cannot be used. What it wraps says all.
var errUnreadable = errors.New("a property cannot be read")

// eligible reports whether a member may get blocks: the mode uses them, and it is not leaving.
func eligible(v *hubv1alpha1.VIPs, p *inventoryv1alpha1.ClusterProfile) bool {
	return v.Mode != "" && v.Mode != hubv1alpha1.VIPModeShared &&
		p.DeletionTimestamp == nil && p.Annotations[clusterset.AnnotationLeft] == ""
}

// asks returns the requests of a member. The default is one block of each family that has a pool.
func asks(p *inventoryv1alpha1.ClusterProfile, r *Reported, pools []netip.Prefix) []ipam.Ask {
	want := clusterset.BlocksWanted{}
	if r.Wanted != nil {
		want = *r.Wanted
	} else {
		for _, pool := range pools {
			if pool.Addr().Is4() {
				want.IPv4 = 1
			} else {
				want.IPv6 = 1
			}
		}
	}
	since := p.CreationTimestamp.Time
	return []ipam.Ask{
		{Member: p.Name, Family: corev1.IPv4Protocol, Blocks: want.IPv4, Since: since},
		{Member: p.Name, Family: corev1.IPv6Protocol, Blocks: want.IPv6, Since: since},
	}
}

// apply sets Blocks, in the order in which they were granted, Granted and Released, and refuses what exceeds MaxBlocks.
func (plan *Plan) apply(f Facts, grants []ipam.Grant) {
	departed, _ := absent(f.Set.Status.Blocks, f.Set, f.Profiles)
	for _, b := range f.Set.Status.Blocks {
		if slices.Contains(departed, b.ClusterID) {
			plan.Released = append(plan.Released, b)
		} else {
			plan.Blocks = append(plan.Blocks, b)
		}
	}
	for _, g := range grants {
		if len(plan.Blocks) >= hubv1alpha1.MaxBlocks {
			err := fmt.Errorf("%w: a ClusterSet has at most %d blocks; make its blocks larger, so that members "+
				"need fewer", ipam.ErrFull, hubv1alpha1.MaxBlocks)
			plan.Refused = append(plan.Refused,
				ipam.AskRefused{Member: g.Member, Family: ipam.Family(g.Prefix.Addr()), Err: err})
			continue
		}
		b := hubv1alpha1.Block{ClusterID: g.Member, CIDR: g.Prefix.String()}
		plan.Blocks, plan.Granted = append(plan.Blocks, b), append(plan.Granted, b)
	}
}

// Forgotten reports whether a ClusterSet lacks known blocks whose owners have not departed. No controller releases
// those: the ClusterSet was restored or edited. An owner that departed once and joined again is a member.
func Forgotten(
	known []hubv1alpha1.Block, set *hubv1alpha1.ClusterSet, profiles []inventoryv1alpha1.ClusterProfile,
) bool {
	departed, _ := absent(known, set, profiles)
	return slices.ContainsFunc(known, func(b hubv1alpha1.Block) bool {
		return !slices.Contains(set.Status.Blocks, b) && !slices.Contains(departed, b.ClusterID)
	})
}

// parse converts blocks. The CRD validates their CIDRs, so that none is left out.
func parse(blocks []hubv1alpha1.Block) (out []ipam.Grant) {
	for _, b := range blocks {
		if p, err := netip.ParsePrefix(b.CIDR); err == nil {
			out = append(out, ipam.Grant{Member: b.ClusterID, Prefix: p.Masked()})
		}
	}
	return out
}
