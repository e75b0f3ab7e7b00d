package kube

import (
	"context"
	"reflect"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
)

// SetOf returns the ClusterSet in namespace. It belongs to the cache and must not be changed. If the hub is nil or does
// not have exactly one ClusterSet there, known is false, and set has the defaults (SPEC T1) and the departures that any
// of several lists. Then do not end what is in effect, except what a departure ends.
func SetOf(
	ctx context.Context, hub client.Reader, namespace string,
) (set *hubv1alpha1.ClusterSet, known bool, err error) {
	var sets hubv1alpha1.ClusterSetList
	if hub != nil {
		err = hub.List(ctx, &sets, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	}
	if err == nil && len(sets.Items) == 1 {
		return &sets.Items[0], true, nil
	}
	set = &hubv1alpha1.ClusterSet{Spec: hubv1alpha1.ClusterSetSpec{Lease: hubv1alpha1.LeaseSpec{
		RenewSeconds: 10, DurationSeconds: 40, GraceSeconds: 10, OnExpiry: hubv1alpha1.ExpiryRemove,
	}}}
	for i := range sets.Items {
		set.Status.Departed = append(set.Status.Departed, sets.Items[i].Status.Departed...)
	}
	return set, false, err
}

// Departed returns when members have left or were evicted, by cluster ID, on the hub's clock. A record that such a
// member created before is void. A missing ClusterProfile proves nothing, because a hub that lost its data has none
// either (DESIGN §2).
func Departed(set *hubv1alpha1.ClusterSet) map[string]time.Time {
	out := map[string]time.Time{}
	for _, d := range set.Status.Departed {
		if d.At.After(out[d.ClusterID]) {
			out[d.ClusterID] = d.At.Time
		}
	}
	return out
}

// SameRules is the Alike of a Watch of ClusterSets that reads their rules only.
func SameRules(was, is client.Object) bool {
	before, after := was.(*hubv1alpha1.ClusterSet).Spec, is.(*hubv1alpha1.ClusterSet).Spec
	before.VIPs, before.Lease = after.VIPs, after.Lease
	return reflect.DeepEqual(before, after) // an empty list is not a missing one
}

// SameRulesAndDepartures is the Alike of a Watch of ClusterSets that reads those only.
func SameRulesAndDepartures(was, is client.Object) bool {
	before, after := was.(*hubv1alpha1.ClusterSet), is.(*hubv1alpha1.ClusterSet)
	return SameRules(was, is) && equality.Semantic.DeepEqual(before.Status.Departed, after.Status.Departed)
}

// Claimed reports whether a cluster has joined with a ClusterProfile.
func Claimed(p inventoryv1alpha1.ClusterProfile) bool {
	return clusterset.IsOurs(&p) && p.Annotations[clusterset.AnnotationClusterUID] != ""
}

// Members returns the Leases of the members that have not departed, by cluster ID; nil for a member without one. A hub
// that lost data may show only the Lease or only the ClusterProfile of a member. Neither exists after a departure.
func Members(ctx context.Context, hub client.Reader, namespace string) (map[string]*coordinationv1.Lease, error) {
	out := map[string]*coordinationv1.Lease{}
	var profiles inventoryv1alpha1.ClusterProfileList
	if err := hub.List(ctx, &profiles, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range profiles.Items {
		if p := profiles.Items[i]; Claimed(p) {
			out[p.Name] = nil
		}
	}
	var leases coordinationv1.LeaseList
	if err := hub.List(ctx, &leases, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range leases.Items {
		lease := &leases.Items[i]
		if _, claimed := out[lease.Name]; claimed || IsAgents(lease) {
			out[lease.Name] = lease
		}
	}
	return out, nil
}

// IsAgents reports whether an agent has renewed a Lease on the hub. Other programs may have Leases in its namespace.
func IsAgents(lease *coordinationv1.Lease) bool {
	if lease == nil {
		return false
	}
	_, agents := lease.Annotations[withdrawal.AnnotationAcknowledged] // every agent sets it
	return agents
}
