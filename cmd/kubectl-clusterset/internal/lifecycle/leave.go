package lifecycle

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// DefaultHubNamespace is where a ClusterSet is if nobody names another namespace.
const DefaultHubNamespace = "clusterset"

// LeaveOptions are the options of Leave.
type LeaveOptions struct {
	Options
	Member  *cluster.Cluster
	Force   bool      // the agent leaves without the hub
	Confirm io.Reader // the user's answer, of a member that is not leaving yet; nil to go on without it
	Out     io.Writer // for the question
}

// leave is the state of one run.
type leave struct {
	*LeaveOptions
	state
	objects []*unstructured.Unstructured // applied by join, and to be deleted
	claims  []string                     // of this cluster on the hub
	left    bool                         // the agent has left
	helm    string                       // the release that installed the agent, if Helm did
	stays   map[string]bool              // kinds and claims that stay and that the user has been told about
}

// Leave removes a cluster from its ClusterSet and deletes what Join applied there. It also undoes an unfinished join.
// ServiceExports stay.
func Leave(ctx context.Context, o *LeaveOptions) error {
	l := &leave{LeaveOptions: o, stays: map[string]bool{}}
	if _, err := checkServer(ctx, o.Member, o.Say); err != nil {
		return err
	}
	var err error
	if l.state, err = read(ctx, o.Member); err != nil {
		return err
	}
	l.chooseNamespace(l.state)
	if err := l.plan(ctx); err != nil {
		return err
	}
	if err := l.claimed(ctx); err != nil {
		return err
	}
	if l.setProperty == nil && len(l.objects)+len(l.claims) == 0 {
		return report.WithRemedy(fmt.Errorf("%s, at %s, is a member of no ClusterSet, and nothing is left to delete",
			o.Member.Name, o.Member.Config.Host), "if you mean another cluster, name it with --context")
	}
	switch evicted, err := l.evicted(ctx); {
	case err != nil:
		return err
	case evicted:
		l.Say("the hub: this cluster was evicted, so it leaves without the hub")
		l.Force = true
	}
	if o.DryRun != nil {
		return l.print()
	}
	if err := o.Member.Allowed(ctx, l.rights()); err != nil {
		return err
	}
	if l.setProperty == nil && len(l.claims) > 0 { // else the hub's controller deletes the claim
		var rights []cluster.Right
		for _, id := range l.claims {
			rights = append(rights, deleteClaim(l.HubNamespace, id))
		}
		if err := o.Hub.Allowed(ctx, rights); err != nil {
			return err
		}
	}
	if p := l.setProperty; p != nil && p.Annotations[clusterset.AnnotationLeaving] == "" {
		fmt.Fprintf(o.Out, "%s leaves ClusterSet %s, where it is the member %s: the other clusters lose its exports, "+
			"and it loses theirs.\n", o.Member.Name, p.Spec.Value, l.memberID())
		if err := cluster.Confirm(o.Confirm, o.Out); err != nil {
			return err
		}
	}
	return l.run(ctx)
}

// memberID returns this cluster's ID as users know it.
func (l *leave) memberID() string {
	if l.id == nil {
		return "(without a cluster ID)"
	}
	return l.id.Spec.Value
}

// run takes the steps. Each can be repeated, and finds nothing to do if an earlier run finished it.
func (l *leave) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{l.stop, l.withdraw, l.release, l.clean} {
		if err := step(ctx); err != nil {
			return report.WithRemedy(err, "to continue, run the same command again")
		}
	}
	l.Say("%s: has left; its ServiceExports are unchanged", l.Member.Name)
	if l.helm != "" {
		l.Say("next: helm uninstall %s -n %s", l.helm, kube.SystemNamespace)
	}
	return nil
}

// rights returns the rights that leaving needs in this cluster. If it is not a member, no agent cleans up, so the user
// needs the rights for that as well.
func (l *leave) rights() []cluster.Right {
	out := append(cluster.RightsTo(l.objects, remove...),
		cluster.Right{Verb: "patch", Group: aboutv1beta1.GroupVersion.Group, Resource: "clusterproperties"},
		cluster.Right{Verb: "patch", Group: appsv1.GroupName, Resource: "deployments", Namespace: kube.SystemNamespace},
		cluster.Right{Verb: "list", Resource: "pods", Namespace: kube.SystemNamespace})
	if l.setProperty == nil {
		out = append(out, cleaning()...)
	}
	return out
}

// claimed fills l.claims, and reports the claims with this UID that stay. With --force, a hub that does not answer is
// ignored.
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
	if l.setProperty != nil { // it has finished its join, so another one may be its clone's
		mine, clones := l.own(begun)
		begun, others = mine, append(others, clones...)
	}
	for _, id := range others {
		if l.stays[id] {
			continue
		}
		l.stays[id] = true
		l.Say("the hub: %s stays: it has this cluster's kube-system UID, and not its cluster ID, so it may be a "+
			"clone's; if nobody needs it: %s", id, l.evict(id))
	}
	l.claims = append(own, begun...)
	return nil
}

// own splits the held claims into those with this cluster's ID, and others. The others have the same UID, and may be a
// clone's: to delete them would be an eviction that nobody has asked for.
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

// stop stops the agent of an unfinished join. Otherwise, it could become a member while the join is undone, and its
// records would stay on the hub. If it became a member before, it leaves as one.
func (l *leave) stop(ctx context.Context) error {
	if l.setProperty != nil {
		return nil
	}
	err := l.stopAgent(ctx)
	if err == nil {
		l.state, err = read(ctx, l.Member)
	}
	if err != nil {
		return err
	}
	if l.setProperty != nil {
		l.Say("%s: has become a member of ClusterSet %s meanwhile", l.Member.Name, l.setProperty.Spec.Value)
	}
	return l.claimed(ctx)
}

// withdraw tells the agent to leave, and waits for it.
func (l *leave) withdraw(ctx context.Context) error {
	if l.setProperty == nil {
		return nil
	}
	if _, err := l.scaleAgent(ctx, 1); err != nil { // one replica is enough to leave
		return err
	}
	if err := l.annotate(ctx); err != nil {
		return err
	}
	l.Say("%s: is leaving ClusterSet %s; its agent withdraws its exports and deletes its imports", l.Member.Name,
		l.setProperty.Spec.Value)
	say := l.Say.Waiting("the agent", l.Timeout)
	err := cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		p, err := kube.Property(ctx, l.Member, clusterset.PropertySet)
		if err != nil || p == nil {
			return err == nil, "", err
		}
		why := whyNoMember(ctx, l.Member)
		say(why)
		return false, why, nil
	})
	if err != nil {
		return report.WithRemedy(
			l.Member.Failed(err, "waiting for the agent to leave"),
			"if its token for the hub has expired, or its rights there were deleted: kubectl clusterset join "+
				"--hub-context=HUB --renew; if this cluster was evicted: kubectl clusterset leave --hub-context=HUB; "+
				"if the hub is permanently lost: kubectl clusterset leave --force; if the agent does not run: kubectl "+
				"clusterset doctor",
		)
	}
	return nil
}

// annotate tells the agent to leave, unless a previous run has.
func (l *leave) annotate(ctx context.Context) error {
	value := "kubectl-clusterset"
	if l.Force {
		value = clusterset.LeavingForced
	}
	if was := l.setProperty.Annotations[clusterset.AnnotationLeaving]; was != "" && (!l.Force || was == value) {
		return nil
	}
	leaving := l.setProperty.DeepCopy()
	metav1.SetMetaDataAnnotation(&leaving.ObjectMeta, clusterset.AnnotationLeaving, value)
	err := cluster.Settled(ctx, func(ctx context.Context) error {
		return l.Member.Patch(ctx, leaving.DeepCopy(), client.MergeFrom(l.setProperty),
			client.FieldOwner(manifest.FieldManager))
	})
	return l.Member.Failed(err, "annotating ClusterProperty %s", l.setProperty.Name)
}

// evicted reports whether the hub lists this cluster as departed. It returns an error if the hub does not know the
// cluster at all, since that hub may be the wrong one.
func (l *leave) evicted(ctx context.Context) (bool, error) {
	if l.Hub == nil || l.Force || l.setProperty == nil || l.id == nil || slices.Contains(l.claims, l.id.Spec.Value) {
		return false, nil
	}
	var sets hubv1alpha1.ClusterSetList
	if err := l.Hub.List(ctx, &sets, client.InNamespace(l.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return false, l.Hub.Failed(err, "listing ClusterSets")
	}
	remedy := "name the hub of ClusterSet " + l.setProperty.Spec.Value + " with --hub-context; if it is permanently " +
		"lost, or has lost its data: --force"
	if len(sets.Items) == 0 {
		return false, l.noSet(ctx, remedy)
	}
	for i := range sets.Items {
		if clusterset.Departed(&sets.Items[i], l.id.Spec.Value) && sets.Items[i].Name == l.setProperty.Spec.Value {
			return true, nil
		}
	}
	return false, report.WithRemedy(fmt.Errorf("namespace %s of %s has no member %s with the kube-system UID of %s",
		l.HubNamespace, l.Hub.Name, l.id.Spec.Value, l.Member.Name), remedy)
}

// release deletes claims on the hub. A claim of an agent that has left is the hub's to delete, so release gives it some
// time first (giveUp).
func (l *leave) release(ctx context.Context) error {
	if l.Hub == nil {
		id := "CLUSTER"
		if l.id != nil {
			id = l.id.Spec.Value
		}
		l.Say("the hub was not contacted: it cleans up after a member that has left; after --force, or an unfinished "+
			"join, if kubectl clusterset status --hub-only --hub-context=HUB lists it: %s", l.evict(id))
		return nil
	}
	patience := 10 * time.Second
	if l.setProperty == nil {
		patience = 0
	}
	for _, id := range l.claims {
		if err := giveUp(ctx, &l.Options, id, patience, l.uid, l.Force); err != nil {
			return err
		}
	}
	return nil
}
