package membership

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// sighting is a version of the own Lease on the hub, and since when it is the one seen.
type sighting struct {
	version string
	since   time.Time
}

// rival says why another cluster may speak for this member on the hub, "" if none does. A clone has this cluster's credentials and maybe its
// UID (DESIGN §6), and what one of the two took back there would be the other's. Where this cluster's last renewal is the Lease's, nobody
// has renewed since; else one of its own may not have been kept, and it is waited for until the Lease has run out, by this clock.
func (g *Gate) rival(ctx context.Context) (string, error) {
	hub, err := g.Hub()
	if err != nil {
		return "", err
	}
	name := types.NamespacedName{Namespace: g.HubNamespace, Name: g.Cluster}
	profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, hub, name)
	if err != nil {
		return "", err
	}
	system, err := kube.Get[*corev1.Namespace](ctx, g.Local, types.NamespacedName{Name: systemNamespace})
	if err != nil {
		return "", err
	}
	if profile != nil && system != nil {
		if holder := profile.Annotations[clusterset.AnnotationClusterUID]; holder != "" && holder != string(system.UID) {
			return heldBy(g.Cluster, holder, string(system.UID)), nil
		}
	}
	lease, err := kube.Get[*coordinationv1.Lease](ctx, hub, name)
	if err != nil || lease == nil {
		return "", err
	}
	kept, err := kube.Get[*coordinationv1.Lease](ctx, g.Local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed})
	if err != nil {
		return "", err
	}
	version := kube.Version(lease)
	if kept != nil && kept.Annotations[clusterset.AnnotationRenewed] == version {
		return "", nil
	}
	if g.seen.version != version {
		g.seen = sighting{version, g.Now()}
	}
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 40)) * time.Second
	if g.Now().Sub(g.seen.since) >= duration {
		return "", nil
	}
	return fmt.Sprintf("this cluster did not renew the Lease of %s on the hub last: is it a clone of the one that did? Then: kubectl clusterset leave --force. If not, it goes on once nobody has renewed it for %v",
		g.Cluster, duration), nil
}

// heldBy says that the claim to id is another cluster's.
func heldBy(id, holder, uid string) string {
	return fmt.Sprintf("cluster id %s is held by another cluster (kube-system UID %s, this one's is %s): its id or its credentials were copied; give this one an id of its own: kubectl clusterset leave --force, then join --cluster-id ID",
		id, holder, uid)
}
