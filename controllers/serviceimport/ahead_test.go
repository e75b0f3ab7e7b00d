package serviceimport

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestOnlyARecordThatHasChangedGoesAhead: among the records of a first list it is what somebody waits for.
func TestOnlyARecordThatHasChangedGoesAhead(t *testing.T) {
	imp := &endpoints.Import{
		Namespace: "shop",
		Name:      "web",
		Derived:   derived.Name("shop", "web"),
		Manager:   kube.Manager,
		Merged:    &conflict.Merged{},
	}
	origin := func(cluster string, revision int64) hubv1alpha1.Origin {
		return hubv1alpha1.Origin{ClusterID: cluster, ServiceNamespace: "shop", ServiceName: "web", Revision: revision}
	}
	record := func(cluster string, created, revision int64) *hubv1alpha1.ServiceExportRecord {
		rec := &hubv1alpha1.ServiceExportRecord{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(created, 0)},
		}
		rec.Spec.Origin = origin(cluster, revision)
		rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{{AddressType: discoveryv1.AddressTypeIPv4}}
		return rec
	}
	page := func(cluster string, number int32, created, revision int64) *hubv1alpha1.EndpointPage {
		page := &hubv1alpha1.EndpointPage{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(created, 0)}}
		page.Spec.Origin, page.Spec.Number, page.Spec.AddressType = origin(
			cluster,
			revision,
		), number, discoveryv1.AddressTypeIPv4
		return page
	}
	local := fake.NewClientBuilder()
	for _, number := range []int{0, 1} {
		src := &endpoints.Source{
			Name:      endpoints.SourceName(number, "west"),
			ClusterID: "west",
			Created:   100,
			Revision:  7,
		}
		src.AddressType = discoveryv1.AddressTypeIPv4
		local.WithObjects(endpoints.Desired(src, imp))
	}
	r := newReconciler(Config{Member: kube.Member{Cluster: "east", Local: local.Build()}})
	other, none := record("west", 100, 8), record("west", 100, 8)
	other.Spec.Endpoints[0].AddressType, none.Spec.Endpoints = discoveryv1.AddressTypeIPv6, nil
	for name, c := range map[string]struct {
		record client.Object
		ahead  bool
	}{
		"as it was imported":      {record("west", 100, 7), false},
		"changed":                 {record("west", 100, 8), true},
		"recreated":               {record("west", 101, 7), true},
		"never imported":          {record("north", 100, 8), false},
		"of another address type": {other, false},
		"without endpoints":       {none, false},
		"a page":                  {page("west", 1, 100, 7), false},
		"a page that changed":     {page("west", 1, 100, 8), true},
		"a page of no slice":      {page("west", 2, 100, 8), false},
	} {
		if got := r.changed(t.Context(), c.record); got != c.ahead {
			t.Errorf("%s: it goes ahead: %v, want %v", name, got, c.ahead)
		}
	}
}
