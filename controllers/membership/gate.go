// Package membership joins a cluster to its clusterset, takes it out again, and keeps the member's part of its
// ClusterProfile on the hub. What it promises about identity is enforced by admission policies, also while no agent
// runs.
//
// Gate runs before any controller. New returns the controller of the ClusterProfile. RefusalReporter reports that
// the hub does not accept this member's credentials.
package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Gate makes a cluster a member, and ends its membership. Its clients do not read caches.
type Gate struct {
	Cluster      string // the cluster ID
	Given        bool   // whether the user gave the ID to this agent, instead of the ClusterProperty
	HubNamespace string
	Local        client.Client
	Hub          func() (client.Client, error)
	Token        func() (string, error) // the token that Hub uses; "" if it uses something else
	Now          func() time.Time

	lease   leaseVersion
	cleaned bool // nothing of the agent is left here, so a leave that waits for the hub need not look again
	forced  bool // this cluster has left without the hub's knowledge, and the hub may still have its claim
}

// ErrLeft is the error of a cluster that has just left.
var ErrLeft = errors.New(
	"this cluster has left its clusterset; to make it a member again, run: kubectl clusterset join")

// ErrIdentity is the error of a cluster whose ID is no longer the one that this agent started with.
var ErrIdentity = errors.New("this cluster's ID has changed; the agent restarts with the new one")

// Enter returns nil if this cluster is a member. If it is not, Enter makes it one; that needs the hub. If it is
// leaving, Enter takes it out and returns ErrLeft. Any other error says what to do; Enter may be called again.
func (g *Gate) Enter(ctx context.Context) error {
	id, err := g.identity(ctx)
	if err != nil {
		return err
	}
	set, err := kube.Get[*aboutv1beta1.ClusterProperty](
		ctx, g.Local, types.NamespacedName{Name: clusterset.PropertySet})
	if err != nil {
		return err
	}
	switch {
	case set != nil && set.Annotations[clusterset.AnnotationLeaving] == "":
		return nil
	case set != nil:
		if err := g.leave(ctx, set); err != nil {
			return err
		}
		return ErrLeft
	case g.forced:
		return ErrLeft
	}
	return g.join(ctx, id == nil)
}

// join claims the ID on the hub, and then writes the ClusterProperties; newID says that the one of the ID is
// missing too.
func (g *Gate) join(ctx context.Context, newID bool) error {
	hub, err := g.Hub()
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
			return err
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
	return err
}

// identity returns the ClusterProperty with this cluster's ID, nil if there is none. It fails if the ID is not the
// one that this agent uses.
func (g *Gate) identity(ctx context.Context) (*aboutv1beta1.ClusterProperty, error) {
	id, err := kube.Get[*aboutv1beta1.ClusterProperty](
		ctx,
		g.Local,
		types.NamespacedName{Name: clusterset.PropertyID},
	)
	if err != nil || id == nil || id.Spec.Value == g.Cluster {
		return id, err
	}
	if !g.Given {
		return nil, ErrIdentity
	}
	return nil, fmt.Errorf("ClusterProperty %s of this cluster is %q, but the agent's --cluster-id is %q: "+
		"start the agent with the former, or leave and join with the latter",
		clusterset.PropertyID, id.Spec.Value, g.Cluster)
}
