package agent

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

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
