package lifecycle

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

// TestWhatIsNoHubEvictsNobody, and the error says so: a member has no ClusterProfiles.
func TestWhatIsNoHubEvictsNobody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`)
	}))
	defer server.Close()
	hub := inMemory(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return &meta.NoKindMatchError{}
		},
	})
	o, _ := options(hub)
	o.Hub.Config = &rest.Config{Host: server.URL}
	if err := Evict(t.Context(), o, "east"); err == nil ||
		err.Error() != "namespace blue of the hub holds no ClusterSet\n  → name the hub with --hub-context" {
		t.Error(err)
	}
}
