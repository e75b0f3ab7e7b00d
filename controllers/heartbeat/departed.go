package heartbeat

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// departed tells whether the hub says that a member left or was evicted after it had created a record: that is gone then, and what it
// created since it came back is not. The absence of its ClusterProfile says nothing: an emptied hub has none either (DESIGN §2).
func (h *Heartbeat) departed(cluster string, created time.Time) bool {
	var sets hubv1alpha1.ClusterSetList
	ctx := context.Background() // caches answer at once
	if err := h.Hub().List(ctx, &sets, client.InNamespace(h.HubNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	for i := range sets.Items {
		for _, d := range sets.Items[i].Status.Departed {
			if d.ClusterID == cluster {
				return created.Before(d.At.Time)
			}
		}
	}
	return false
}
