package heartbeat

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// settling is how long events may take to reach a cache: what is wrong at two looks that far apart is wrong.
const settling = 2 * time.Second

// Verifier is the entry of what compares the hub's caches with the hub, in a loop of its own: the heartbeat must not wait for it.
func (h *Heartbeat) Verifier() kube.Controller {
	return kube.Controller{
		Name:     "verify",
		NeedsHub: true,
		Watches: []kube.Watch{{Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: kube.Named(func(o client.Object) (n types.NamespacedName) {
			if o.GetName() == h.Cluster {
				n.Name = h.Cluster
			}
			return n
		})}},
		Reconciler: verifier{h},
	}
}

type verifier struct{ *Heartbeat }

// Reconcile looks where a look is due.
func (v verifier) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if again, err := v.verify(ctx); again || err != nil { // an error is the hub's going, which the next renewal reports
		return reconcile.Result{RequeueAfter: settling}, nil
	}
	return reconcile.Result{RequeueAfter: 5 * settling}, nil
}

// verify compares the hub's caches with the hub, after each new connection, and ever less often then: a hub that was restored from a
// backup gives out resourceVersions a second time, and a watch that goes on from one of the first time misses what is written until the
// hub has passed that, for good. again says that another look is needed soon.
func (h *Heartbeat) verify(ctx context.Context) (again bool, err error) {
	connections := h.Connections()
	if h.look.IsZero() { // the caches have just been filled, and the hub has enough to do
		h.look = h.Now().Add(5 * settling)
	}
	if h.verified == 0 && h.Now().Before(h.look) {
		return false, nil
	}
	if connections != h.verified {
		h.interval = 0
	} else if h.Now().Before(h.look) {
		return false, nil
	}
	for _, k := range kinds {
		if !h.Watching(k.resource) {
			return true, nil // client-go opens its watches one after the other, up to a minute after the hub is back
		}
	}
	wrong, err := h.differences(ctx)
	if err != nil {
		return true, err
	}
	if len(wrong) == 0 {
		h.verified, h.wrong = connections, nil
		h.interval = min(max(2*h.interval, 10*time.Second), 10*time.Minute)
		h.look = h.Now().Add(h.interval)
		return false, nil
	}
	for _, what := range slices.Sorted(maps.Keys(wrong)) {
		if h.wrong[what] {
			h.Relist("HubRestored", fmt.Sprintf("The hub has had %s for %v, and its watch does not show it: it was restored from a backup. What is in effect stays; what owners publish again is followed.", what, settling))
			break
		}
	}
	h.wrong = wrong
	return true, nil
}

// kinds are those that are compared.
var kinds = []struct {
	kind, resource string
	list           func() client.ObjectList
}{
	{"ServiceExportRecord", "serviceexportrecords", func() client.ObjectList { return &hubv1alpha1.ServiceExportRecordList{} }},
	{"EndpointRecord", "endpointrecords", func() client.ObjectList { return &hubv1alpha1.EndpointRecordList{} }},
	{"ClusterSet", "clustersets", func() client.ObjectList { return &hubv1alpha1.ClusterSetList{} }},
	{"ClusterProfile", "clusterprofiles", func() client.ObjectList { return &inventoryv1alpha1.ClusterProfileList{} }},
}

// differences are the records that the hub has otherwise than the cache, or has not.
func (h *Heartbeat) differences(ctx context.Context) (map[string]bool, error) {
	wrong := map[string]bool{}
	for _, k := range kinds {
		kind, list := k.kind, k.list()
		gvk, err := h.Hub().GroupVersionKindFor(list)
		if err != nil {
			return nil, err
		}
		there := &metav1.PartialObjectMetadataList{}
		there.SetGroupVersionKind(gvk)
		if err := h.HubNow().List(ctx, there, client.InNamespace(h.HubNamespace)); err != nil {
			return nil, err
		}
		if err := h.Hub().List(ctx, list, client.InNamespace(h.HubNamespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		cached := map[string]string{}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			cached[o.(client.Object).GetName()] = version(o.(client.Object))
			return nil
		})
		for i := range there.Items {
			o := &there.Items[i]
			if cached[o.Name] != version(o) {
				wrong[fmt.Sprintf("%s %s of version %s", kind, o.Name, version(o))] = true
			}
			delete(cached, o.Name)
		}
		for name := range cached {
			wrong[fmt.Sprintf("no %s %s", kind, name)] = true
		}
	}
	return wrong, nil
}

// version tells two states of an object apart, also where a hub that was restored has given out one resourceVersion twice.
func version(o client.Object) string { return o.GetResourceVersion() + " of " + string(o.GetUID()) }
