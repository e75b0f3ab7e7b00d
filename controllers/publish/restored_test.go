package publish

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestAHubRestoredWhileNoAgentWasThere shows an older revision of endpoints that are right again: peers have
// imported a higher one, and do not follow it. An agent that finds the hub otherwise than its last one left it
// overtakes, once; any other writes nothing.
func TestAHubRestoredWhileNoAgentWasThere(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	origin := hubv1alpha1.Origin{ClusterID: "east", ServiceNamespace: "shop", ServiceName: "web", Revision: 1}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      "web-1",
			UID:       "u1",
			Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
	spec, _, _ := clusterset.EndpointsOf("east", "web", nil, slice)
	spec.Revision = 1
	export := func(namespace string) client.Object {
		r := &hubv1alpha1.ServiceExportRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterset.RecordName("web", "shop", "east")},
		}
		r.Spec = hubv1alpha1.ServiceExportRecordSpec{
			Origin:     origin,
			Type:       mcsv1beta1.ClusterSetIP,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},

			EndpointRecords: clusterset.EndpointSet([]string{"u1.east"}),
		}
		return r
	}
	for _, lost := range []bool{true, false} {
		var writes int
		funcs := interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				writes++
				return c.Update(ctx, o, opts...)
			},
		}
		record := &hubv1alpha1.EndpointRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: clusterset.EndpointRecordName("u1", "east")},
			Spec:       spec,
		}
		hub := plane(t, kube.Hub, funcs, export("prod"), record)
		local := plane(t, kube.Local, interceptor.Funcs{}, export(kube.SystemNamespace), slice)
		r := reconcilerOf(local, hub, lease{before: now.Add(time.Hour), lost: lost}, &now) // the clock was set back
		want := 0
		if lost {
			want = 1
		}
		for range 2 { // passes
			if _, err := r.Reconcile(
				t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}},
			); err != nil {
				t.Fatal(err)
			}
			if writes != want {
				t.Errorf("lost %v: %d writes to the hub, want %d", lost, writes, want)
			}
		}
		var got hubv1alpha1.EndpointRecord
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(record), &got); err != nil {
			t.Fatal(err)
		}
		if overtook := got.Spec.Revision > now.Add(time.Hour).UnixMilli(); overtook != lost {
			t.Errorf("lost %v: revision %d", lost, got.Spec.Revision)
		}
	}
}

// plane is an API server in memory, with the indexes of one side.
func plane(t *testing.T, side kube.Side, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, hubv1alpha1.AddToScheme,
		inventoryv1alpha1.AddToScheme, mcsv1beta1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().
		WithScheme(scheme).
		WithObjects(objects...).
		WithStatusSubresource(&hubv1alpha1.ServiceExportRecord{}).
		WithInterceptorFuncs(funcs)
	for _, x := range kube.Indexes() {
		if x.Side == side {
			b = b.WithIndex(x.Object, x.Field, x.Values)
		}
	}
	return b.Build()
}
