package publish

import (
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

// TestS1ARelabelledSliceIsPublishedForItsNewService at once, whichever of the two is looked at first and as often
// as it changes hands: its record bears its UID, and cannot change whose endpoints it says. A settled state is left
// alone.
func TestS1ARelabelledSliceIsPublishedForItsNewService(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	export := func(namespace, service string) client.Object {
		rec := &hubv1alpha1.ServiceExportRecord{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace,
				Name:      clusterset.RecordName(service, "shop", "east"),
			},
		}
		rec.Spec = hubv1alpha1.ServiceExportRecordSpec{
			Type:       mcsv1beta1.ClusterSetIP,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Origin: hubv1alpha1.Origin{
				ClusterID:        "east",
				ServiceNamespace: "shop",
				ServiceName:      service,
				Revision:         1,
			},
		}
		return rec
	}
	for _, order := range [][]string{{"web", "api"}, {"api", "web"}} {
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
		hub := plane(t, kube.Hub, interceptor.Funcs{}, export("prod", "web"), export("prod", "api"))
		local := plane(
			t, kube.Local, interceptor.Funcs{},
			export(kube.SystemNamespace, "web"), export(kube.SystemNamespace, "api"), slice,
		)
		r := reconcilerOf(local, hub, lease{}, &now)
		said := int64(0)
		for turn, service := range []string{"web", "api", "web"} {
			now = now.Add(time.Minute)
			slice.Labels[discoveryv1.LabelServiceName] = service
			if err := local.Update(t.Context(), slice); err != nil {
				t.Fatal(err)
			}
			var was string
			for range 2 {
				for _, name := range order {
					if _, err := r.Reconcile(
						t.Context(),
						reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}},
					); err != nil {
						t.Fatalf("%v, turn %d, %s: %v", order, turn, name, err)
					}
				}
				var list hubv1alpha1.EndpointRecordList
				if err := hub.List(t.Context(), &list); err != nil {
					t.Fatal(err)
				}
				if len(list.Items) != 1 || list.Items[0].Spec.ServiceName != service ||
					list.Items[0].Spec.Revision <= said && was == "" {
					t.Fatalf(
						"%v, turn %d: it is %s's, and the hub has %+v after %d", order, turn, service, list.Items, said,
					)
				}
				if v := list.Items[0].ResourceVersion; was != "" && was != v {
					t.Errorf("%v, turn %d: written again", order, turn)
				} else {
					was = v
				}
				said = list.Items[0].Spec.Revision
			}
		}
	}
}
