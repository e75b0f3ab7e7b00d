package membership

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// leaseVersion is a version of this member's Lease on the hub, and when this agent first saw it.
type leaseVersion struct {
	version string
	since   time.Time
}

// checkClone returns why this cluster may be a clone of the member whose name it bears, "" if it is not. A clone
// has the same credentials, and often the same UID; it must not withdraw the records of the original. A cluster
// that made the Lease's last renewal is no clone. If it did not, or if the write of that fact failed, it is no
// clone once nobody has renewed the Lease for as long as the Lease lasts.
func (g *Gate) checkClone(ctx context.Context) (string, error) {
	hub, err := g.Hub()
	if err != nil {
		return "", err
	}
	profile, err := g.profile(ctx, hub)
	if err != nil {
		return "", err
	}
	uid, err := g.clusterUID(ctx)
	if err != nil {
		return "", err
	}
	if profile != nil {
		if holder := profile.Annotations[clusterset.AnnotationClusterUID]; holder != "" && holder != uid {
			return heldBy(g.Cluster, holder, uid), nil
		}
	}
	name := types.NamespacedName{Namespace: g.HubNamespace, Name: g.Cluster}
	lease, err := kube.Get[*coordinationv1.Lease](ctx, hub, name)
	if err != nil || lease == nil {
		return "", err
	}
	name = types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed}
	renewed, err := kube.Get[*coordinationv1.Lease](ctx, g.Local, name)
	if err != nil {
		return "", err
	}
	version := kube.Version(lease)
	if renewed != nil && renewed.Annotations[clusterset.AnnotationRenewed] == version {
		return "", nil
	}
	if g.lease.version != version {
		g.lease = leaseVersion{version, g.Now()}
	}
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 40)) * time.Second
	if g.Now().Sub(g.lease.since) >= duration {
		return "", nil
	}
	return fmt.Sprintf("This agent has no record of the last renewal of Lease %s on the hub. "+
		"Either a write was lost, or another agent has the same credentials. "+
		"Leaving continues once nobody has renewed the Lease for %v. "+
		"If it does not, this cluster may be a clone: kubectl clusterset leave --force", g.Cluster, duration), nil
}
