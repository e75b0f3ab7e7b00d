package publish

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestPublishingSettlesOnAHubThatAltersWhatIsWritten: its CRDs prune a field, or a policy sets one. Each write is
// an event for all members, so the same content is written again only every ten minutes, and a change at once.
func TestPublishingSettlesOnAHubThatAltersWhatIsWritten(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      "web-1",
			UID:       "u1",
			Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Zone: ptr.To("z1")}},
	}
	own := &hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{
		Namespace: kube.SystemNamespace, Name: clusterset.RecordName("web", "shop", "east")}}
	own.Spec = hubv1alpha1.ServiceExportRecordSpec{
		Origin: hubv1alpha1.Origin{ClusterID: "east", ServiceNamespace: "shop", ServiceName: "web", Revision: 1},
		Type:   mcsv1beta1.ClusterSetIP, TrafficDistribution: ptr.To("PreferSameZone"),
	}
	writes := map[string]int{}
	alter := func(o client.Object) client.Object {
		writes[o.GetName()]++
		o = o.DeepCopyObject().(client.Object)
		switch rec := o.(type) {
		case *hubv1alpha1.EndpointRecord:
			for i := range rec.Spec.Endpoints {
				rec.Spec.Endpoints[i].Zone = ""
			}
		case *hubv1alpha1.ServiceExportRecord:
			rec.Spec.TrafficDistribution = ptr.To("PreferClose")
		}
		return o
	}
	// As a real client, which decodes the answer into the object: fields that are not in it stay, and pointers stay the
	// same.
	decode := func(answer, o client.Object) error {
		text, err := json.Marshal(answer)
		return errors.Join(err, json.Unmarshal(text, o))
	}
	hub := plane(t, kube.Hub, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			stored := alter(o)
			return errors.Join(c.Create(ctx, stored, opts...), decode(stored, o))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			stored := alter(o)
			return errors.Join(c.Update(ctx, stored, opts...), decode(stored, o))
		},
	})
	local := plane(t, kube.Local, interceptor.Funcs{}, own, slice)
	r := reconcilerOf(local, hub, lease{}, &now)
	pass := func(want int) {
		t.Helper()
		clear(writes)
		for range 6 {
			now = now.Add(time.Second)
			req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
			if _, err := r.Reconcile(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		if writes["u1.east"] != want {
			t.Errorf("six passes wrote the endpoints %d times, want %d", writes["u1.east"], want)
		}
	}
	pass(1)
	if writes[own.Name] != 1 {
		t.Errorf("six passes wrote the export %d times, want once", writes[own.Name])
	}
	pass(0)
	slice.Endpoints[0].Addresses = []string{"10.0.0.2"}
	if err := local.Update(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	pass(1)
	now = now.Add(10 * time.Minute)
	pass(1)
	if writes[own.Name] != 1 {
		t.Errorf("after ten minutes the export was written %d times, want once", writes[own.Name])
	}
}
