package hub

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// TestClusterProfilesOfOtherManagersAreNoMembers.
func TestClusterProfilesOfOtherManagersAreNoMembers(t *testing.T) {
	profile := func(manager string, conditions ...string) (p inventoryv1alpha1.ClusterProfile) {
		p.Spec.ClusterManager.Name = manager
		for _, c := range conditions {
			p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
		}
		return p
	}
	const joined, healthy = inventoryv1alpha1.ConditionJoined, inventoryv1alpha1.ConditionControlPlaneHealthy
	leaving := profile(clusterset.ClusterManager, joined)
	leaving.DeletionTimestamp = new(metav1.Time)
	got := states([]inventoryv1alpha1.ClusterProfile{
		profile("another"), profile("another", joined, healthy), leaving,
		profile(clusterset.ClusterManager), profile(clusterset.ClusterManager, joined),
		profile(clusterset.ClusterManager, joined, healthy),
	})
	if want := map[string]int{"healthy": 1, "expired": 1, "pending": 1, "leaving": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
