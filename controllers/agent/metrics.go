package agent

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// collector shows what an agent knows, beside controller-runtime's own metrics. Every series bears cluster and clusterset (ID6).
type collector struct {
	a                        *Agent
	fresh, records, relisted *prometheus.Desc
}

func newCollector(a *Agent) *collector {
	labels := prometheus.Labels{"cluster": a.Cluster, "clusterset": a.HubNamespace}
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("clusterset_agent_"+name, help, variable, labels)
	}
	return &collector{
		a:        a,
		fresh:    desc("hub_fresh", "1 while the hub shows this agent its own Lease renewals, else 0: then nothing is taken away on what it shows."),
		records:  desc("records", "ServiceExportRecords in effect in this cluster: own, followed (a peer's as the hub shows it), held (a peer's that the hub shows otherwise or not at all).", "state"),
		relisted: desc("hub_relists_total", "How often the hub was read again because its watches were found to be wrong."),
	}
}

// Describe is prometheus.Collector's.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.fresh
	ch <- c.records
	ch <- c.relisted
}

// Collect is prometheus.Collector's. It reads caches only.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	fresh := 0.0
	if c.a.env.Fresh() {
		fresh = 1
	}
	ch <- prometheus.MustNewConstMetric(c.fresh, prometheus.GaugeValue, fresh)
	ch <- prometheus.MustNewConstMetric(c.relisted, prometheus.CounterValue, float64(c.a.relists.Load()))
	if !c.a.ready.Load() {
		return // there is no cache yet
	}
	var list hubv1alpha1.ServiceExportRecordList
	if err := c.a.env.Local.List(context.Background(), &list, client.InNamespace(kube.SystemNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return // the agent is stopping
	}
	states := map[string]int{"own": 0, "followed": 0, "held": 0}
	for i := range list.Items {
		switch rec := &list.Items[i]; {
		case rec.Spec.Withdrawn:
		case rec.Spec.ClusterID == c.a.Cluster:
			states["own"]++
		case meta.IsStatusConditionTrue(rec.Status.Conditions, hubv1alpha1.ConditionHeld):
			states["held"]++
		default:
			states["followed"]++
		}
	}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(c.records, prometheus.GaugeValue, float64(n), state)
	}
}
