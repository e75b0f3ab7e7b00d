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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// LeaveOptions are those of Leave.
type LeaveOptions struct {
	Options
	Member *cluster.Cluster
	Force  bool // without contacting the hub
}

// leave is the state of one run.
type leave struct {
	*LeaveOptions
	state
	objects []*unstructured.Unstructured // what join applied, and is deleted
	claims  []string                     // of this cluster on the hub
	left    bool                         // the agent has left
	stays   map[string]bool              // kinds and claims that were reported to stay
}

// Leave removes a cluster from its ClusterSet and restores what it was before it joined. It also undoes an unfinished
// join.
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
		return fmt.Errorf("%s is a member of no ClusterSet, and nothing is left to delete", o.Member.Name)
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
			return report.WithRemedy(err, "to continue, run the same command again")
		}
	}
	l.Say("%s: has left; its ServiceExports are unchanged", l.Member.Name)
	return nil
}

// rights returns those that leaving needs in this cluster; without an agent, also the agent's own.
func (l *leave) rights() []cluster.Right {
	out := append(cluster.RightsTo(l.objects, remove...),
		cluster.Right{Verb: "patch", Group: aboutv1beta1.GroupVersion.Group, Resource: "clusterproperties"})
	if l.was == nil {
		out = append(out, cleaning()...)
	}
	if binding := only(l.objects, kindBinding); l.was == nil && binding != nil { // for disarm
		out = append(out, cluster.Right{Verb: "create", Group: authorizationv1.GroupName,
			Resource: "subjectaccessreviews"})
		out = append(out, cluster.RightsTo([]*unstructured.Unstructured{binding}, write...)...)
	}
	return out
}

// claimed fills claims, and reports which others stay. With --force, a hub that does not answer is ignored.
func (l *leave) claimed(ctx context.Context) error {
	held, begun, err := claims(ctx, &l.Options, l.uid)
	switch {
	case err == nil:
	case l.Force && ctx.Err() == nil:
		l.Say("%v; the hub is not cleaned up", err)
		l.Hub = nil
		return nil
	default:
		return report.WithRemedy(err, "if the hub is permanently lost: --force, without --hub-context")
	}
	own, others := l.own(held)
	for _, id := range others {
		if l.stays[id] {
			continue
		}
		l.stays[id] = true
		l.Say("the hub: %s stays: it has this cluster's kube-system UID, and not its cluster ID, so it may be a "+
			"clone's; "+
			"if nobody needs it: "+evict, id, id)
	}
	l.claims = append(own, begun...)
	return nil
}

// evict is a remedy for a claim that stays.
const evict = "kubectl clusterset leave %s --evict --hub-context HUB"

// own returns the held claims with this cluster's ID. Others have the same UID, and may be a clone's: giving them up
// would be an eviction that nobody has asked for.
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

// withdraw tells the agent to leave, and waits for it.
func (l *leave) withdraw(ctx context.Context) error {
	if l.was == nil {
		return nil
	}
	if err := l.rearm(ctx); err != nil {
		return err
	}
	evicted, err := l.evicted(ctx)
	if err != nil {
		return err
	}
	if evicted {
		l.Say("the hub: this cluster was evicted, so it leaves without the hub")
		l.Force = true
	}
	began := time.Now()
	since, err := l.annotate(ctx, began)
	if err != nil {
		return err
	}
	l.Say("%s: is leaving ClusterSet %s; its agent withdraws its exports and deletes its imports", l.Member.Name,
		l.was.Spec.Value)
	say := l.waiter("the agent")
	err = cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		p, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, l.Member,
			types.NamespacedName{Name: clusterset.PropertySet})
		if err != nil || p == nil {
			return err == nil, "", err
		}
		why := whyNoMember(ctx, l.Member, since)
		if time.Since(began) > 5*time.Second {
			say(why)
		}
		return false, why, nil
	})
	if err != nil {
		return report.WithRemedy(l.Member.Failed(err, "waiting for the agent to leave"),
			"if its token for the hub has expired: kubectl clusterset "+
				"join --renew; if this cluster was evicted: the same command with --hub-context; if the hub is "+
				"permanently lost: with --force; if the "+
				"agent does not run: kubectl clusterset doctor")
	}
	return nil
}

// annotate tells the agent to leave. It returns since when Events of the agent are about that.
func (l *leave) annotate(ctx context.Context, now time.Time) (since time.Time, err error) {
	value := "kubectl-clusterset"
	if l.Force {
		value = clusterset.LeavingForced
	}
	if was := l.was.Annotations[clusterset.AnnotationLeaving]; was != "" && (!l.Force || was == value) {
		return now.Add(-Recent), nil
	}
	leaving := l.was.DeepCopy()
	metav1.SetMetaDataAnnotation(&leaving.ObjectMeta, clusterset.AnnotationLeaving, value)
	err = cluster.Settled(ctx, func(ctx context.Context) error {
		return l.Member.Patch(ctx, leaving.DeepCopy(), client.MergeFrom(l.was),
			client.FieldOwner(manifest.FieldManager))
	})
	return now, l.Member.Failed(err, "annotating ClusterProperty %s", l.was.Name)
}

// evicted reports whether the hub lists this cluster as departed. A hub that does not know it may be the wrong one.
func (l *leave) evicted(ctx context.Context) (bool, error) {
	if l.Hub == nil || l.Force || l.id == nil || slices.Contains(l.claims, l.id.Spec.Value) {
		return false, nil
	}
	var sets hubv1alpha1.ClusterSetList
	if err := l.Hub.List(ctx, &sets, client.InNamespace(l.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return false, l.Hub.Failed(err, "listing ClusterSets")
	}
	for i := range sets.Items {
		if clusterset.Departed(&sets.Items[i], l.id.Spec.Value) && sets.Items[i].Name == l.was.Spec.Value {
			return true, nil
		}
	}
	return false, report.WithRemedy(fmt.Errorf("namespace %s of %s has no member %s", l.HubNamespace, l.Hub.Name,
		l.id.Spec.Value),
		"name the hub of ClusterSet "+l.was.Spec.Value+"; if it is permanently lost, or has lost its data: --force")
}

// release deletes the claims on the hub that the agent and the hub's controller do not delete.
func (l *leave) release(ctx context.Context) error {
	if l.Hub == nil {
		l.Say("the hub was not contacted: it cleans up after a member that has left; after --force, or an unfinished "+
			"join: "+evict, "CLUSTER")
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
			l.Say("the hub: %s stays: it is in use, and --force deletes no claim in use; if this cluster is no "+
				"clone: "+evict, id, id)
			continue
		}
		if err := giveUp(ctx, &l.Options, id, patience, l.uid); err != nil {
			return err
		}
	}
	return nil
}

// spared reports whether --force keeps a claim: one in use may be that of this clone's original.
func (l *leave) spared(ctx context.Context, id string) (bool, error) {
	if !l.Force {
		return false, nil
	}
	p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, l.Hub, types.NamespacedName{Namespace: l.HubNamespace,
		Name: id})
	if err != nil {
		return false, l.Hub.Failed(err, "reading ClusterProfile %s", id)
	}
	return p != nil && of(p, l.uid) && inUse(p), nil
}

// claims returns the cluster IDs that a cluster of this UID holds, and those of its unfinished joins.
func claims(ctx context.Context, o *Options, uid string) (held, begun []string, err error) {
	if o.Hub == nil {
		return nil, nil, nil
	}
	var all inventoryv1alpha1.ClusterProfileList
	if err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return nil, nil, o.Hub.Failed(err, "listing ClusterProfiles")
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

// of reports whether a claim is that of the cluster uid.
func of(p *inventoryv1alpha1.ClusterProfile, uid string) bool {
	holder := p.Annotations[clusterset.AnnotationClusterUID]
	return holder == uid || holder == "" && p.Annotations[clusterset.AnnotationJoiningUID] == uid
}

// inUse reports whether a claim is that of a member that has not left.
func inUse(p *inventoryv1alpha1.ClusterProfile) bool {
	return p.DeletionTimestamp == nil && p.Annotations[clusterset.AnnotationClusterUID] != "" &&
		p.Annotations[clusterset.AnnotationLeft] == ""
}

// pulse watches whether a member renews its Lease.
type pulse struct {
	lease   *coordinationv1.Lease // at first
	since   time.Time
	renewed bool // since
}

// ended reports whether nobody has renewed the Lease for its duration, by this machine's clock.
func (p *pulse) ended(ctx context.Context, hub *cluster.Cluster, name types.NamespacedName) (bool, error) {
	lease, err := kube.Get[*coordinationv1.Lease](ctx, hub, name)
	if err != nil || lease == nil {
		return err == nil, err
	}
	if p.lease == nil {
		p.lease, p.since = lease, time.Now()
	}
	p.renewed = kube.Version(lease) != kube.Version(p.lease)
	return time.Since(p.since) >= time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 40))*time.Second, nil
}

// Evict removes a member from the hub's side.
func Evict(ctx context.Context, o *Options, id string) error {
	if _, err := ask(ctx, o.Hub, o.Say); err != nil {
		return err
	}
	right := cluster.Right{
		Verb: "delete", Group: inventoryv1alpha1.GroupVersion.Group, Resource: "clusterprofiles",
		Namespace: o.HubNamespace, Name: id,
	}
	if err := allowed(ctx, o.Hub, []cluster.Right{right}); err != nil {
		return err
	}
	var all inventoryv1alpha1.ClusterProfileList
	if err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); err != nil {
		return o.Hub.Failed(err, "listing ClusterProfiles")
	}
	if err := evictable(all.Items, id); err != nil {
		return fmt.Errorf("%s, ClusterSet %s: %w", o.Hub.Name, o.HubNamespace, err)
	}
	if o.DryRun != nil {
		_, err := fmt.Fprintf(o.DryRun, onHub+"ClusterProfile %s/%s\n", o.Hub.Name, "", o.HubNamespace, id)
		return err
	}
	if err := giveUp(ctx, o, id, 0, ""); err != nil {
		return err
	}
	o.Say("if that cluster still exists, its imports stay until: kubectl clusterset leave --context MEMBER " +
		"--hub-context HUB")
	return nil
}

// evictable is the error if id is no member: another cluster manager's ClusterProfile is not ours to delete.
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
			return fmt.Errorf("ClusterProfile %s belongs to the cluster manager %s, and is no member", id, manager)
		}
	}
	return fmt.Errorf("there is no member %s; members are: %s", id, strings.Join(ids, ", "))
}

// giveUp deletes a ClusterProfile, unless it goes by itself within patience, and waits until it is gone. With a uid,
// it deletes only that cluster's; and one in use only when its Lease has expired, because a clone has the same UID.
// If the claim changes meanwhile, it is examined again.
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
			if ended, err := life.ended(ctx, o.Hub, name); err != nil || life.renewed || !ended {
				return life.renewed, "its Lease on the hub has not expired yet", err
			}
		}
		if p.DeletionTimestamp == nil && !deleted && time.Now().After(deadline) {
			unchanged := client.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}
			if err := client.IgnoreNotFound(o.Hub.Delete(ctx, p, unchanged)); err != nil {
				return false, "", err
			}
			deleted = true
			o.Say("the hub: deleting ClusterProfile %s", id)
		}
		return false, "ClusterProfile " + id + " still exists", nil
	})
	if err != nil {
		return report.WithRemedy(o.Hub.Failed(err, "waiting for clusterset-controller hub to clean up after %s", id),
			facts.HubLog)
	}
	if life.renewed {
		o.Say("the hub: %s stays: another agent renews its Lease, so this cluster is a clone of that member", id)
		return nil
	}
	o.Say("the hub: removed %s, with its credentials, records and Lease", id)
	return nil
}
