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
	"k8s.io/apimachinery/pkg/util/resourceversion"
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

// patience is how long what the hub has may be missing here before its watch counts as dead: API servers tell every watch at least once a
// minute how far it has come.
const patience = 3 * time.Minute

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
	if h.judge(wrong) {
		wrong = nil // all is read again
	}
	h.wrong = wrong
	return true, nil
}

// difference is something that the hub has and its cache has not, or otherwise.
type difference struct {
	since    time.Time
	at       string // the resourceVersion by which a watch has shown it
	position string // of the watch, at this look
}

// passed tells whether the watch has come to where it should have shown that: what it has not by then it never will. It shows what is
// written in the order of resourceVersions, however slow it is.
func (d difference) passed() bool {
	order, err := resourceversion.CompareResourceVersion(d.position, d.at)
	return err == nil && order >= 0
}

// judge asks for a new start where what is wrong will not mend itself.
func (h *Heartbeat) judge(wrong map[string]difference) (relist bool) {
	for _, what := range slices.Sorted(maps.Keys(wrong)) {
		d, was := wrong[what], h.wrong[what]
		if was.since.IsZero() {
			continue
		}
		d.since, d.at = was.since, was.at
		wrong[what] = d
		age := h.Now().Sub(d.since).Round(time.Second)
		switch {
		case d.passed() && was.passed(): // since the last look what it has shown is in the cache
			h.Relist("HubRestored", fmt.Sprintf("The hub has had %s for %v, and its watch went past that without showing it: it was restored from a backup. What is in effect stays; what owners publish again is followed.", what, age))
			return true
		case age > patience:
			h.Relist("HubSilent", fmt.Sprintf("The hub has had %s for %v, and its watch has not come to that.", what, age))
			return true
		}
	}
	return false
}

// kinds are those that are compared.
var kinds = []struct {
	kind client.Object
	list func() client.ObjectList
}{
	{&hubv1alpha1.ServiceExportRecord{}, func() client.ObjectList { return &hubv1alpha1.ServiceExportRecordList{} }},
	{&hubv1alpha1.EndpointRecord{}, func() client.ObjectList { return &hubv1alpha1.EndpointRecordList{} }},
	{&hubv1alpha1.ClusterSet{}, func() client.ObjectList { return &hubv1alpha1.ClusterSetList{} }},
	{&inventoryv1alpha1.ClusterProfile{}, func() client.ObjectList { return &inventoryv1alpha1.ClusterProfileList{} }},
}

// above tells whether an object was written after version, as far as that is known.
func above(o client.Object, version string) bool {
	order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), version)
	return err == nil && order > 0
}

// differences are the records that the hub has otherwise than the cache, or has not: kind, name and version of what is too many on one side. What was
// written after the hub was asked says nothing: a peer that makes and deletes a record over and over must not have all read again. What
// the watch had shown before was not, whatever the resourceVersion: a hub that was restored starts again from a lower one.
func (h *Heartbeat) differences(ctx context.Context) (map[string]difference, error) {
	wrong := map[string]difference{}
	for _, k := range kinds {
		list := k.list()
		gvk, err := h.Hub().GroupVersionKindFor(k.kind)
		if err != nil {
			return nil, err
		}
		before, there := h.Position(k.kind), &metav1.PartialObjectMetadataList{}
		there.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := h.HubNow().List(ctx, there, client.InNamespace(h.HubNamespace)); err != nil {
			return nil, err
		}
		now, position := h.Now(), h.Position(k.kind) // before the cache is read, which can only be further
		if err := h.Hub().List(ctx, list, client.InNamespace(h.HubNamespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		cached, since := map[string]string{}, map[string]bool{}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			object := o.(client.Object)
			cached[object.GetName()] = kube.Version(object)
			since[object.GetName()] = above(object, there.ResourceVersion) && above(object, before)
			return nil
		})
		for i := range there.Items {
			o := &there.Items[i]
			if cached[o.Name] != kube.Version(o) && !since[o.Name] {
				wrong[fmt.Sprintf("%s %s of version %s", gvk.Kind, o.Name, kube.Version(o))] = difference{now, o.ResourceVersion, position}
			}
			delete(cached, o.Name)
		}
		for name, version := range cached { // it was deleted by the time of the list, and nothing tells when
			if !since[name] {
				wrong[fmt.Sprintf("no %s %s of version %s", gvk.Kind, name, version)] = difference{now, there.ResourceVersion, position}
			}
		}
	}
	return wrong, nil
}
