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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

type Config struct {
	kube.Member
	// As in kube.Env.
	Version   func(context.Context) (string, error)
	Restart   func(why string)
	Contested func() bool
}

// New returns the controller of this member's ClusterProfile. Each event maps to the same request: this cluster's ID.
func New(c Config) kube.Controller {
	self := types.NamespacedName{Name: c.Cluster}
	return kube.Controller{
		Name: "membership",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &aboutv1beta1.ClusterProperty{}, Requests: kube.Named(
				func(client.Object) types.NamespacedName { return self })},
			{Side: kube.Hub, Object: &inventoryv1alpha1.ClusterProfile{}, Requests: kube.Named(
				func(o client.Object) types.NamespacedName {
					if o.GetName() != c.Cluster {
						return types.NamespacedName{}
					}
					return self
				})},
		},
		// K4322 allows one update of a ClusterProfile per 30 s, and bursts of 10. Of such a burst this controller has
		// 3, health has 2, and the hub controller 5.
		Reconciler: &reconciler{Config: c, budget: rate.NewLimiter(rate.Every(2*time.Minute), 3)},
	}
}

// settling is how long a change waits for others: a new member's ranges and its request for blocks follow one another
// within that, and one write has all of them.
const settling = time.Second

// versionInterval is how often this cluster's Kubernetes version is read: no event follows an upgrade.
const versionInterval = 10 * time.Minute

type reconciler struct {
	Config
	budget        *rate.Limiter
	outdatedSince time.Time // when the hub's copy began to differ; zero while it is equal
}

// Reconcile mirrors version and properties to this member's ClusterProfile (K4322). It claims a profile that nobody
// has, and restarts the agent if this cluster is to leave or is no member any more.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list aboutv1beta1.ClusterPropertyList
	if err := r.Local.List(ctx, &list); err != nil {
		return reconcile.Result{}, err
	}
	if why := notMember(list.Items); why != "" {
		r.Restart(why)
		return reconcile.Result{}, nil
	}
	hub := r.Hub()
	if hub == nil {
		return reconcile.Result{}, nil
	}
	if r.Contested() { // a clone and its original would overwrite each other's properties for ever
		return reconcile.Result{RequeueAfter: time.Minute}, nil
	}
	gate := &Gate{Cluster: r.Cluster, HubNamespace: r.HubNamespace, Local: r.Local}
	profile, err := gate.profile(ctx, hub)
	if err != nil || profile == nil {
		return reconcile.Result{}, err // a missing profile proves no eviction: the hub may have lost its data
	}
	if profile.Annotations[clusterset.AnnotationClusterUID] == "" && profile.DeletionTimestamp == nil {
		// This cluster was evicted and has joined again while the agent ran. The claim triggers the next pass.
		_, err := gate.Claim(ctx, hub)
		return reconcile.Result{}, err
	}
	version, err := r.Version(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	want := profile.DeepCopy()
	want.Status.Version.Kubernetes = version
	properties, tooLong, surplus := mirror(list.Items)
	want.Status.Properties = properties
	r.report(tooLong, surplus)
	if equality.Semantic.DeepEqual(want.Status, profile.Status) {
		r.outdatedSince = time.Time{}
		return reconcile.Result{RequeueAfter: versionInterval}, nil
	}
	if r.outdatedSince.IsZero() {
		r.outdatedSince = r.Now()
	}
	if wait := settling - r.Now().Sub(r.outdatedSince); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	wait, err := kube.PatchStatus(ctx, hub, r.budget, r.Now(), want, profile)
	return reconcile.Result{RequeueAfter: wait}, err
}

// report sends an Event for each property that the inventory does not take.
func (r *reconciler) report(tooLong []*aboutv1beta1.ClusterProperty, surplus int) {
	for _, p := range tooLong {
		r.Events.Event(p, kube.Warning, "PropertyTooLong", fmt.Sprintf(
			"The inventory on the hub leaves this property out: a value there may have at most %d characters.",
			inventoryv1alpha1.MaxPropertyValue))
	}
	if surplus > 0 {
		about := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}}
		r.Events.Event(about, kube.Warning, "TooManyProperties", fmt.Sprintf(
			"The inventory on the hub takes %d ClusterProperties of a cluster. It leaves out %d: the last by name of "+
				"those that the hub does not need.",
			inventoryv1alpha1.MaxProperties, surplus))
	}
}

// notMember returns why this cluster is no member, or must not be one any longer; "" while it is.
func notMember(properties []aboutv1beta1.ClusterProperty) string {
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

// mirror returns the ClusterProperties as the inventory has them, sorted by name. If there are too many, it leaves out
// the last by name of those that the hub's controllers do not need; surplus is how many. tooLong are those whose value
// is too long for the inventory.
func mirror(properties []aboutv1beta1.ClusterProperty) (
	out []inventoryv1alpha1.Property, tooLong []*aboutv1beta1.ClusterProperty, surplus int,
) {
	for i := range properties {
		p := &properties[i]
		if utf8.RuneCountInString(p.Spec.Value) > inventoryv1alpha1.MaxPropertyValue {
			tooLong = append(tooLong, p)
			continue
		}
		out = append(out, inventoryv1alpha1.Property{Name: p.Name, Value: p.Spec.Value})
	}
	byName := func(a, b inventoryv1alpha1.Property) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(out, byName)
	if surplus = len(out) - inventoryv1alpha1.MaxProperties; surplus > 0 {
		slices.SortStableFunc(out, func(a, b inventoryv1alpha1.Property) int { return priority(a) - priority(b) })
		out = out[:inventoryv1alpha1.MaxProperties]
		slices.SortFunc(out, byName)
	}
	return out, tooLong, max(surplus, 0)
}

// priority returns 0 for the properties that the hub's controllers need, and 1 for all others.
func priority(p inventoryv1alpha1.Property) int {
	switch p.Name {
	case clusterset.PropertyID, clusterset.PropertySet,
		clusterset.PropertyBlocks, clusterset.PropertyServiceRanges, clusterset.PropertyPodRanges:
		return 0
	}
	return 1
}
