package status

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/table"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// PoolRow is one pool that members' blocks are cut from.
type PoolRow struct {
	Pool    string `json:"pool"`
	Bits    int    `json:"blockBits"` // how long the prefix of a new block is
	Granted int    `json:"granted"`
	Free    uint64 `json:"free"` // blocks, at most the largest number there is
}

// ranges tells of pools and of members' blocks.
func ranges(h *Hub, r *Report) {
	if len(h.Sets) != 1 {
		return
	}
	set := &h.Sets[0]
	if r.VIPMode = string(set.Spec.VIPs.Mode); r.VIPMode == "" {
		r.VIPMode = string(hubv1alpha1.VIPModeShared)
	}
	for _, p := range grants.Decide(grants.Facts{Set: set, Profiles: h.Profiles}).Pools {
		r.Pools = append(r.Pools, PoolRow{Pool: p.Prefix.String(), Bits: grants.Size(&set.Spec.VIPs, p.Prefix), Granted: p.Granted, Free: p.Free})
	}
	for i := range r.Members {
		for _, b := range set.Status.Blocks {
			if b.ClusterID == r.Members[i].Cluster {
				r.Members[i].Blocks = append(r.Members[i].Blocks, b.CIDR)
			}
		}
	}
}

// moving are the imports' VIPs in a range that is to go.
func moving(m *Member, r ipam.Range) (out []VIP) {
	if r.State != ipam.Draining && r.State != ipam.Terminating {
		return nil
	}
	for i := range m.Imports {
		for _, ip := range m.Imports[i].Spec.IPs {
			if a, err := netip.ParseAddr(ip); err == nil && r.Prefix.Contains(a) {
				out = append(out, VIP{IP: ip, Import: m.Imports[i].Name + "." + m.Imports[i].Namespace})
			}
		}
	}
	slices.SortFunc(out, func(a, b VIP) int { return cmp.Or(cmp.Compare(a.Import, b.Import), cmp.Compare(a.IP, b.IP)) })
	return out
}

// movingTable has every VIP of the ranges that are to go: Events name the first of them.
func movingTable(h *Here) (rows [][]string) {
	for _, r := range h.Ranges {
		for _, vip := range r.Moving {
			rows = append(rows, []string{r.Range, vip.IP, vip.Import})
		}
	}
	return rows
}

// fullRanges are told of each family that has ranges for VIPs, of which none gives out anything more.
func fullRanges(m *Member, add adder) {
	if m.VIPMode != ipam.ModePreferred {
		return
	}
	for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		ranges, free := 0, uint64(0)
		for _, u := range m.Ranges {
			if u.Range.Prefix.Addr().Is4() == (f == corev1.IPv4Protocol) && u.Range.State == ipam.Ready {
				ranges, free = ranges+1, max(free, u.Available)
			}
		}
		if ranges > 0 && free == 0 {
			add("this cluster", "add a pool to the ClusterSet, or here a ServiceCIDR labelled "+ipam.LabelVIPs, "no address of %s is free in its %s for VIPs: new VIPs come from the cluster's own ranges", f, table.Count(ranges, "range"))
		}
	}
}

// rangeProblems are told from what the hub shows, whether or not its controller runs: it decides by the same function.
func rangeProblems(h *Hub, add adder) {
	if len(h.Sets) != 1 {
		return
	}
	set := &h.Sets[0]
	plan := grants.Decide(grants.Facts{Set: set, Profiles: h.Profiles})
	edit := "kubectl -n " + h.Namespace + " edit clusterset " + set.Name + ": spec.vips.pools"
	if mode := set.Spec.VIPs.Mode; mode != "" && mode != hubv1alpha1.VIPModeShared && len(plan.Pools) == 0 {
		add("pools", edit, "mode %s has no pool that blocks can be cut from: members have VIPs from ServiceCIDRs that are labelled by hand only", mode)
	}
	for _, why := range plan.Unusable {
		add("pools", edit, "%s", why)
	}
	if len(plan.Meets) > 0 {
		met := make([]string, 0, len(plan.Meets))
		for _, m := range plan.Meets {
			met = append(met, m.String())
		}
		add("pools", edit+", ranges that no cluster uses", "%s: no block is cut there", grants.Few(met))
	}
	for _, a := range plan.Refused {
		add(a.Member, edit, "it asks for a block and cannot have one: %v", a.Err)
	}
	for _, o := range plan.Overlaps {
		add(o.Member, "free that range, or renumber it: the block stays", "%s", o.Message)
	}
	for _, u := range plan.Unreadable {
		add(u.Member, "in that cluster: kubectl get clusterproperties; look at the agent's log", "%s", u.Message)
	}
	for _, id := range grants.Lost(set, h.Profiles) {
		add(id, "join it again; if it is gone for good: kubectl -n "+h.Namespace+" edit clusterset "+set.Name+" --subresource=status, and take its blocks out",
			"it owns blocks and has no ClusterProfile: they are kept for it")
	}
}

// poolTable and blockTable are there where there is something to see.
func poolTable(r *Report) (out [][]string) {
	for _, p := range r.Pools {
		out = append(out, []string{p.Pool, "/" + strconv.Itoa(p.Bits), strconv.Itoa(p.Granted), many(p.Free)})
	}
	return out
}

func blockTable(r *Report) (out [][]string) {
	for i := range r.Members {
		if m := &r.Members[i]; len(m.Blocks) > 0 {
			out = append(out, []string{m.Cluster, strings.Join(m.Blocks, ", ")})
		}
	}
	return out
}

// many spares the reader what nobody counts.
func many(n uint64) string {
	if n >= 1<<20 {
		return "over a million"
	}
	return strconv.FormatUint(n, 10)
}
