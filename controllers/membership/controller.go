package membership

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Controller is this room's entry in the list of controllers. The one request is this cluster's id.
func Controller(env *kube.Env) kube.Controller {
	return kube.Controller{
		Name: "membership",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &aboutv1beta1.ClusterProperty{}, Requests: kube.Named(func(client.Object) types.NamespacedName {
				return types.NamespacedName{Name: env.Cluster}
			})},
			{Side: kube.Hub, Object: &inventoryv1alpha1.ClusterProfile{}, Requests: kube.Named(func(o client.Object) (n types.NamespacedName) {
				if o.GetName() == env.Cluster {
					n.Name = env.Cluster
				}
				return n
			})},
		},
		// Half of what P5 allows per object; the hub's controller has the other half.
		Reconciler: &reconciler{Env: env, budget: rate.NewLimiter(rate.Every(time.Minute), 5), told: map[types.UID]string{}},
	}
}

type reconciler struct {
	*kube.Env
	budget *rate.Limiter
	told   map[types.UID]string // properties that are too long, by the resourceVersion of which that was said
	over   int                  // how many properties too many was said last
}

// Reconcile uses the claim where nobody does yet (ID3), mirrors version and properties to this member's ClusterProfile (P3, ID5), and starts
// the agent again where it is to leave or is no member any more: what it does then is Gate's.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list aboutv1beta1.ClusterPropertyList
	if err := r.Local.List(ctx, &list); err != nil {
		return reconcile.Result{}, err
	}
	if why := outside(list.Items); why != "" {
		r.Restart(why)
		return reconcile.Result{}, nil
	}
	hub := r.Hub()
	if hub == nil {
		return reconcile.Result{}, nil
	}
	profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, hub, types.NamespacedName{Namespace: r.HubNamespace, Name: r.Cluster})
	if err != nil || profile == nil {
		return reconcile.Result{}, err // absence is not eviction: an emptied hub has none either
	}
	if profile.Annotations[clusterset.AnnotationClusterUID] == "" && profile.DeletionTimestamp == nil {
		// This cluster was evicted, and has joined again while the agent ran. The change is seen, and the rest follows.
		_, err := (&Gate{Cluster: r.Cluster, HubNamespace: r.HubNamespace, Local: r.Local}).Claim(ctx, hub)
		return reconcile.Result{}, err
	}
	version, err := r.Version(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	want := profile.DeepCopy()
	var long []*aboutv1beta1.ClusterProperty
	want.Status.Version.Kubernetes = version
	var over int
	want.Status.Properties, long, over = mirror(list.Items)
	for _, p := range long {
		if r.told[p.UID] == p.ResourceVersion {
			continue
		}
		r.told[p.UID] = p.ResourceVersion
		r.Events.Event(p, kube.Warning, "PropertyTooLong", fmt.Sprintf(
			"It is not in the inventory on the hub, where a value may have %d characters.", inventoryv1alpha1.MaxPropertyValue))
	}
	if over > 0 && over != r.over {
		about := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}}
		r.Events.Event(about, kube.Warning, "TooManyProperties", fmt.Sprintf(
			"The inventory on the hub takes %d ClusterProperties of a cluster: %d are not there, the last by name.", inventoryv1alpha1.MaxProperties, over))
	}
	r.over = over
	if equality.Semantic.DeepEqual(want.Status, profile.Status) {
		return reconcile.Result{}, nil
	}
	now := r.Now()
	one := r.budget.ReserveN(now, 1)
	if wait := one.DelayFrom(now); wait > 0 {
		one.CancelAt(now)
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err = hub.Status().Patch(ctx, want, kube.Changes(profile)); apierrors.IsConflict(err) {
		one.CancelAt(now) // it was not made
	}
	return reconcile.Result{}, err
}

// outside says why this cluster is not, or is no longer to be, a member; "" while it is.
func outside(properties []aboutv1beta1.ClusterProperty) string {
	for i := range properties {
		if p := &properties[i]; p.Name == clusterset.PropertySet {
			if p.Annotations[clusterset.AnnotationLeaving] != "" {
				return "this cluster is to leave its clusterset"
			}
			return ""
		}
	}
	return "ClusterProperty " + clusterset.PropertySet + " is gone"
}

// mirror is every ClusterProperty as the inventory has it, by name, and those that are too long for it. Of too many, the last by name are
// left out, and over is how many; those by which the hub's own controllers go stay.
func mirror(properties []aboutv1beta1.ClusterProperty) (out []inventoryv1alpha1.Property, long []*aboutv1beta1.ClusterProperty, over int) {
	for i := range properties {
		p := &properties[i]
		if utf8.RuneCountInString(p.Spec.Value) > inventoryv1alpha1.MaxPropertyValue {
			long = append(long, p)
			continue
		}
		out = append(out, inventoryv1alpha1.Property{Name: p.Name, Value: p.Spec.Value})
	}
	byName := func(a, b inventoryv1alpha1.Property) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(out, byName)
	if over = len(out) - inventoryv1alpha1.MaxProperties; over > 0 {
		slices.SortStableFunc(out, func(a, b inventoryv1alpha1.Property) int { return rank(a) - rank(b) })
		out = out[:inventoryv1alpha1.MaxProperties]
		slices.SortFunc(out, byName)
	}
	return out, long, max(over, 0)
}

// rank is 0 for what is the clusterset's own, which is left out last.
func rank(p inventoryv1alpha1.Property) int {
	switch p.Name {
	case clusterset.PropertyID, clusterset.PropertySet, clusterset.PropertyBlocks, clusterset.PropertyServiceRanges, clusterset.PropertyPodRanges:
		return 0
	}
	return 1
}
