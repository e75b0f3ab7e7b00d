package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// sources shows the other members, as this cluster has seen them.
func (c *collector) sources(ctx context.Context, ch chan<- prometheus.Metric) {
	var list coordinationv1.LeaseList
	if !c.list(ctx, &list, client.InNamespace(kube.SystemNamespace), client.HasLabels{liveness.LabelSource}) {
		return
	}
	for i := range list.Items {
		lease := &list.Items[i]
		if lease.Name != liveness.LeaseName(lease.Labels[liveness.LabelSource]) || lease.Spec.RenewTime == nil {
			continue // edited by hand: two of one source would make the whole page fail
		}
		source := lease.Labels[liveness.LabelSource]
		c.gauge(ch, c.sourceLive, boolean(!liveness.VerdictOf(lease).Dead), source)
		c.gauge(ch, c.sourceSeen, float64(lease.Spec.RenewTime.UnixMicro())/1e6, source)
	}
}

// token shows how long the agent may still write to the hub. Credentials of another kind, such as a client certificate, show nothing.
func (c *collector) token(ch chan<- prometheus.Metric) {
	cfg, err := c.a.hub()
	if err != nil {
		return // there is no kubeconfig yet, which the log says
	}
	issued, expires, ok := validity(cfg.BearerToken)
	if !ok {
		return
	}
	c.gauge(ch, c.tokenExpires, float64(expires))
	c.gauge(ch, c.tokenLives, float64(expires-issued))
}

// validity is what a JSON Web Token says of itself (RFC 7519 §4.1), in Unix seconds; the hub is who checks it.
func validity(token string) (issued, expires int64, ok bool) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return 0, 0, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return 0, 0, false
	}
	var claims struct {
		Issued  int64 `json:"iat"`
		Expires int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Expires <= claims.Issued {
		return 0, 0, false
	}
	return claims.Issued, claims.Expires, true
}
