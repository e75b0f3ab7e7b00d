package serviceimport

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestOnlyAPeersRecordThatHasChangedGoesAhead: among the records of a first list it is what somebody waits for.
func TestOnlyAPeersRecordThatHasChangedGoesAhead(t *testing.T) {
	imp := &endpoints.Import{
		Namespace: "shop",
		Name:      "web",
		Derived:   derived.Name("shop", "web"),
		Manager:   kube.Manager,
		Merged:    &conflict.Merged{},
	}
	record := func(cluster string, created, revision int64) *hubv1alpha1.EndpointRecord {
		rec := &hubv1alpha1.EndpointRecord{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:         "prod",
				Name:              "u." + cluster,
				CreationTimestamp: metav1.Unix(created, 0),
			},
		}
		rec.Spec.Origin = hubv1alpha1.Origin{
			ClusterID:        cluster,
			ServiceNamespace: "shop",
			ServiceName:      "web",
			Revision:         revision,
		}
		rec.Spec.AddressType = discoveryv1.AddressTypeIPv4
		return rec
	}
	local := fake.NewClientBuilder()
	for _, cluster := range []string{"east", "west"} {
		rec := record(cluster, 100, 7)
		local.WithObjects(
			endpoints.Desired(&endpoints.Source{Record: rec.Name, Created: 100, EndpointRecordSpec: rec.Spec}, imp),
		)
	}
	r := &reconciler{Config: Config{Cluster: "east", Local: local.Build()}}
	for name, c := range map[string]struct {
		record *hubv1alpha1.EndpointRecord
		ahead  bool
	}{
		"as it was imported": {record("west", 100, 7), false},
		"changed":            {record("west", 100, 8), true},
		"recreated":          {record("west", 101, 7), true},
		"never imported":     {record("north", 100, 8), false},
		"this cluster's own": {record("east", 100, 8), false},
		"of another address type": {func() *hubv1alpha1.EndpointRecord {
			r := record("west", 100, 8)
			r.Spec.AddressType = discoveryv1.AddressTypeIPv6
			return r
		}(), false},
	} {
		if got := r.changed(t.Context(), c.record); got != c.ahead {
			t.Errorf("%s: it goes ahead: %v, want %v", name, got, c.ahead)
		}
	}
}
