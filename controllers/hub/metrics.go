package hub

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
)

// collector shows inventory and pools, beside controller-runtime's own metrics. Every series bears the clusterset (ID6).
type collector struct {
	h                *Hub
	members          *prometheus.Desc
	pools, unblocked *prometheus.Desc
}

func newCollector(h *Hub) *collector {
	set := prometheus.Labels{"clusterset": h.env.HubNamespace}
	return &collector{
		h: h,
		members: prometheus.NewDesc("clusterset_hub_members",
			"ClusterProfiles: healthy (the member renews its Lease), silent (it does not), pending (not joined yet), leaving.",
			[]string{"state"}, set),
		pools: prometheus.NewDesc("clusterset_hub_pool_blocks",
			"Blocks of the ClusterSet's pools: granted, and free of the size that is granted now.",
			[]string{"pool", "state"}, set),
		unblocked: prometheus.NewDesc("clusterset_hub_members_refused_blocks",
			"Members that ask for a block and cannot have one.", []string{"family"}, set),
	}
}

// Describe is prometheus.Collector's.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.members
	ch <- c.pools
	ch <- c.unblocked
}

// Collect is prometheus.Collector's. It reads the cache only.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	if !c.h.ready.Load() {
		return // another replica leads, or there is no cache yet
	}
	var list inventoryv1alpha1.ClusterProfileList
	if err := c.h.env.Hub().List(context.Background(), &list, client.InNamespace(c.h.env.HubNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return // it is stopping
	}
	states := map[string]int{"healthy": 0, "silent": 0, "pending": 0, "leaving": 0}
	for i := range list.Items {
		states[state(&list.Items[i])]++
	}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(c.members, prometheus.GaugeValue, float64(n), state)
	}
	c.blocks(ch, list.Items)
}

// blocks shows what would be decided now: nothing is counted that could be forgotten.
func (c *collector) blocks(ch chan<- prometheus.Metric, profiles []inventoryv1alpha1.ClusterProfile) {
	var sets hubv1alpha1.ClusterSetList
	err := c.h.env.Hub().List(context.Background(), &sets, client.InNamespace(c.h.env.HubNamespace), client.UnsafeDisableDeepCopy)
	if err != nil || len(sets.Items) != 1 {
		return
	}
	plan := grants.Decide(grants.Facts{Set: &sets.Items[0], Profiles: profiles})
	for _, p := range plan.Pools {
		ch <- prometheus.MustNewConstMetric(c.pools, prometheus.GaugeValue, float64(p.Granted), p.Prefix.String(), "granted")
		ch <- prometheus.MustNewConstMetric(c.pools, prometheus.GaugeValue, float64(p.Free), p.Prefix.String(), "free")
	}
	refused := map[corev1.IPFamily]map[string]bool{corev1.IPv4Protocol: {}, corev1.IPv6Protocol: {}}
	for _, r := range plan.Refused {
		refused[r.Family][r.Member] = true
	}
	for family, members := range refused {
		ch <- prometheus.MustNewConstMetric(c.unblocked, prometheus.GaugeValue, float64(len(members)), string(family))
	}
}

func state(p *inventoryv1alpha1.ClusterProfile) string {
	switch is := func(condition string) bool {
		return meta.IsStatusConditionPresentAndEqual(p.Status.Conditions, condition, metav1.ConditionTrue)
	}; {
	case p.DeletionTimestamp != nil:
		return "leaving"
	case !is(inventoryv1alpha1.ConditionJoined):
		return "pending"
	case !is(inventoryv1alpha1.ConditionControlPlaneHealthy):
		return "silent"
	}
	return "healthy"
}
