package sim

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// A slice of shop/db has become one of shop/web since the backup, so the restored hub shows it as shop/db's. Whoever
// lists EndpointRecords first follows that, and the name must not count as touched by nobody.
func TestARestoredHubShowsASliceAsOfItsFormerService(t *testing.T) {
	w := newWorld(Options{Seed: 1, Members: 2})
	m := w.members[0]
	db := types.NamespacedName{Namespace: "shop", Name: "db"}
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	if m.namespace("shop") == nil {
		w.create(m, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	}
	for _, n := range []types.NamespacedName{db, web} {
		meta := metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name}
		w.create(m, &mcsv1beta1.ServiceExport{ObjectMeta: meta})
		w.create(m, &corev1.Service{ObjectMeta: meta, Spec: w.serviceSpec(m)})
	}
	w.createSlice(m, web)
	s := all[*discoveryv1.EndpointSlice](m.server, api.EndpointSlice)[0]
	for _, tc := range []struct {
		of     types.NamespacedName
		frozen []string
	}{
		{web, []string{"shop/db", "shop/web"}},
		{db, []string{"shop/web"}},
	} {
		rec := &hubv1alpha1.EndpointRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: string(s.UID) + "." + m.id},
		}
		rec.Spec, _, _ = clusterset.EndpointsOf(m.id, tc.of.Name, nil, s)
		rec.Spec.Revision = 1
		before := w.hub.Snapshot()
		w.must(w.hub.Create(api.Member+m.id, rec, false))
		w.frozen = map[types.NamespacedName]bool{db: true, web: true}
		w.resurrected()
		if got := slices.Sorted(maps.Keys(text(w.frozen))); !slices.Equal(got, tc.frozen) {
			t.Errorf("the hub shows the slice as of %s: frozen is %v, want %v", tc.of, got, tc.frozen)
		}
		w.hub.Restore(before)
	}
}
