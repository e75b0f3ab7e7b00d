package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

var poolChecks = []Check{
	{"pools", []Topic{Hub}, onPlan(pools)},
	{"pools-ranges", []Topic{Hub, Ranges, Membership}, onPlan(poolsRanges)},
	{"blocks", []Topic{Hub}, onPlan(blocks)},
	{"ranges-members", []Topic{Hub}, rangesMembers},
}

const editPools = "on the hub: kubectl -n NAMESPACE edit clusterset NAME: spec.vips.pools, ranges that no cluster uses"

// onPlan makes a check of what the hub decides; with several ClusterSets it decides nothing.
func onPlan(look func(*Facts, *hubv1alpha1.ClusterSet, *grants.Plan) []Finding) func(*Facts) []Finding {
	return func(f *Facts) []Finding {
		if len(f.HubFacts.Sets) != 1 {
			return nil
		}
		set := &f.HubFacts.Sets[0]
		plan := grants.Decide(grants.Facts{Set: set, Profiles: f.HubFacts.Profiles})
		return look(f, set, &plan)
	}
}

func pools(_ *Facts, set *hubv1alpha1.ClusterSet, plan *grants.Plan) (out []Finding) {
	if mode := set.Spec.VIPs.Mode; mode != "" && mode != hubv1alpha1.VIPModeShared && len(plan.Pools) == 0 {
		out = append(out, warn(editPools, "the ClusterSet's mode is %s and it has no pool that blocks can be cut from: VIPs come from ServiceCIDRs that are labelled by hand only", mode)...)
	}
	for _, why := range plan.Unusable {
		out = append(out, wrong(editPools, "%s", why)...)
	}
	for _, r := range plan.Refused {
		out = append(out, wrong(editPools, "cluster %s asks the hub for a block and cannot have one: %v", r.Member, r.Err)...)
	}
	return out
}

// poolsRanges goes by what members tell, and here by what is there: an agent may have told nothing yet.
func poolsRanges(f *Facts, set *hubv1alpha1.ClusterSet, plan *grants.Plan) (out []Finding) {
	var met []string
	for _, m := range plan.Meets {
		if m.With.Member != f.ID {
			met = append(met, m.String())
		}
	}
	if len(met) > 0 {
		out = warn(editPools, "%s: no block is cut there, and in that cluster packets to VIPs would go astray", grants.Few(met))
	}
	for _, kind := range []struct {
		name   string
		ranges []netip.Prefix
	}{{"pod range", f.PodRanges}, {"service range", f.ServiceRanges}} {
		for _, r := range kind.ranges {
			for _, p := range plan.Pools {
				if p.Prefix.Overlaps(r) && !slices.ContainsFunc(set.Status.Blocks, owns(f.ID, r)) {
					out = append(out, warn(editPools, "pool %s meets this cluster's own %s %s", p.Prefix, kind.name, r)...)
				}
			}
		}
	}
	return out
}

// owns tells of a block that is the cluster's and holds a range.
func owns(id string, r netip.Prefix) func(hubv1alpha1.Block) bool {
	return func(b hubv1alpha1.Block) bool {
		p, err := netip.ParsePrefix(b.CIDR)
		return err == nil && grants.Inside(ipam.Known{Member: id, Prefix: r.Masked()}, ipam.Grant{Member: b.ClusterID, Prefix: p.Masked()})
	}
}

func blocks(f *Facts, set *hubv1alpha1.ClusterSet, plan *grants.Plan) (out []Finding) {
	for _, o := range plan.Overlaps {
		out = append(out, wrong("the block stays, since VIPs may be in use there: free that range, or renumber it", "cluster %s: %s", o.Member, o.Message)...)
	}
	for _, u := range plan.Unreadable {
		out = append(out, warn("in that cluster: kubectl get clusterproperties; look at the agent's log", "cluster %s: %s", u.Member, u.Message)...)
	}
	for _, id := range grants.Lost(set, f.HubFacts.Profiles) {
		out = append(out, warn("join it again; if it is gone for good: kubectl edit clusterset --subresource=status on the hub, and take its blocks out",
			"cluster %s owns blocks and has no ClusterProfile: they are kept for it", id)...)
	}
	return out
}

// rangesMembers finds pods of one member that another takes for its own pods or Services. Service ranges may be the same everywhere: no
// packet to a VIP leaves its cluster.
func rangesMembers(f *Facts) []Finding {
	told := map[string]grants.Told{}
	for i := range f.HubFacts.Profiles {
		p := &f.HubFacts.Profiles[i]
		told[p.Name] = grants.Read(p.Status.Properties)
	}
	var met []string
	for a := range told {
		for b := range told {
			if p, q, meet := meeting(told[a].Pods, told[b].Pods); meet && a < b { // once for each two
				met = append(met, fmt.Sprintf("the pod range %s of cluster %s meets the pod range %s of cluster %s", p, a, q, b))
			}
			if p, q, meet := meeting(told[a].Pods, told[b].Services); meet && a != b {
				met = append(met, fmt.Sprintf("the pod range %s of cluster %s meets the service range %s of cluster %s", p, a, q, b))
			}
		}
	}
	if len(met) == 0 {
		return nil
	}
	slices.Sort(met)
	return warn("the clusters' ranges must not overlap for packets to find their way: renumber one, or put a gateway that translates between them", "%s", grants.Few(met))
}

func meeting(a, b []netip.Prefix) (p, q netip.Prefix, meet bool) {
	for _, p := range a {
		for _, q := range b {
			if p.Overlaps(q) {
				return p, q, true
			}
		}
	}
	return p, q, false
}
