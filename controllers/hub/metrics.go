package hub

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// collector shows the inventory, beside controller-runtime's own metrics. Every series bears the clusterset (ID6).
type collector struct {
	h       *Hub
	members *prometheus.Desc
}

func newCollector(h *Hub) *collector {
	return &collector{h, prometheus.NewDesc("clusterset_hub_members",
		"ClusterProfiles: healthy (the member renews its Lease), silent (it does not), pending (not joined yet), leaving.",
		[]string{"state"}, prometheus.Labels{"clusterset": h.env.HubNamespace})}
}

// Describe is prometheus.Collector's.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.members }

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
