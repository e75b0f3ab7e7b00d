package agent

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// collector shows what an agent knows, beside controller-runtime's own metrics. The program adds cluster and clusterset
// to every series (ID6).
type collector struct{ a *Agent }

// Describe implements prometheus.Collector. It names no metric: Collect does.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. It reads caches and the hub's kubeconfig, and sends no request.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ready := c.a.ready.Load()
	c.gauge(ch, "member", "1 while this cluster is a member and this replica leads.", boolean(ready))
	c.gauge(ch, "hub_fresh", "1 while the hub shows this agent its own Lease renewals; else nothing is removed "+
		"because of what it shows.", boolean(c.a.env.Fresh()))
	c.gauge(ch, "cloned", "1 while this agent publishes nothing because a clone of this cluster renews this member's "+
		"Lease.", boolean(c.a.env.Cloned()))
	c.token(ch)
	for _, s := range c.a.health.Conditions() {
		c.gauge(ch, "condition", "1 for what each condition of this cluster's Membership is: True, False or Unknown; "+
			"and its reason.", 1, "condition", s.Type, "status", string(s.Status), "reason", s.Reason)
	}
	if !ready {
		return // there is no cache yet
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // a cache that has not synced is waited for
	defer cancel()
	foreign := c.records(ctx, ch)
	c.exported(ctx, ch, foreign)
	c.imported(ctx, ch)
	c.sources(ctx, ch)
}

// gauge shows a value. labels are names, each with its value behind it.
func (c *collector) gauge(ch chan<- prometheus.Metric, name, help string, value float64, labels ...string) {
	var names, values []string
	for label := range slices.Chunk(labels, 2) {
		names, values = append(names, label[0]), append(values, label[1])
	}
	desc := prometheus.NewDesc("clusterset_agent_"+name, help, names, nil)
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, values...)
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

// records shows this cluster's copies, and returns the names whose import belongs to another program (I10).
func (c *collector) records(ctx context.Context, ch chan<- prometheus.Metric) (foreign map[types.NamespacedName]bool) {
	var list hubv1alpha1.ServiceExportRecordList
	if !c.list(ctx, &list, client.InNamespace(kube.SystemNamespace)) {
		return nil
	}
	foreign = map[types.NamespacedName]bool{}
	states := map[string]int{"own": 0, "followed": 0, "held": 0, "incomplete": 0}
	for i := range list.Items {
		rec := &list.Items[i]
		notOwned := kube.NotOwned(rec)
		if notOwned {
			foreign[kube.Exported(rec)] = true
		}
		switch conditions := rec.Status.Conditions; {
		case rec.Spec.Withdrawn:
		case meta.IsStatusConditionTrue(conditions, hubv1alpha1.ConditionHeld):
			states["held"]++
		case lacksEndpoints(conditions),
			meta.FindStatusCondition(conditions, hubv1alpha1.ConditionImported) != nil && !notOwned:
			states["incomplete"]++
		case rec.Spec.ClusterID == c.a.Cluster:
			states["own"]++
		default:
			states["followed"]++
		}
	}
	for state, n := range states {
		c.gauge(ch, "records", "ServiceExportRecords in effect in this cluster: own; followed (another member's, as "+
			"on the hub); held (another member's, not as on the hub); incomplete (this cluster refuses the "+
			"import or endpoints, or endpoints are missing).", float64(n), "state", state)
	}
	return foreign
}

// lacksEndpoints reports whether not all endpoints are imported, unless the hub refuses them: their exporter says that,
// and every importer would.
func lacksEndpoints(conditions []metav1.Condition) bool {
	imported := meta.FindStatusCondition(conditions, hubv1alpha1.ConditionEndpointsImported)
	return imported != nil && imported.Status == metav1.ConditionFalse &&
		imported.Reason != hubv1alpha1.ReasonRefusedByHub
}

func (c *collector) exported(ctx context.Context, ch chan<- prometheus.Metric, foreign map[types.NamespacedName]bool) {
	var list mcsv1beta1.ServiceExportList
	if !c.list(ctx, &list) {
		return
	}
	states, conflicts := none(), 0
	states["invalid"], states["not_owned"] = 0, 0
	for i := range list.Items {
		conditions := list.Items[i].Status.Conditions
		state := readiness(conditions, string(mcsv1beta1.ServiceExportConditionReady))
		switch {
		case foreign[client.ObjectKeyFromObject(&list.Items[i])]:
			state = "not_owned" // the conditions are that program's
		case meta.IsStatusConditionFalse(conditions, string(mcsv1beta1.ServiceExportConditionValid)):
			state = "invalid"
		}
		states[state]++
		if meta.IsStatusConditionTrue(conditions, string(mcsv1beta1.ServiceExportConditionConflict)) {
			conflicts++
		}
	}
	for state, n := range states {
		c.gauge(ch, "exports", "ServiceExports of this cluster: ready (on the hub), not_ready, invalid (as without "+
			"a Service), not_owned (another program owns the import here).", float64(n), "state", state)
	}
	c.gauge(ch, "export_conflicts", "ServiceExports of this cluster whose condition Conflict is True.",
		float64(conflicts))
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
	for state, n := range states {
		c.gauge(ch, "imports", "ServiceImports that the agent created: ready, not_ready (without a VIP).", float64(n),
			"state", state)
	}
	c.gauge(ch, "vips", "Addresses of these ServiceImports.", float64(ips))
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
	leases, err := kube.Sources(ctx, c.a.env.Local)
	if err != nil {
		return
	}
	c.gauge(ch, "sources_held", "1 while most other members do not renew their Leases, and none of them expires by "+
		"its Lease because of that.", boolean(c.a.env.Held()))
	for i := range leases {
		lease := &leases[i]
		if lease.Spec.RenewTime == nil {
			continue // edited by hand
		}
		source := lease.Labels[liveness.LabelSource]
		c.gauge(ch, "source_live", "1 while another member is live, 0 while it is expired in this cluster.",
			boolean(!liveness.StateOf(lease).Expired), "source", source)
		r := reach.Read(lease)
		c.gauge(ch, "source_reach", "1 for what is known of another member: Answers, Silent (its agent), Serving (its "+
			"agent is silent, an endpoint answers), Unreachable, or Unknown (its agent never answered).", 1,
			"source", source, "state", r.State.String())
		if r.RoundTrip > 0 {
			c.gauge(ch, "source_round_trip_seconds", "Time to connect to the agent of another member, when its Lease "+
				"was last stored here.", r.RoundTrip.Seconds(), "source", source)
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
	c.gauge(ch, "token_expiry_timestamp_seconds", "When the token for the hub expires.", float64(token.Expires))
	c.gauge(ch, "token_lifetime_seconds", "The lifetime of that token, which is renewed 24 times in it.",
		token.Lifetime().Seconds())
}
