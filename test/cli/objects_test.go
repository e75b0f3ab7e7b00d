package cli

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// healthy checks that the hub shows all these members as healthy, with a version.
func (e *environment) healthy(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		p := &inventoryv1alpha1.ClusterProfile{}
		if err := e.admin["hub"].Get(ctx, client.ObjectKey{Namespace: "clusterset", Name: id}, p); err != nil {
			return err
		}
		for _, c := range []string{inventoryv1alpha1.ConditionJoined, inventoryv1alpha1.ConditionControlPlaneHealthy} {
			if !meta.IsStatusConditionTrue(p.Status.Conditions, c) || p.Status.Version.Kubernetes == "" {
				return fmt.Errorf("%s: %+v", id, p.Status)
			}
		}
	}
	return nil
}
