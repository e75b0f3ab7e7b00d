// Package membership is a member's own part in having an identity, joining and leaving (DESIGN §6; SPEC ID, P3). The API servers'
// policies enforce what it promises: this cluster's hold while it does not run.
//
// Gate is asked before any controller runs. Controller keeps this member's part of its ClusterProfile. Leave undoes all of it.
package membership

import (
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
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Gate lets a cluster in that is a member, and makes it one. Its clients read no cache.
type Gate struct {
	Cluster      string // the cluster id
	Given        bool   // by the user to this agent, and not found in the cluster
	HubNamespace string
	Local        client.Client
	Hub          func() (client.Client, error)
	Token        func() (string, error) // by which Hub speaks; "" if by something else
	Now          func() time.Time

	seen   sighting
	forced bool // it has left without the hub's knowledge, which may still hold its claim
}

// ErrLeft is the error of a cluster that has just left.
var ErrLeft = errors.New("this cluster has left its clusterset; to be a member again: kubectl clusterset join")

// ErrIdentity is the error of a cluster whose id is not any more what the agent has found in it.
var ErrIdentity = errors.New("this cluster's id has changed; the agent begins anew with it")

// Enter is one attempt. It returns nil while this cluster is a member, which takes the hub only the first time; its errors say what to
// do. A cluster that is leaving leaves.
func (g *Gate) Enter(ctx context.Context) error {
	id, err := g.identity(ctx)
	if err != nil {
		return err
	}
	set, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, g.Local, types.NamespacedName{Name: clusterset.PropertySet})
	if err != nil {
		return err
	}
	if set != nil {
		if set.Annotations[clusterset.AnnotationLeaving] == "" {
			return nil
		}
		if err := g.leave(ctx, set); err != nil {
			return err
		}
		return ErrLeft
	}
	if g.forced {
		return ErrLeft
	}
	hub, err := g.Hub()
	if err != nil {
		return err
	}
	hubSet, err := g.Claim(ctx, hub)
	if err != nil {
		return err
	}
	for _, p := range []struct{ name, value string }{{clusterset.PropertyID, g.Cluster}, {clusterset.PropertySet, hubSet.Name}} {
		if p.name == clusterset.PropertyID && id != nil {
			continue
		}
		property := &aboutv1beta1.ClusterProperty{}
		property.Name, property.Spec.Value = p.name, p.value
		if p.name == clusterset.PropertySet {
			property.Annotations = map[string]string{clusterset.AnnotationVIPMode: string(hubSet.Spec.VIPs.Mode)}
		}
		create := func() error { return g.Local.Create(ctx, property) }
		if p.name == clusterset.PropertySet && id == nil { // the policy that wants an id first learns of it by a watch
			create = func() error {
				return retry.OnError(soon, denied, func() error { return g.Local.Create(ctx, property) })
			}
		}
		if err := create(); err != nil {
			return err
		}
	}
	log.FromContext(ctx).Info("a member", "clusterset", hubSet.Name, "cluster", g.Cluster)
	return nil
}

// denied tells whether a policy may have said no: where it does not find its parameter it gives no reason.
func denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// soon is within five seconds.
var soon = wait.Backoff{Duration: 100 * time.Millisecond, Steps: 50}

// identity is the ClusterProperty that says this cluster's id, nil where nobody has said it yet. It must be what this agent goes by.
func (g *Gate) identity(ctx context.Context) (*aboutv1beta1.ClusterProperty, error) {
	id, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, g.Local, types.NamespacedName{Name: clusterset.PropertyID})
	if err != nil || id == nil {
		return nil, err
	}
	if id.Spec.Value != g.Cluster && !g.Given {
		return nil, ErrIdentity
	}
	if id.Spec.Value != g.Cluster {
		return nil, fmt.Errorf("ClusterProperty %s of this cluster is %q, and the agent's --cluster-id %q: give the agent the former, or leave and join with the latter",
			clusterset.PropertyID, id.Spec.Value, g.Cluster)
	}
	return id, nil
}

// Claim confirms, or makes, this cluster's claim to its id on the hub (ID3), and returns the ClusterSet.
func (g *Gate) Claim(ctx context.Context, hub client.Client) (*hubv1alpha1.ClusterSet, error) {
	var sets hubv1alpha1.ClusterSetList
	if err := hub.List(ctx, &sets, client.InNamespace(g.HubNamespace)); err != nil {
		return nil, Refused(err)
	}
	if len(sets.Items) != 1 {
		return nil, fmt.Errorf("namespace %s of the hub holds %d ClusterSets, and must hold one: kubectl clusterset init", g.HubNamespace, len(sets.Items))
	}
	name := sets.Items[0].Name
	set, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, g.Local, types.NamespacedName{Name: clusterset.PropertySet})
	if err != nil {
		return nil, err
	}
	if set != nil && set.Spec.Value != name {
		return nil, fmt.Errorf("this cluster is a member of clusterset %q (ClusterProperty %s) and the hub's is %q: leave the one, then join the other", set.Spec.Value, clusterset.PropertySet, name)
	}
	system, err := kube.Get[*corev1.Namespace](ctx, g.Local, types.NamespacedName{Name: systemNamespace})
	if err != nil {
		return nil, err
	}
	if system == nil {
		return nil, fmt.Errorf("this cluster has no namespace %s, whose UID is its identity", systemNamespace)
	}
	profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, hub, types.NamespacedName{Namespace: g.HubNamespace, Name: g.Cluster})
	if err != nil {
		return nil, err
	}
	mine, err := claim(profile, g.Cluster, g.HubNamespace, string(system.UID))
	if err != nil || mine {
		return &sets.Items[0], err
	}
	claimed := profile.DeepCopy()
	metav1.SetMetaDataAnnotation(&claimed.ObjectMeta, clusterset.AnnotationClusterUID, string(system.UID))
	if err := hub.Patch(ctx, claimed, kube.Changes(profile)); err != nil {
		return nil, err
	}
	log.FromContext(ctx).Info("claimed", "clusterProfile", profile.Name)
	return &sets.Items[0], nil
}

// refuses tells whether the hub does not take this member's credentials.
func refuses(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// whyRefused names no leaving first: that takes away imports and VIPs, which a member that the hub has forgotten keeps by joining again.
const whyRefused = "either they ran out (kubectl clusterset join --renew), or it was evicted, or the hub was restored to before it joined (kubectl clusterset join takes it in again with its id and VIPs; leave if it is to stay out)"

// Refused says what it means that the hub does not take this member's credentials.
func Refused(err error) error {
	if refuses(err) {
		return fmt.Errorf("the hub does not take this member's credentials: %s: %w", whyRefused, err)
	}
	return err
}

const systemNamespace = "kube-system"

// claim tells whether profile is held by the cluster uid, or is free for it, or why neither.
func claim(profile *inventoryv1alpha1.ClusterProfile, id, namespace, uid string) (mine bool, err error) {
	if profile == nil {
		return false, fmt.Errorf("the hub has no ClusterProfile %s in namespace %s: this cluster has not joined, or was evicted; kubectl clusterset join", id, namespace)
	}
	holder, joining := profile.Annotations[clusterset.AnnotationClusterUID], profile.Annotations[clusterset.AnnotationJoiningUID]
	switch {
	case profile.DeletionTimestamp != nil:
		return false, fmt.Errorf("ClusterProfile %s on the hub is being deleted: this cluster is leaving, or is evicted; once it is gone: kubectl clusterset join", id)
	case profile.Annotations[clusterset.AnnotationLeft] != "":
		return false, fmt.Errorf("ClusterProfile %s on the hub is of a cluster that has left, and goes when its records are gone; then: kubectl clusterset join", id)
	case holder == "" && joining != "" && joining != uid: // this one was evicted, and another is to have the id
		return false, errors.New(heldBy(id, joining, uid))
	case holder == "":
		return false, nil
	case holder != uid:
		return false, errors.New(heldBy(id, holder, uid))
	}
	return true, nil
}
