package hub

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
)

// collector exports the inventory and the pools.
type collector struct {
	h              *Hub
	members        *prometheus.Desc
	pools, refused *prometheus.Desc
}

func newCollector(h *Hub) *collector {
	return &collector{
		h: h,
		members: prometheus.NewDesc("clusterset_hub_members",
			"ClusterProfiles by state: healthy (the member renews its Lease), expired (it does not), "+
				"pending (it has not joined yet), leaving.",
			[]string{"state"}, nil),
		pools: prometheus.NewDesc("clusterset_hub_pool_blocks",
			"Blocks of the ClusterSet's pools by state: granted, or free (of the size that is granted now).",
			[]string{"pool", "state"}, nil),
		refused: prometheus.NewDesc("clusterset_hub_members_refused_blocks",
			"Members that want a block and get none.", []string{"family"}, nil),
	}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.members
	ch <- c.pools
	ch <- c.refused
}

// Collect implements prometheus.Collector. It reads only the cache.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	var profiles inventoryv1alpha1.ClusterProfileList
	if !c.h.leads() || c.h.list(&profiles) != nil {
		return // another replica leads, or there is no cache yet
	}
	for state, n := range states(profiles.Items) {
		ch <- prometheus.MustNewConstMetric(c.members, prometheus.GaugeValue, float64(n), state)
	}
	var sets hubv1alpha1.ClusterSetList
	if c.h.list(&sets) == nil && len(sets.Items) == 1 {
		c.blocks(ch, &sets.Items[0], profiles.Items)
	}
}

// blocks exports what the grants would be now, so that nothing must be counted and remembered.
func (c *collector) blocks(
	ch chan<- prometheus.Metric, set *hubv1alpha1.ClusterSet, profiles []inventoryv1alpha1.ClusterProfile,
) {
	plan := grants.Decide(grants.Facts{Set: set, Profiles: profiles})
	for _, p := range plan.Pools {
		pool := p.Prefix.String()
		ch <- prometheus.MustNewConstMetric(c.pools, prometheus.GaugeValue, float64(p.Granted), pool, "granted")
		ch <- prometheus.MustNewConstMetric(c.pools, prometheus.GaugeValue, float64(p.Free), pool, "free")
	}
	refused := map[corev1.IPFamily]map[string]bool{corev1.IPv4Protocol: {}, corev1.IPv6Protocol: {}}
	for _, r := range plan.Refused {
		refused[r.Family][r.Member] = true
	}
	for family, members := range refused {
		ch <- prometheus.MustNewConstMetric(c.refused, prometheus.GaugeValue, float64(len(members)), string(family))
	}
}

// states returns how many of our ClusterProfiles are in each state.
func states(profiles []inventoryv1alpha1.ClusterProfile) map[string]int {
	out := map[string]int{"healthy": 0, "expired": 0, "pending": 0, "leaving": 0}
	for i := range profiles {
		if p := &profiles[i]; clusterset.IsOurs(p) {
			out[state(p)]++
		}
	}
	return out
}

// state returns the label value of a ClusterProfile.
func state(p *inventoryv1alpha1.ClusterProfile) string {
	switch {
	case p.DeletionTimestamp != nil:
		return "leaving"
	case !meta.IsStatusConditionTrue(p.Status.Conditions, inventoryv1alpha1.ConditionJoined):
		return "pending"
	case !meta.IsStatusConditionTrue(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy):
		return "expired"
	}
	return "healthy"
}
