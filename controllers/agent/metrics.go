package agent

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// collector shows what an agent knows, beside controller-runtime's own metrics. Every series bears cluster and
// clusterset (ID6).
type collector struct {
	a                                        *Agent
	member, fresh, cloned                    *prometheus.Desc
	records, exports, conflicts, imports, ip *prometheus.Desc
	sourceLive, sourcesHeld                  *prometheus.Desc
	sourceReach, roundTrip                   *prometheus.Desc
	tokenExpires, tokenLives                 *prometheus.Desc
}

func newCollector(a *Agent) *collector {
	labels := prometheus.Labels{"cluster": a.Cluster, "clusterset": a.HubNamespace}
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("clusterset_agent_"+name, help, variable, labels)
	}
	return &collector{
		a:      a,
		member: desc("member", "1 while this cluster is a member and this replica leads."),
		fresh: desc(
			"hub_fresh",
			"1 while the hub shows this agent its own Lease renewals; else nothing is removed because of what it shows.",
		),
		cloned: desc("cloned",
			"1 while this agent publishes nothing because a clone of this cluster renews this member's Lease."),
		records: desc(
			"records",
			"ServiceExportRecords in effect in this cluster: own; followed (another member's, as on the "+
				"hub); held (another member's, not as on the hub).",
			"state",
		),
		exports:   desc("exports", "ServiceExports of this cluster: ready (on the hub), not_ready.", "state"),
		conflicts: desc("export_conflicts", "ServiceExports of this cluster whose condition Conflict is True."),
		imports:   desc("imports", "ServiceImports that the agent created: ready, not_ready (without a VIP).", "state"),
		ip:        desc("vips", "Addresses of these ServiceImports."),
		sourceLive: desc(
			"source_live", "1 while another member is live, 0 while it is expired in this cluster.", "source",
		),
		sourcesHeld: desc(
			"sources_held",
			"1 while most other members do not renew their Leases, and none of them expires by its Lease because of that.",
		),
		sourceReach: desc(
			"source_reach",
			"1 for what is known of another member: Answers, Silent (its agent), Serving (its "+
				"agent is silent, an endpoint answers), Unreachable, or Unknown (its agent never answered).",
			"source",
			"state",
		),
		roundTrip: desc("source_round_trip_seconds",
			"Time to connect to the agent of another member, when its Lease was last stored here.", "source"),
		tokenExpires: desc("token_expiry_timestamp_seconds", "When the token for the hub expires."),
		tokenLives:   desc("token_lifetime_seconds", "The lifetime of that token, which is renewed 24 times in it."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.member, c.fresh, c.cloned, c.records, c.exports, c.conflicts, c.imports, c.ip,
		c.sourceLive, c.sourcesHeld, c.sourceReach, c.roundTrip, c.tokenExpires, c.tokenLives,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It reads caches and the hub's kubeconfig, and sends no request.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ready := c.a.ready.Load()
	c.gauge(ch, c.member, boolean(ready))
	c.gauge(ch, c.fresh, boolean(c.a.env.Fresh()))
	c.gauge(ch, c.cloned, boolean(c.a.env.Cloned()))
	c.token(ch)
	if !ready {
		return // there is no cache yet
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // a cache that has not synced is waited for
	defer cancel()
	c.recordsHeld(ctx, ch)
	c.exported(ctx, ch)
	c.imported(ctx, ch)
	c.sources(ctx, ch)
}

func (c *collector) gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func boolean(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// list reads a cache. It fails only where the agent stops, or where the cache is not there yet: what it would show is
// left out.
func (c *collector) list(ctx context.Context, into client.ObjectList, of ...client.ListOption) bool {
	return c.a.env.Local.List(ctx, into, append(of, client.UnsafeDisableDeepCopy)...) == nil
}

func (c *collector) states(ch chan<- prometheus.Metric, d *prometheus.Desc, states map[string]int) {
	for state, n := range states {
		c.gauge(ch, d, float64(n), state)
	}
}

func (c *collector) recordsHeld(ctx context.Context, ch chan<- prometheus.Metric) {
	var list hubv1alpha1.ServiceExportRecordList
	if !c.list(ctx, &list, client.InNamespace(kube.SystemNamespace)) {
		return
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
	c.states(ch, c.records, states)
}

func (c *collector) exported(ctx context.Context, ch chan<- prometheus.Metric) {
	var list mcsv1beta1.ServiceExportList
	if !c.list(ctx, &list) {
		return
	}
	states, conflicts := none(), 0
	for i := range list.Items {
		conditions := list.Items[i].Status.Conditions
		states[readiness(conditions, string(mcsv1beta1.ServiceExportConditionReady))]++
		if meta.IsStatusConditionTrue(conditions, string(mcsv1beta1.ServiceExportConditionConflict)) {
			conflicts++
		}
	}
	c.states(ch, c.exports, states)
	c.gauge(ch, c.conflicts, float64(conflicts))
}

func (c *collector) imported(ctx context.Context, ch chan<- prometheus.Metric) {
	var list mcsv1beta1.ServiceImportList
	if !c.list(ctx, &list) {
		return
	}
	states, ips := none(), 0
	for i := range list.Items {
		if !kube.Manages(&list.Items[i]) { // another implementation's
			continue
		}
		states[readiness(list.Items[i].Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))]++
		ips += len(list.Items[i].Spec.IPs)
	}
	c.states(ch, c.imports, states)
	c.gauge(ch, c.ip, float64(ips))
}

func none() map[string]int { return map[string]int{"ready": 0, "not_ready": 0} }

func readiness(conditions []metav1.Condition, ready string) string {
	if meta.IsStatusConditionTrue(conditions, ready) {
		return "ready"
	}
	return "not_ready"
}

// sources shows the other members, as this cluster has seen them.
func (c *collector) sources(ctx context.Context, ch chan<- prometheus.Metric) {
	var list coordinationv1.LeaseList
	if !c.list(ctx, &list, client.InNamespace(kube.SystemNamespace), client.HasLabels{liveness.LabelSource}) {
		return
	}
	c.gauge(ch, c.sourcesHeld, boolean(c.a.env.Held()))
	for i := range list.Items {
		lease := &list.Items[i]
		if lease.Name != liveness.LeaseName(lease.Labels[liveness.LabelSource]) || lease.Spec.RenewTime == nil {
			continue // edited by hand: two of one source would make the whole page fail
		}
		source := lease.Labels[liveness.LabelSource]
		c.gauge(ch, c.sourceLive, boolean(!liveness.StateOf(lease).Expired), source)
		r := reach.Read(lease)
		c.gauge(ch, c.sourceReach, 1, source, r.State.String())
		if r.RoundTrip > 0 {
			c.gauge(ch, c.roundTrip, r.RoundTrip.Seconds(), source)
		}
	}
}

// token shows how long the agent may still write to the hub. Credentials of another kind, such as a
// client certificate, show nothing.
func (c *collector) token(ch chan<- prometheus.Metric) {
	cfg, err := c.a.hub()
	if err != nil {
		return // there is no kubeconfig yet, which the log says
	}
	token, err := clusterset.ParseToken(cfg.BearerToken)
	if err != nil {
		return
	}
	c.gauge(ch, c.tokenExpires, float64(token.Expires))
	c.gauge(ch, c.tokenLives, token.Lifetime().Seconds())
}
