package publish

import (
	"context"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestARevisionThatNothingFollows is what a thief leaves who had the token: it ends with the records that bear it,
// and those in their place are younger by whole seconds, so that peers follow them. Then nothing is written any
// more.
func TestARevisionThatNothingFollows(t *testing.T) {
	for name, poison := range map[string]int64{"the last": clusterset.MaxRevision,
		"the last but one": clusterset.MaxRevision - 1, "of a CRD without bound": math.MaxInt64} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			poisoned := metav1.NewTime(now)
			origin := hubv1alpha1.Origin{
				ClusterID:        "east",
				ServiceNamespace: "shop",
				ServiceName:      "web",
				Revision:         5,
			}
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
			spec := hubv1alpha1.ServiceExportRecordSpec{
				Origin:     origin,
				Type:       mcsv1beta1.ClusterSetIP,
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			}
			own := &hubv1alpha1.ServiceExportRecord{
				ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "web.shop.east"},
				Spec:       spec,
			}
			export := &hubv1alpha1.ServiceExportRecord{
				ObjectMeta: metav1.ObjectMeta{
					Namespace:         "prod",
					Name:              "web.shop.east",
					UID:               "thief's",
					CreationTimestamp: poisoned,
				},
				Spec: spec,
			}
			export.Spec.Revision, export.Spec.Type = poison, mcsv1beta1.Headless
			endpoints := &hubv1alpha1.EndpointRecord{
				ObjectMeta: metav1.ObjectMeta{
					Namespace:         "prod",
					Name:              "u1.east",
					UID:               "thief's too",
					CreationTimestamp: poisoned,
				},
			}
			endpoints.Spec = hubv1alpha1.EndpointRecordSpec{
				Origin:      origin,
				AddressType: slice.AddressType,
				Endpoints:   []hubv1alpha1.Endpoint{{Address: "10.6.6.6"}},
			}
			endpoints.Spec.Revision = poison
			writes := 0
			hub := plane(t, kube.Hub, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object,
					opts ...client.CreateOption) error {
					writes++
					o.SetCreationTimestamp(metav1.NewTime(now.Truncate(time.Second)))
					o.SetUID("ours")
					return c.Create(ctx, o, opts...)
				},
				Update: func(ctx context.Context, c client.WithWatch, o client.Object,
					opts ...client.UpdateOption) error {
					writes++
					return c.Update(ctx, o, opts...)
				},
			}, export, endpoints)
			local := plane(t, kube.Local, interceptor.Funcs{}, own, slice)
			r := reconcilerOf(local, hub, lease{}, &now)
			for range 12 { // passes, 200 ms apart: each write is an event
				writes = 0
				web := types.NamespacedName{Namespace: "shop", Name: "web"}
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: web}); err != nil {
					t.Fatal(err)
				}
				now = now.Add(200 * time.Millisecond)
			}
			if writes > 0 {
				t.Errorf("it is not settled: %d writes in the last pass", writes)
			}
			for _, want := range []client.Object{export, endpoints} {
				got := want.DeepCopyObject().(client.Object)
				if err := hub.Get(t.Context(), client.ObjectKeyFromObject(want), got); err != nil {
					t.Fatal(err)
				}
				if revision := kube.Origin(got).Revision; revision > now.UnixMilli() || got.GetUID() != "ours" ||
					!got.GetCreationTimestamp().After(poisoned.Time) {
					t.Errorf(
						"%s: revision %d of UID %s, created at %v",
						got.GetName(), revision, got.GetUID(), got.GetCreationTimestamp(),
					)
				}
			}
		})
	}
}
