package membership

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// orForce is the way out without a hub.
const orForce = "; if the hub no longer exists, run: kubectl clusterset leave --force"

// hubTimeout limits how long each step of a forced leave waits for the hub.
const hubTimeout = 3 * time.Second

// explainLeaving is ExplainRefusal for a member that is leaving.
func explainLeaving(err error) error {
	if refused(err) {
		return fmt.Errorf("the hub refuses this member's credentials: either they expired "+
			"(run: kubectl clusterset join --renew --hub-context=HUB, after which leaving continues), "+
			"or it was evicted (run: kubectl clusterset leave --hub-context=HUB): %w", err)
	}
	return err
}

// leave takes this cluster out of its clusterset, while no controller runs. It withdraws the records on the hub, so
// that nobody sends traffic here; deletes what the agent made in this cluster; marks the ClusterProfile as left; and
// deletes the ClusterProperty last. After a crash it can be repeated. A possible clone changes nothing on the hub.
//
// A forced leave does not depend on the hub. It withdraws nothing, marks the ClusterProfile only if the hub answers and
// shows that this cluster is no clone, and deletes the token.
func (g *Gate) leave(ctx context.Context, set *aboutv1beta1.ClusterProperty) error {
	forced := set.Annotations[clusterset.AnnotationLeaving] == clusterset.LeavingForced
	original := true // no clone of the member
	switch {
	case forced:
		ask, cancel := context.WithTimeout(ctx, hubTimeout)
		clone, err := g.checkClone(ask)
		cancel()
		original = clone == "" && err == nil
	case set.Annotations[clusterset.AnnotationLeaving] != clusterset.LeavingWithdrawn:
		if err := g.withdraw(ctx); err != nil {
			return err
		}
		set = set.DeepCopy()
		set.Annotations[clusterset.AnnotationLeaving] = clusterset.LeavingWithdrawn
		if err := g.Local.Update(ctx, set); err != nil {
			return err
		}
	}
	if !g.cleaned {
		if err := g.clean(ctx); err != nil {
			return fmt.Errorf("leaving: %w", err)
		}
		g.cleaned = true
	}
	if forced {
		if original {
			mark, cancel := context.WithTimeout(ctx, hubTimeout)
			_ = g.markLeft(mark) // the hub may be gone
			cancel()
		}
		// The hub may still have the claim. Without a token this cluster does not return by itself.
		if err := g.deleteToken(ctx); err != nil {
			return fmt.Errorf("leaving: %w", err)
		}
		g.forced = true
	} else if err := g.markLeft(ctx); err != nil {
		return fmt.Errorf("leaving: the records are withdrawn, but marking the ClusterProfile as left failed: %w%s",
			err, orForce)
	}
	if err := g.deleteRenewed(ctx); err != nil {
		return fmt.Errorf("leaving: %w", err)
	}
	log.FromContext(ctx).Info("left", "clusterset", set.Spec.Value)
	return kube.Delete(ctx, g.Local, set)
}

// withdraw withdraws this member's records on the hub, unless this cluster may be a clone.
func (g *Gate) withdraw(ctx context.Context) error {
	clone, err := g.checkClone(ctx)
	if clone != "" {
		return fmt.Errorf("leaving: %s", clone)
	}
	if err == nil {
		err = g.withdrawRecords(ctx)
	}
	if err != nil {
		return fmt.Errorf("leaving: this cluster's records on the hub must be withdrawn first: %w%s",
			explainLeaving(err), orForce)
	}
	return nil
}

func (g *Gate) withdrawRecords(ctx context.Context) error {
	hub, err := g.Hub(ctx)
	if err != nil {
		return err
	}
	// Without their export, EndpointPages have no effect; the hub deletes them.
	return kube.ForEach(ctx, hub, &hubv1alpha1.ServiceExportRecordList{}, func(o client.Object) error {
		rec := o.(*hubv1alpha1.ServiceExportRecord)
		if rec.Spec.ClusterID != g.Cluster || rec.Spec.Withdrawn {
			return nil
		}
		rec.Spec = clusterset.Withdrawn(rec.Spec.Origin, g.Now())
		return client.IgnoreNotFound(hub.Update(ctx, rec))
	}, client.InNamespace(g.HubNamespace))
}

// markLeft marks this member's ClusterProfile as left; the hub controller then revokes the credentials and cleans up.
// If the hub refuses the credentials for a minute, they are revoked already. But an expired token proves nothing: the
// hub may still reserve the ID, so that is an error.
func (g *Gate) markLeft(ctx context.Context) error {
	token, err := g.Token() // read before it is used, because another may replace it
	if err != nil {
		return err
	}
	hub, err := g.Hub(ctx)
	if err != nil {
		return err
	}
	profile, err := g.profile(ctx, hub)
	if apierrors.IsUnauthorized(err) && expired(token, g.Now()) {
		return explainLeaving(err)
	}
	switch {
	case !refused(err):
		g.refusedSince = time.Time{}
	case g.refusedSince.IsZero():
		g.refusedSince = g.Now()
	case g.Now().Sub(g.refusedSince) >= reportAfter:
		return nil
	}
	if err != nil || profile == nil || profile.Annotations[clusterset.AnnotationLeft] != "" {
		return err
	}
	left := profile.DeepCopy()
	metav1.SetMetaDataAnnotation(&left.ObjectMeta, clusterset.AnnotationLeft, "true")
	return client.IgnoreNotFound(hub.Patch(ctx, left, kube.Changes(profile)))
}

// expired returns whether a token has expired, allowing a minute between two clocks. It returns false for anything
// that is no JSON Web Token.
func expired(token string, now time.Time) bool {
	t, err := clusterset.ParseToken(token)
	return err == nil && now.Add(time.Minute).Unix() >= t.Expires
}

// deleteToken deletes the token for the hub; the next join brings another.
func (g *Gate) deleteToken(ctx context.Context) error {
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.SecretHub}
	secret, err := kube.Get[*corev1.Secret](ctx, g.Local, name)
	if err != nil || secret == nil || len(secret.Data[clusterset.SecretToken]) == 0 {
		return err
	}
	g.dropped, secret.Data[clusterset.SecretToken] = string(secret.Data[clusterset.SecretToken]), nil
	return g.Local.Update(ctx, secret)
}

// leaseVersion is a version of this member's Lease on the hub, and when this agent first saw it.
type leaseVersion struct {
	version string
	since   time.Time
}

// checkClone returns why this cluster may be a clone of the member whose ID it has, "" if it is not. A clone
// has the same credentials, and often the same UID; it must not withdraw the records of the original. A cluster
// that made the Lease's last renewal is no clone. If it did not, or if the write of that fact failed, it is no
// clone once nobody has renewed the Lease for as long as the Lease lasts.
func (g *Gate) checkClone(ctx context.Context) (string, error) {
	hub, err := g.Hub(ctx)
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
