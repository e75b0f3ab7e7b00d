package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// podsWait is what keeps the pods with this label from running, as far as they tell.
func podsWait(ctx context.Context, c *cluster.Cluster, label, value string) string {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(kube.SystemNamespace), client.MatchingLabels{label: value}); err != nil {
		return err.Error()
	}
	for i := range pods.Items {
		if why := doctor.Waiting(&pods.Items[i]); why != "" {
			return why
		}
	}
	if len(pods.Items) == 0 {
		return "there is no pod yet"
	}
	return fmt.Sprintf("%d pods are there", len(pods.Items))
}
