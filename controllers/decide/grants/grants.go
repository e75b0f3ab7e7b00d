// Package grants decides which member owns which blocks of a ClusterSet's pools (DESIGN §5, SPEC V2). Pure: the
// ClusterSet, what members tell of themselves, and whose traces are gone, in; the blocks and what is to be said of
// them, out. ipam.Carve cuts; here is who asks, what
// is known, and what is wrong.
package grants

import (
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

// Facts are all that the grants depend on. They are not changed.
type Facts struct {
	Set      *hubv1alpha1.ClusterSet
	Profiles []inventoryv1alpha1.ClusterProfile // all of the namespace
	// Gone are those of Departed of whom nothing is left on the hub.
	Gone map[string]bool
	// Unsure tells that members may hold blocks which the ClusterSet does not show: nothing is granted.
	Unsure bool
	// Restored tells that they may have held such blocks since the program began: what they have ranges in is
	// theirs again. Else a cluster's own
	// range that lies in a pool is a mistake, to be left out and told of.
	Restored bool
}

// Plan is what is to stand in the ClusterSet's status, and what is to be said.
type Plan struct {
	Blocks            []hubv1alpha1.Block
	Conditions        []metav1.Condition // types that are not among them are to go
	Granted, Released []hubv1alpha1.Block
	Waiting           bool // there would be more to grant, and the Facts are Unsure

	Unreadable []Said // properties
	Refused    []ipam.AskRefused
	Overlaps   []Said // blocks that meet what became known too late
	Pools      []Pool
	Unusable   []string // pools, and why
	Meets      []Meeting
}

// ReasonWaiting is BlocksGranted's while the Facts are Unsure.
const ReasonWaiting = "Waiting"

// Said is about one member.
type Said struct{ Member, Message string }

// Departed are the owners of blocks that have no ClusterProfile any more and whose departure is on record. Absence
// alone is no departure
// (DESIGN §2): of an emptied or restored hub nobody loses a block.
func Departed(set *hubv1alpha1.ClusterSet, profiles []inventoryv1alpha1.ClusterProfile) (ids []string) {
	departed, _ := without(set.Status.Blocks, set, profiles)
	return departed
}

// Lost are those whose departure is not on record: their blocks are kept for them.
func Lost(set *hubv1alpha1.ClusterSet, profiles []inventoryv1alpha1.ClusterProfile) (ids []string) {
	_, lost := without(set.Status.Blocks, set, profiles)
	return lost
}

// without are the owners of blocks that have no ClusterProfile.
func without(
	blocks []hubv1alpha1.Block,
	set *hubv1alpha1.ClusterSet,
	profiles []inventoryv1alpha1.ClusterProfile,
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

// Decide grants what is asked for and free, and releases the blocks of those who are Gone. What is released is
// granted by a later
// decision at the earliest: by then it stands in the API that it is nobody's.
func Decide(f Facts) Plan {
	v := &f.Set.Spec.VIPs
	pools, unusable := Usable(v)
	in := ipam.Carving{Pools: pools, Granted: granted(f.Set), Own: map[string][]netip.Prefix{}}
	in.BitsV4, in.BitsV6 = size(v)
	plan := Plan{Unusable: unusable}
	all := map[string]Told{}
	for i := range f.Profiles {
		p := &f.Profiles[i]
		if p.Spec.ClusterManager.Name != clusterset.ClusterManager {
			continue
		}
		told := Read(p.Status.Properties)
		all[p.Name] = told
		if f.Restored {
			in.Own[p.Name] = told.Services
		}
		for _, why := range told.Unreadable {
			plan.Unreadable = append(plan.Unreadable, Said{p.Name, why})
		}
		for use, ranges := range told.ranges() {
			for _, r := range ranges {
				in.Known = append(in.Known, ipam.Known{Member: p.Name, Prefix: r, For: use})
			}
		}
		if asksFor(v, p, &told) {
			in.Asks = append(in.Asks, asks(p, &told, pools)...)
		}
	}
	carved := ipam.Carve(in)
	plan.Refused = carved.Refused
	if plan.Waiting = f.Unsure && len(carved.Grants) > 0; plan.Waiting {
		carved.Grants = nil
	}
	plan.apply(f, carved.Grants)
	plan.Overlaps = overlaps(carved.Overlaps, in.Granted, all)
	blocks := slices.Concat(in.Granted, cut(plan.Granted))
	plan.Pools = countPools(v, pools, blocks, in.Known)
	plan.Meets = meets(pools, in.Known, blocks)
	plan.Conditions = conditions(f.Set, &plan, pools)
	return plan
}

// asksFor reports whether a member is to have blocks: while it is one, and once it has told of its ranges.
func asksFor(v *hubv1alpha1.VIPs, p *inventoryv1alpha1.ClusterProfile, told *Told) bool {
	return v.Mode != "" && v.Mode != hubv1alpha1.VIPModeShared && told.anything() &&
		p.DeletionTimestamp == nil && p.Annotations[clusterset.AnnotationLeft] == ""
}

// asks are by default for one block of each family that there is a pool of.
func asks(p *inventoryv1alpha1.ClusterProfile, told *Told, pools []netip.Prefix) []ipam.Ask {
	want := clusterset.BlocksWanted{}
	if told.Wanted != nil {
		want = *told.Wanted
	} else {
		has := families(pools)
		if has[corev1.IPv4Protocol] {
			want.IPv4 = 1
		}
		if has[corev1.IPv6Protocol] {
			want.IPv6 = 1
		}
	}
	since := p.CreationTimestamp.Time
	return []ipam.Ask{
		{Member: p.Name, Family: corev1.IPv4Protocol, Blocks: want.IPv4, Since: since},
		{Member: p.Name, Family: corev1.IPv6Protocol, Blocks: want.IPv6, Since: since},
	}
}

// apply makes the new list of blocks: in the order in which they were granted.
func (plan *Plan) apply(f Facts, grants []ipam.Grant) {
	for _, b := range f.Set.Status.Blocks {
		if f.Gone[b.ClusterID] {
			plan.Released = append(plan.Released, b)
		} else {
			plan.Blocks = append(plan.Blocks, b)
		}
	}
	for _, g := range grants {
		if len(plan.Blocks) >= hubv1alpha1.MaxBlocks {
			plan.Refused = append(
				plan.Refused,
				ipam.AskRefused{Member: g.Member, Family: familyOf(g.Prefix), Err: fmt.Errorf(
					"%w: a ClusterSet has at most %d blocks; make its blocks larger, so that members need fewer",
					ipam.ErrFull,
					hubv1alpha1.MaxBlocks,
				)},
			)
			continue
		}
		b := hubv1alpha1.Block{ClusterID: g.Member, CIDR: g.Prefix.String()}
		plan.Blocks, plan.Granted = append(plan.Blocks, b), append(plan.Granted, b)
	}
}

func familyOf(p netip.Prefix) corev1.IPFamily {
	if p.Addr().Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// Forgotten reports whether a ClusterSet lacks blocks that were there, and whose owners have not departed: nobody
// releases those, so that it
// was restored, or edited by hand. Who joined again is a member: that it had departed once stays on record.
func Forgotten(
	known []hubv1alpha1.Block,
	set *hubv1alpha1.ClusterSet,
	profiles []inventoryv1alpha1.ClusterProfile,
) bool {
	departed, _ := without(known, set, profiles)
	return slices.ContainsFunc(known, func(b hubv1alpha1.Block) bool {
		return !slices.Contains(set.Status.Blocks, b) && !slices.Contains(departed, b.ClusterID)
	})
}

// granted are the blocks as they stand; the CRD lets nothing in that is no CIDR.
func granted(set *hubv1alpha1.ClusterSet) []ipam.Grant { return cut(set.Status.Blocks) }

func cut(blocks []hubv1alpha1.Block) (out []ipam.Grant) {
	for _, b := range blocks {
		if p, err := netip.ParsePrefix(b.CIDR); err == nil {
			out = append(out, ipam.Grant{Member: b.ClusterID, Prefix: p.Masked()})
		}
	}
	return out
}
