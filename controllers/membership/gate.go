// Package membership joins a cluster to its clusterset, takes it out again, and keeps the member's part of its
// ClusterProfile on the hub. What it promises about identity is enforced by admission policies, also while no agent
// runs.
//
// Gate runs before any controller. New returns the controller of the ClusterProfile. RefusalReporter reports that
// the hub does not accept this member's credentials.
package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/relist"
)

// Gate makes a cluster a member, and ends its membership. Enter needs clients that do not read caches.
type Gate struct {
	Cluster      string // the cluster ID
	Given        bool   // whether the user gave the ID to this agent, instead of the ClusterProperty
	HubNamespace string
	Local        client.Client
	// The client's requests, discovery included, end by the deadline of ctx.
	Hub   func(ctx context.Context) (client.Client, error)
	Token func() (string, error) // the token that Hub uses; "" if it uses something else
	Now   func() time.Time

	lease        leaseVersion
	cleaned      bool      // nothing of the agent is left here, so a leave that waits for the hub need not look again
	refusedSince time.Time // since when the hub refuses this member's credentials while it leaves; zero if it does not
	forced       bool      // this process left without the hub, which may still have the claim and accept the old token
	dropped      string    // the token that it deleted then
}

// ErrLeft is the error of a cluster that has just left.
var ErrLeft = notAdmitted("Left", errors.New(
	"this cluster has left its clusterset; to make it a member again, run: kubectl clusterset join --hub-context=HUB"))

// notAdmitted returns err with a reason for the condition Admitted.
func notAdmitted(reason string, err error) error {
	return &health.NotAdmitted{Reason: reason, Err: err}
}

// refusedHere gives a refusal by this cluster's API server the reason RefusedHere, and drops its status, which would
// count as the hub's answer. It returns nil and other errors as they are.
func refusedHere(err error) error {
	if !relist.Unanswered(err) {
		return notAdmitted("RefusedHere", errors.New(err.Error()))
	}
	return err
}

// ErrIdentity is the error of a cluster whose ID is no longer the one that this agent started with.
var ErrIdentity = errors.New("this cluster's ID has changed; the agent restarts with the new one")

// Enter returns nil if this cluster is a member. If it is not, Enter makes it one; that needs the hub. If it is
// leaving, Enter takes it out and returns ErrLeft. Any other error says what to do; Enter may be called again.
func (g *Gate) Enter(ctx context.Context) error {
	id, err := g.identity(ctx)
	if err != nil {
		return err
	}
	set, err := kube.Property(ctx, g.Local, clusterset.PropertySet)
	if err != nil {
		return refusedHere(err)
	}
	switch {
	case set != nil && set.Annotations[clusterset.AnnotationLeaving] == "":
		return nil
	case set != nil:
		if err := g.leave(ctx, set); err != nil {
			return notAdmitted("Leaving", err)
		}
		return ErrLeft
	case g.forced:
		if joined, err := g.joinedAgain(ctx); !joined {
			return cmp.Or(err, ErrLeft)
		}
	}
	return g.join(ctx, id == nil)
}

// join claims the ID on the hub, and then writes the ClusterProperties; newID says that the one of the ID is
// missing too.
func (g *Gate) join(ctx context.Context, newID bool) error {
	hub, err := g.Hub(ctx)
	if err != nil {
		return err
	}
	hubSet, err := g.Claim(ctx, hub)
	if err != nil {
		return err
	}
	if newID {
		id := &aboutv1beta1.ClusterProperty{}
		id.Name, id.Spec.Value = clusterset.PropertyID, g.Cluster
		if err := g.Local.Create(ctx, id); err != nil {
			return refusedHere(err)
		}
	}
	set := &aboutv1beta1.ClusterProperty{}
	set.Name, set.Spec.Value = clusterset.PropertySet, hubSet.Name
	set.Annotations = map[string]string{clusterset.AnnotationVIPMode: string(hubSet.Spec.VIPs.Mode)}
	// The policy that requires an ID learns of a new one through a watch.
	retriable := func(err error) bool { return newID && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) }
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Steps: 50}
	err = retry.OnError(backoff, retriable, func() error { return g.Local.Create(ctx, set) })
	if err == nil {
		log.FromContext(ctx).Info("joined", "clusterset", hubSet.Name, "cluster", g.Cluster)
	}
	return refusedHere(err)
}

// joinedAgain returns whether a join has brought a token since deleteToken, and Hub uses it. A kubelet may take two
// minutes to replace the old one, which the hub may still accept. Something other than a join may have restored that.
func (g *Gate) joinedAgain(ctx context.Context) (bool, error) {
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.SecretHub}
	secret, err := kube.Get[*corev1.Secret](ctx, g.Local, name)
	if err != nil || secret == nil {
		return false, err
	}
	token, err := g.Token()
	return token != "" && token != g.dropped && token == string(secret.Data[clusterset.SecretToken]), err
}

// identity returns the ClusterProperty with this cluster's ID, nil if there is none. It fails if the ID is not the
// one that this agent uses.
func (g *Gate) identity(ctx context.Context) (*aboutv1beta1.ClusterProperty, error) {
	id, err := kube.Property(ctx, g.Local, clusterset.PropertyID)
	if err != nil || id == nil || id.Spec.Value == g.Cluster {
		return id, refusedHere(err)
	}
	if !g.Given {
		return nil, ErrIdentity
	}
	return nil, notAdmitted("IDDiffers", fmt.Errorf("ClusterProperty %s of this cluster is %q, but the agent's "+
		"--cluster-id is %q: start the agent with the former, or leave and join with the latter",
		clusterset.PropertyID, id.Spec.Value, g.Cluster))
}

// Claim makes sure that the ClusterProfile of this cluster's ID belongs to this cluster (K2149), and returns the
// ClusterSet. It fails if another cluster has the ID, or if nobody has joined with it.
func (g *Gate) Claim(ctx context.Context, hub client.Client) (*hubv1alpha1.ClusterSet, error) {
	var sets hubv1alpha1.ClusterSetList
	if err := hub.List(ctx, &sets, client.InNamespace(g.HubNamespace)); err != nil {
		return nil, ExplainRefusal(err)
	}
	if n := len(sets.Items); n != 1 {
		remedy := "run: kubectl clusterset init --hub-context=HUB --hub-namespace=" + g.HubNamespace
		if n > 1 {
			remedy = "keep one, on the hub: kubectl -n " + g.HubNamespace + " delete clusterset NAME"
		}
		return nil, notAdmitted("NoClusterSet", fmt.Errorf("namespace %s of the hub has %d ClusterSets, and needs "+
			"exactly one; %s", g.HubNamespace, n, remedy))
	}
	name := sets.Items[0].Name
	set, err := kube.Property(ctx, g.Local, clusterset.PropertySet)
	if err != nil {
		return nil, refusedHere(err)
	}
	if set != nil && set.Spec.Value != name {
		return nil, notAdmitted("OtherClusterSet", fmt.Errorf("this cluster is a member of clusterset %q "+
			"(ClusterProperty %s), but the hub's is %q: leave the former, then join the latter",
			set.Spec.Value, clusterset.PropertySet, name))
	}
	uid, err := g.clusterUID(ctx)
	if err != nil {
		return nil, err
	}
	profile, err := g.profile(ctx, hub)
	if err != nil {
		return nil, err
	}
	claimed, err := isClaimed(profile, g.Cluster, g.HubNamespace, uid)
	if err != nil || claimed {
		return &sets.Items[0], err
	}
	claim := profile.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, clusterset.AnnotationClusterUID, uid)
	if err := hub.Patch(ctx, claim, kube.Changes(profile)); err != nil {
		return nil, err
	}
	log.FromContext(ctx).Info("claimed the cluster ID", "clusterProfile", profile.Name)
	return &sets.Items[0], nil
}

// clusterUID returns the UID of namespace kube-system, which identifies a cluster.
func (g *Gate) clusterUID(ctx context.Context) (string, error) {
	system := &corev1.Namespace{}
	if err := g.Local.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", refusedHere(fmt.Errorf("reading the UID of namespace %s: %w", metav1.NamespaceSystem, err))
	}
	return string(system.UID), nil
}

func (g *Gate) profile(ctx context.Context, hub client.Reader) (*inventoryv1alpha1.ClusterProfile, error) {
	name := types.NamespacedName{Namespace: g.HubNamespace, Name: g.Cluster}
	return kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, hub, name)
}

// isClaimed returns whether the cluster with this UID holds the profile; false without an error means that it may
// claim it. An error says why it may not.
func isClaimed(profile *inventoryv1alpha1.ClusterProfile, id, namespace, uid string) (bool, error) {
	if profile == nil {
		return false, notAdmitted("NotJoined", fmt.Errorf("the hub has no ClusterProfile %s in namespace %s: this "+
			"cluster has not joined, or was evicted; run: kubectl clusterset join --hub-context=HUB", id, namespace))
	}
	holder := profile.Annotations[clusterset.AnnotationClusterUID]
	joining := profile.Annotations[clusterset.AnnotationJoiningUID]
	switch {
	case profile.DeletionTimestamp != nil:
		return false, notAdmitted("BeingDeleted", fmt.Errorf("ClusterProfile %s on the hub is being deleted: this "+
			"cluster is leaving, or is evicted; once it is gone, run: kubectl clusterset join --hub-context=HUB", id))
	case profile.Annotations[clusterset.AnnotationLeft] != "":
		return false, notAdmitted("BeingDeleted", fmt.Errorf("ClusterProfile %s on the hub belongs to a cluster that "+
			"has left; once it is gone, run: kubectl clusterset join --hub-context=HUB", id))
	case holder == "" && joining != "" && joining != uid: // this cluster was evicted, and another one gets the ID
		return false, notAdmitted("IDTaken", errors.New(heldBy(id, joining, uid)))
	case holder == "":
		return false, nil
	case holder != uid:
		return false, notAdmitted("IDTaken", errors.New(heldBy(id, holder, uid)))
	}
	return true, nil
}

// heldBy returns the message that another cluster has the ID.
func heldBy(id, holder, uid string) string {
	return fmt.Sprintf("cluster ID %s is held by another cluster (its kube-system UID is %s, this one's is %s): "+
		"the ID or the credentials were copied; give this cluster an ID of its own: "+
		"kubectl clusterset leave --force, then join --cluster-id ID", id, holder, uid)
}

// refused returns whether the hub does not accept this member's credentials.
func refused(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// whyRefused does not suggest to leave first: joining again keeps imports and VIPs, and leaving does not.
const whyRefused = "either they expired or lost their rights " +
	"(run: kubectl clusterset join --renew --hub-context=HUB), " +
	"or the cluster was evicted or the hub was restored to a time before it joined " +
	"(run: kubectl clusterset join --hub-context=HUB, which keeps its ID and VIPs; leave if it must stay out)"

// ExplainRefusal adds cause and remedy to the error of a hub that does not accept this member's credentials. It
// returns any other error as it is.
func ExplainRefusal(err error) error {
	if refused(err) {
		return fmt.Errorf("the hub refuses this member's credentials: %s: %w", whyRefused, err)
	}
	return err
}
