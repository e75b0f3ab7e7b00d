package kube

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// Property returns a ClusterProperty, or nil if it does not exist.
func Property(ctx context.Context, from client.Reader, name string) (*aboutv1beta1.ClusterProperty, error) {
	return Get[*aboutv1beta1.ClusterProperty](ctx, from, types.NamespacedName{Name: name})
}

// Place returns this cluster with its ClusterProperties.
func Place(ctx context.Context, local client.Reader, cluster string) (clusterset.Place, error) {
	var list aboutv1beta1.ClusterPropertyList
	if err := local.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return clusterset.Place{}, err
	}
	out := clusterset.Place{Cluster: cluster, Properties: make(map[string]string, len(list.Items))}
	for i := range list.Items {
		out.Properties[list.Items[i].Name] = list.Items[i].Spec.Value
	}
	return out, nil
}

// SameProperty reports whether two versions of a ClusterProperty have the same value.
func SameProperty(before, after client.Object) bool {
	return before.(*aboutv1beta1.ClusterProperty).Spec.Value == after.(*aboutv1beta1.ClusterProperty).Spec.Value
}

// Sources returns this member's own Leases for the other members, without those that were edited by hand. They belong
// to the cache, but the slice does not.
func Sources(ctx context.Context, local client.Reader) ([]coordinationv1.Lease, error) {
	var leases coordinationv1.LeaseList
	err := local.List(ctx, &leases, client.InNamespace(SystemNamespace), client.HasLabels{liveness.LabelSource},
		client.UnsafeDisableDeepCopy)
	return slices.DeleteFunc(leases.Items, func(lease coordinationv1.Lease) bool {
		return lease.Name != liveness.LeaseName(lease.Labels[liveness.LabelSource])
	}), err
}

// SameState reports whether two versions of a member's own Lease say the same of a source cluster.
func SameState(before, after client.Object) bool {
	return liveness.StateOf(before.(*coordinationv1.Lease)) == liveness.StateOf(after.(*coordinationv1.Lease))
}
