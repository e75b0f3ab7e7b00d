package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// LeaveOptions are of one member.
type LeaveOptions struct {
	Options
	Member *cluster.Cluster
	Force  bool // the hub is gone for good
}

// leave is one run.
type leave struct {
	*LeaveOptions
	state
	objects []*unstructured.Unstructured // what join applied and is to go
	claims  []string                     // on the hub, this cluster's own
	left    bool                         // the agent has
	stays   map[string]bool              // kinds and claims of which that was said
}

// Leave takes a cluster out of its clusterset and leaves it as it was before it joined. A join that was not finished is undone.
func Leave(ctx context.Context, o *LeaveOptions) error {
	l := &leave{LeaveOptions: o, stays: map[string]bool{}}
	if _, err := ask(ctx, o.Member, o.Say); err != nil {
		return err
	}
	var err error
	if l.state, err = read(ctx, o.Member); err != nil {
		return err
	}
	if err := l.plan(ctx); err != nil {
		return err
	}
	if err := l.claimed(ctx); err != nil {
		return err
	}
	if l.was == nil && len(l.objects)+len(l.claims) == 0 {
		return fmt.Errorf("%s is a member of no clusterset, and nothing of one is left in it", o.Member.Name)
	}
	if o.DryRun != nil {
		return l.print()
	}
	if err := allowed(ctx, o.Member, l.rights()); err != nil {
		return err
	}
	return l.run(ctx)
}

// run takes the steps.
func (l *leave) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{l.disarm, l.withdraw, l.release, l.clean} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%w\nto go on: the same command again", err)
		}
	}
	l.Say("%s: has left; its ServiceExports are as they were", l.Member.Name)
	return nil
}

// rights are those that leaving takes in this cluster: where there is no agent, its own as well.
func (l *leave) rights() []cluster.Right {
	out := append(cluster.RightsToApply(l.objects, remove...), cluster.Right{Verb: "patch", Group: aboutv1beta1.GroupVersion.Group, Resource: "clusterproperties"})
	if l.was == nil {
		out = append(out, cleaning()...)
	}
	if binding := only(l.objects, kindBinding); l.was == nil && binding != nil { // disarm's
		out = append(out, cluster.Right{Verb: "create", Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"})
		out = append(out, cluster.RightsToApply([]*unstructured.Unstructured{binding}, write...)...)
	}
	return out
}

// claimed fills claims, and says which others stay. By force a hub that does not answer is left as it is.
func (l *leave) claimed(ctx context.Context) error {
	held, begun, err := claims(ctx, &l.Options, l.uid)
	switch {
	case err == nil:
	case l.Force && ctx.Err() == nil:
		l.Say("%v; it is left as it is", err)
		l.Hub = nil
		return nil
	default:
		return fmt.Errorf("%w\nif it is gone for good: --force, without --hub-context", err)
	}
	own, others := l.own(held)
	for _, id := range others {
		if l.stays[id] {
			continue
		}
		l.stays[id] = true
		l.Say("the hub: %s stays: it has this cluster's kube-system UID, and not its id, so it may be of a clone; if nobody needs it: kubectl clusterset leave %s --evict --hub-context …", id, id)
	}
	l.claims = append(own, begun...)
	return nil
}

// own are those of held, the claims of clusters with this UID, that are by this cluster's id. Any other may be of a clone, or of the cluster
// of which this one is a clone: to give it up is an eviction, which nobody has asked for (decision 0010).
func (s *state) own(held []string) (own, others []string) {
	for _, id := range held {
		if s.id != nil && s.id.Spec.Value == id {
			own = append(own, id)
		} else {
			others = append(others, id)
		}
	}
	return own, others
}

// withdraw has the agent leave, and waits for it.
func (l *leave) withdraw(ctx context.Context) error {
	if l.was == nil {
		return nil
	}
	if err := l.rearm(ctx); err != nil {
		return err
	}
	value := "kubectl-clusterset"
	evicted, err := l.evicted(ctx)
	if err != nil {
		return err
	}
	if evicted {
		l.Say("the hub: this cluster was evicted, so it leaves without the hub")
		l.Force = true
	}
	if l.Force {
		value = clusterset.LeavingForced
	}
	began := time.Now()
	since := began
	if was := l.was.Annotations[clusterset.AnnotationLeaving]; was != "" && (!l.Force || was == value) {
		since = began.Add(-Recent) // it is leaving already
	} else {
		leaving := l.was.DeepCopy()
		if leaving.Annotations == nil {
			leaving.Annotations = map[string]string{}
		}
		leaving.Annotations[clusterset.AnnotationLeaving] = value
		err := cluster.Settled(ctx, func(ctx context.Context) error {
			return l.Member.Patch(ctx, leaving.DeepCopy(), client.MergeFrom(l.was), client.FieldOwner(manifest.FieldManager))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", l.Member.Name, err)
		}
	}
	l.Say("%s: is leaving clusterset %s; its agent withdraws its exports and deletes its imports", l.Member.Name, l.was.Spec.Value)
	say := l.waiter("the agent")
	err = cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		p, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, l.Member, types.NamespacedName{Name: clusterset.PropertySet})
		if err != nil || p == nil {
			return err == nil, "", err
		}
		why := agentSays(ctx, l.Member, since)
		if time.Since(began) > 5*time.Second {
			say(why)
		}
		return false, why, nil
	})
	if err != nil {
		return fmt.Errorf("the agent of %s has not left yet: %w\nif its token for the hub ran out: kubectl clusterset join --renew, then the same command; if this cluster was evicted: the same command with --hub-context; if the hub is gone for good: with --force; if the agent does not run: kubectl clusterset doctor", l.Member.Name, err)
	}
	return nil
}

// evicted tells whether the named hub says that this cluster departed. A hub that knows nothing of it may be the wrong one.
func (l *leave) evicted(ctx context.Context) (bool, error) {
	if l.Hub == nil || l.Force || l.id == nil || slices.Contains(l.claims, l.id.Spec.Value) {
		return false, nil
	}
	var sets hubv1alpha1.ClusterSetList
	if err := l.Hub.List(ctx, &sets, client.InNamespace(l.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("%s: %w", l.Hub.Name, err)
	}
	for i := range sets.Items {
		if clusterset.Departed(&sets.Items[i], l.id.Spec.Value) && sets.Items[i].Name == l.was.Spec.Value {
			return true, nil
		}
	}
	return false, fmt.Errorf("namespace %s of %s knows no member %s: name the hub of clusterset %s; if that one has lost its memory, or is gone for good: --force", l.HubNamespace, l.Hub.Name, l.id.Spec.Value, l.was.Spec.Value)
}

// release gives up on the hub what is not given up by the agent's and the hub's own doing.
func (l *leave) release(ctx context.Context) error {
	if l.Hub == nil {
		l.Say("the hub was not asked: of a member that has left, clusterset-controller hub cleans up there; of one that left by force, or of a join that was not finished: kubectl clusterset leave CLUSTER --evict --hub-context …")
		return nil
	}
	patience := 10 * time.Second
	if l.was == nil {
		patience = 0
	}
	for _, id := range l.claims {
		spared, err := l.spared(ctx, id)
		if err != nil {
			return err
		}
		if spared {
			l.Say("the hub: %s stays: it has not left there, and --force gives up nothing that is in use; if this cluster is no clone: kubectl clusterset leave %s --evict --hub-context …", id, id)
			continue
		}
		if err := giveUp(ctx, &l.Options, id, patience, l.uid); err != nil {
			return err
		}
	}
	return nil
}

// spared tells whether --force leaves a claim: one that is in use may be of the cluster of which this one is a clone, however silent that is.
func (l *leave) spared(ctx context.Context, id string) (bool, error) {
	if !l.Force {
		return false, nil
	}
	p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, l.Hub, types.NamespacedName{Namespace: l.HubNamespace, Name: id})
	if err != nil {
		return false, fmt.Errorf("%s: %w", l.Hub.Name, err)
	}
	return p != nil && of(p, l.uid) && inUse(p), nil
}

// claims are the ids that a cluster of this UID holds, and those that it has begun to join with: one, unless somebody was interrupted and
// then chose another, or the cluster is a clone.
func claims(ctx context.Context, o *Options, uid string) (held, begun []string, err error) {
	if o.Hub == nil {
		return nil, nil, nil
	}
	var all inventoryv1alpha1.ClusterProfileList
	if err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return nil, nil, fmt.Errorf("%s: %w", o.Hub.Name, err)
	}
	for i := range all.Items {
		switch p := &all.Items[i]; {
		case !of(p, uid):
		case p.Annotations[clusterset.AnnotationClusterUID] == uid:
			held = append(held, p.Name)
		default:
			begun = append(begun, p.Name)
		}
	}
	return held, begun, nil
}

// of tells whether a claim is that of the cluster uid.
func of(p *inventoryv1alpha1.ClusterProfile, uid string) bool {
	holder := p.Annotations[clusterset.AnnotationClusterUID]
	return holder == uid || holder == "" && p.Annotations[clusterset.AnnotationJoiningUID] == uid
}

// inUse tells whether a claim is that of a member, which has not said that it left.
func inUse(p *inventoryv1alpha1.ClusterProfile) bool {
	return p.DeletionTimestamp == nil && p.Annotations[clusterset.AnnotationClusterUID] != "" && p.Annotations[clusterset.AnnotationLeft] == ""
}

// pulse is what is seen of a member's life.
type pulse struct {
	lease  *coordinationv1.Lease // at first
	since  time.Time
	goesOn bool // somebody has renewed it since
}

// ended tells whether nobody has renewed the Lease for as long as it lives, by this clock.
func (p *pulse) ended(ctx context.Context, hub *cluster.Cluster, name types.NamespacedName) (bool, error) {
	lease, err := kube.Get[*coordinationv1.Lease](ctx, hub, name)
	if err != nil || lease == nil {
		return err == nil, err
	}
	if p.lease == nil {
		p.lease, p.since = lease, time.Now()
	}
	p.goesOn = kube.Version(lease) != kube.Version(p.lease)
	return time.Since(p.since) >= time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 40))*time.Second, nil
}

// Evict takes a member out from the hub's side: it may be gone for good.
func Evict(ctx context.Context, o *Options, id string) error {
	if _, err := ask(ctx, o.Hub, o.Say); err != nil {
		return err
	}
	if err := allowed(ctx, o.Hub, []cluster.Right{{Verb: "delete", Group: inventoryv1alpha1.GroupVersion.Group, Resource: "clusterprofiles", Namespace: o.HubNamespace, Name: id}}); err != nil {
		return err
	}
	var all inventoryv1alpha1.ClusterProfileList
	if err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); err != nil {
		return fmt.Errorf("%s: %w", o.Hub.Name, err)
	}
	if err := evictable(all.Items, id); err != nil {
		return fmt.Errorf("%s, clusterset %s: %w", o.Hub.Name, o.HubNamespace, err)
	}
	if o.DryRun != nil {
		_, err := fmt.Fprintf(o.DryRun, "# On %s would be deleted, and by clusterset-controller hub all else of that member:\nClusterProfile %s/%s\n", o.Hub.Name, o.HubNamespace, id)
		return err
	}
	if err := giveUp(ctx, o, id, 0, ""); err != nil {
		return err
	}
	o.Say("if that cluster is still there, its imports stand as they were: kubectl clusterset leave --hub-context …, with its --context, takes them away")
	return nil
}

// evictable tells why id cannot be evicted: it is no member, or another cluster manager's (P2), whose ClusterProfile is not ours to delete.
func evictable(all []inventoryv1alpha1.ClusterProfile, id string) error {
	var ids []string
	for i := range all {
		manager := all[i].Spec.ClusterManager.Name
		switch {
		case manager == clusterset.ClusterManager && all[i].Name == id:
			return nil
		case manager == clusterset.ClusterManager:
			ids = append(ids, all[i].Name)
		case all[i].Name == id:
			return fmt.Errorf("ClusterProfile %s is of the cluster manager %s, and no member", id, manager)
		}
	}
	return fmt.Errorf("there is no member %s; its members are: %s", id, strings.Join(ids, ", "))
}

// giveUp deletes a member's ClusterProfile, unless it goes by itself within patience, and waits until it is gone. With a uid, only that
// cluster's; and a claim that is in use only once nobody has renewed its Lease for as long as that lives, since a clone has the same UID. One
// that comes to be used between the look and the deletion is looked at again.
func giveUp(ctx context.Context, o *Options, id string, patience time.Duration, uid string) error {
	name := types.NamespacedName{Namespace: o.HubNamespace, Name: id}
	deadline, deleted := time.Now().Add(patience), false
	var life pulse
	err := cluster.Until(ctx, o.Timeout, func(ctx context.Context) (bool, string, error) {
		p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, o.Hub, name)
		if err != nil && !meta.IsNoMatchError(err) {
			return false, "", err
		}
		if p == nil || uid != "" && !of(p, uid) {
			return true, "", nil
		}
		if uid != "" && inUse(p) {
			if ended, err := life.ended(ctx, o.Hub, name); err != nil || life.goesOn || !ended {
				return life.goesOn, "its Lease on the hub has not run out yet", err
			}
		}
		if p.DeletionTimestamp == nil && !deleted && time.Now().After(deadline) {
			if err := kube.Gone(o.Hub.Delete(ctx, p, client.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion})); err != nil {
				return false, "", err
			}
			deleted = true
			o.Say("the hub: deleting ClusterProfile %s", id)
		}
		return false, "its ClusterProfile " + id + " is still there", nil
	})
	if err != nil {
		return fmt.Errorf("%s: %s has not been cleaned up: %w\nclusterset-controller hub does that: kubectl -n %s logs -l app.kubernetes.io/name=clusterset-hub --tail=50", o.Hub.Name, id, err, kube.SystemNamespace)
	}
	if life.goesOn {
		o.Say("the hub: %s stays: an agent goes on renewing its Lease, so it is of another cluster, of which this one is a clone", id)
		return nil
	}
	o.Say("the hub: %s is a member no more; its credentials, records and Lease are gone", id)
	return nil
}
