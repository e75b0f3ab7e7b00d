package heartbeat

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// departed tells whether the hub says that a member has left or was evicted, and is none again. The absence of its ClusterProfile alone
// says nothing: an emptied hub has none either (DESIGN §2).
func (h *Heartbeat) departed(cluster string) bool {
	ctx := context.Background() // caches answer at once
	var sets hubv1alpha1.ClusterSetList
	if err := h.Hub().List(ctx, &sets, client.InNamespace(h.HubNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	for i := range sets.Items {
		for _, d := range sets.Items[i].Status.Departed {
			if d.ClusterID == cluster {
				profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, h.Hub(), types.NamespacedName{Namespace: h.HubNamespace, Name: cluster})
				return err == nil && (profile == nil || profile.DeletionTimestamp != nil)
			}
		}
	}
	return false
}
