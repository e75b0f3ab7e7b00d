package lifecycle

import (
	"strings"
	"testing"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// TestP2OnlyMembersAreEvicted: another cluster manager's ClusterProfile is not ours to delete.
func TestP2OnlyMembersAreEvicted(t *testing.T) {
	all := make([]inventoryv1alpha1.ClusterProfile, 2)
	all[0].Name, all[0].Spec.ClusterManager.Name = "theirs", "another"
	all[1].Name, all[1].Spec.ClusterManager.Name = "east", "clusterset-dns"
	for id, says := range map[string]string{"east": "", "theirs": "belongs to the cluster manager another",
		"nobody": "no member nobody; members are: east"} {
		err := evictable(all, id)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", id, err)
		}
	}
}
