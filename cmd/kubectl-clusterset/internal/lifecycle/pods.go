package lifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// podsWait returns why pods with this label do not run.
func podsWait(ctx context.Context, c *cluster.Cluster, label, value string) string {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(kube.SystemNamespace),
		client.MatchingLabels{label: value}); err != nil {
		return err.Error()
	}
	for i := range pods.Items {
		if why := doctor.Waiting(&pods.Items[i]); why != "" {
			return why
		}
	}
	if len(pods.Items) == 0 {
		return "no pod exists yet"
	}
	return report.Number(len(pods.Items), "pod") + " started"
}
