package kube

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

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
