package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/membership"
)

// DefaultHubNamespace is where a ClusterSet is if nobody names another namespace.
const DefaultHubNamespace = "clusterset"

type LeaveOptions struct {
	Options
	Member *cluster.Cluster
	Force  bool // the agent leaves without the hub
}

// leave is the state of one run.
type leave struct {
	*LeaveOptions
	state
	objects []*unstructured.Unstructured // applied by join, and to be deleted
	claims  []string                     // of this cluster on the hub
	helm    string                       // how to uninstall the release of the agent, if Helm or Flux installed it
}

// Leave removes a cluster from its ClusterSet and deletes what Join applied there, except CRDs: others may use them. It
// also undoes an unfinished join. ServiceExports stay.
func Leave(ctx context.Context, o *LeaveOptions) error {
	l := &leave{LeaveOptions: o}
	if _, err := checkServer(ctx, o.Member, o.Say); err != nil {
		return err
	}
	var err error
	if l.state, err = readState(ctx, o.Member); err != nil {
		return err
	}
	l.chooseNamespace(l.state)
	if err := all(ctx, l.plan, l.claimed); err != nil {
		return err
	}
	if l.setProperty == nil && len(l.objects)+len(l.claims) == 0 {
		return report.Fail("if you mean another cluster, name it with --context", "%s, at %s, is a member of no "+
			"ClusterSet, and nothing is left to delete", o.Member.Name, o.Member.Config.Host)
	}
	if err := l.evicted(ctx); err != nil {
		return err
	}
	if o.DryRun != nil {
		return l.print()
	}
	if err := l.allowed(ctx); err != nil {
		return err
	}
	if p := l.setProperty; p != nil && !l.leaving() {
		fmt.Fprintf(o.Out, "%s leaves ClusterSet %s, where it is the member %s: the other clusters lose its exports, "+
			"and it loses theirs.\n", o.Member.Name, p.Spec.Value, l.memberID())
		if err := cluster.Confirm(ctx, o.Confirm, o.Out); err != nil {
			return err
		}
	}
	return l.run(ctx)
}

// memberID returns this cluster's ID, or a placeholder.
func (s *state) memberID() string {
	if s.id == nil {
		return "CLUSTER"
	}
	return s.id.Spec.Value
}

// run takes the steps. Each can be repeated, and finds nothing to do if an earlier run finished it.
func (l *leave) run(ctx context.Context) error {
	if err := all(ctx, l.stop, l.withdraw, l.release, l.clean); err != nil {
		return report.WithRemedy(err, "to continue, run the same command again")
	}
	l.Say("%s: has left; its ServiceExports and CRDs are unchanged", l.Member.Name)
	if l.helm != "" {
		l.Say("next: %s", l.helm)
	}
	return nil
}

// plan fills objects with what join applied and still exists, in that order, and the right to DNSEndpoints, except what
// Helm installed.
func (l *leave) plan(ctx context.Context) error {
	l.objects = nil
	objects, err := manifest.Render(manifest.Member, manifest.Values{Namespace: l.HubNamespace})
	if err != nil {
		return err
	}
	endpoints, err := manifest.Render(manifest.DNSEndpoint, manifest.Values{})
	if err != nil {
		return err
	}
	objects = append(append(endpoints, objects...), secret(),
		object(hubv1alpha1.GroupVersion.WithKind("Membership"), "", hubv1alpha1.MembershipName),
		property(clusterset.PropertyID))
	hub, err := l.isHub(ctx)
	if err != nil {
		return err
	}
	for _, o := range without(objects, "CustomResourceDefinition") {
		existing := o.DeepCopy()
		err := l.Member.Get(ctx, client.ObjectKeyFromObject(o), existing)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return l.Member.Failed(err, "reading %s", cluster.Title(o))
		}
		switch {
		case existing.GetAnnotations()["meta.helm.sh/release-namespace"] == kube.SystemNamespace:
			_, l.helm = facts.Release(existing)
		case o.GetKind() == "Namespace" && hub: // its controller lives there
		case o.GetKind() == "ClusterProperty" &&
			!manifest.Managed(existing, manifest.FieldManager, "clusterset-controller"): // the user's
		default:
			l.objects = append(l.objects, o)
		}
	}
	if l.helm != "" { // Helm keeps its record of the release in the namespace
		l.objects = without(l.objects, "Namespace")
	}
	return nil
}

// isHub reports whether the controller of a ClusterSet is installed in this cluster.
func (l *leave) isHub(ctx context.Context) (bool, error) {
	var all appsv1.DeploymentList
	err := l.Member.List(ctx, &all, client.InNamespace(kube.SystemNamespace),
		client.MatchingLabels{"app.kubernetes.io/name": "clusterset-hub"})
	return len(all.Items) > 0, l.Member.Failed(err, "listing Deployments in %s", kube.SystemNamespace)
}

// claimed fills l.claims with the claim of this cluster's ID and, unless it is a member, those of its unfinished joins.
// Others with its kube-system UID may be a clone's: to delete them would be an eviction that nobody has asked for.
// With Force, a hub that does not answer is ignored.
func (l *leave) claimed(ctx context.Context) error {
	l.claims = nil
	all, err := l.claimsOf(ctx, l.uid)
	switch {
	case err == nil:
	case l.Force && ctx.Err() == nil:
		l.Say("%v; the hub is not cleaned up", err)
		l.Hub = nil
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return report.WithRemedy(err, "leave out --hub-context: the agent reports to the hub; or name the hub with "+
			"its admin's credentials")
	default:
		return report.WithRemedy(err, "if the hub is permanently lost: --force, without --hub-context")
	}
	for i := range all {
		own := l.id != nil && l.id.Spec.Value == all[i].Name
		begun := all[i].Annotations[clusterset.AnnotationClusterUID] == ""
		if own || begun && l.setProperty == nil {
			l.claims = append(l.claims, all[i].Name)
		}
	}
	return nil
}

// evicted sets Force if this cluster has departed from the hub's ClusterSet. It returns an error if the hub does not
// know the cluster at all, since that hub may be the wrong one.
func (l *leave) evicted(ctx context.Context) error {
	if l.Hub == nil || l.Force || l.setProperty == nil || l.id == nil || slices.Contains(l.claims, l.id.Spec.Value) {
		return nil
	}
	var sets hubv1alpha1.ClusterSetList
	if err := l.Hub.List(ctx, &sets, client.InNamespace(l.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return l.Hub.Failed(err, "listing ClusterSets")
	}
	remedy := "name the hub of ClusterSet " + l.setProperty.Spec.Value + " with --hub-context; if it is permanently " +
		"lost, or has lost its data, or has evicted this cluster: --force"
	if len(sets.Items) == 0 {
		return l.noSet(ctx, remedy)
	}
	kept, err := leases(ctx, l.Member)
	if err != nil {
		return err
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		if set.Name == l.setProperty.Spec.Value && facts.Departed(set, l.id.Spec.Value, kept) {
			l.Say("the hub: this cluster was evicted, so it leaves without the hub")
			l.Force = true
			return nil
		}
	}
	return report.Fail(remedy, "namespace %s of %s has no member %s with the kube-system UID of %s", l.HubNamespace,
		l.Hub.Name, l.id.Spec.Value, l.Member.Name)
}

// allowed checks the rights to what leave writes. It does not check those to delete what a lost agent has created.
func (l *leave) allowed(ctx context.Context) error {
	w := cluster.Writes{Delete: l.objects}
	agent, err := l.Member.Deployment(ctx, manifest.AgentDeployment)
	if err != nil {
		return err
	}
	if agent != nil && (l.setProperty == nil || l.helm != "") { // it is stopped
		w.Rights = []cluster.Right{cluster.RightTo("patch", agent),
			{Verb: "list", Resource: "pods", Namespace: kube.SystemNamespace}}
	}
	if l.setProperty != nil && !l.leaving() {
		w.Rights = append(w.Rights, cluster.RightTo("patch", l.setProperty))
	}
	// The hub's controller deletes a member's claim.
	if err := l.Member.Allowed(ctx, "", w); err != nil || l.setProperty != nil || len(l.claims) == 0 {
		return err
	}
	var claims cluster.Writes
	kind := inventoryv1alpha1.GroupVersion.WithKind("ClusterProfile")
	for _, id := range l.claims {
		claims.Delete = append(claims.Delete, object(kind, l.HubNamespace, id))
	}
	return l.Hub.Allowed(ctx, l.HubNamespace, claims)
}

// stop stops the agent of an unfinished join. Otherwise, it could become a member while the join is undone, and its
// records would stay on the hub. If it became a member before, it leaves as one.
func (l *leave) stop(ctx context.Context) error {
	if l.setProperty != nil {
		return nil
	}
	err := l.stopAgent(ctx)
	if err == nil {
		l.state, err = readState(ctx, l.Member)
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
	agent, err := l.scaleAgent(ctx, 1) // one replica is enough to leave
	if err != nil {
		return err
	}
	if err := l.annotate(ctx); err != nil {
		return err
	}
	l.Say("%s: is leaving ClusterSet %s; its agent withdraws its exports and deletes its imports", l.Member.Name,
		l.setProperty.Spec.Value)
	err = l.Say.Until(ctx, l.Timeout, "the agent", func(ctx context.Context) (bool, string, error) {
		p, err := kube.Property(ctx, l.Member, clusterset.PropertySet)
		if err != nil || p == nil {
			return err == nil, "", err
		}
		if agent == nil { // its Membership shows what was
			return false, whyDown(ctx, l.Member, manifest.AgentDeployment), nil
		}
		return false, cmp.Or(whyStopped(ctx, l.Member), whyNoMember(ctx, l.Member)), nil
	})
	if err != nil {
		return report.WithRemedy(l.Member.Failed(err, "waiting for the agent to leave"), report.DocsLeaving)
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

// release waits until the hub's controller has cleaned up after a member that has left, and deletes claims of
// unfinished joins.
func (l *leave) release(ctx context.Context) error {
	if l.Hub == nil {
		l.Say("the hub was not contacted; if this still lists this cluster: %s\nthen: %s",
			l.Flags.Here("kubectl clusterset status --hub-only --hub-context=HUB"), l.evict(l.memberID()))
		return nil
	}
	for _, id := range l.claims {
		stays, err := l.inUse(ctx, id)
		switch {
		case err != nil:
			return err
		case stays != "":
			l.Say("the hub: %s stays: %s; if this cluster is no clone: %s", id, stays, l.evict(id))
			continue
		}
		if err := l.giveUp(ctx, id, l.uid); err != nil {
			return err
		}
	}
	return nil
}

// clean deletes what join applied, and waits for the namespace, so that the cluster can join again.
func (l *leave) clean(ctx context.Context) error {
	if err := l.plan(ctx); err != nil {
		return err
	}
	l.Say("%s: deleting what join applied", l.Member.Name)
	last := []string{"Membership", "ClusterProperty"} // no agent writes them again, and no policy keeps them
	err := l.Member.Remove(ctx, without(l.objects, append(last, "Namespace")...))
	if err == nil && l.setProperty == nil { // no agent has left
		err = l.cleanForAgent(ctx)
	}
	if err == nil && l.helm != "" { // the agent stays, and would write its Membership again
		err = l.stopAgent(ctx)
	}
	if ns := only(l.objects, "Namespace"); err == nil && len(ns) > 0 {
		if err = l.Member.Remove(ctx, ns); err == nil {
			err = l.Member.NamespaceGone(ctx, kube.SystemNamespace, l.Timeout)
		}
	}
	if err == nil {
		err = l.Member.Remove(ctx, only(l.objects, last...))
	}
	return err
}

// cleanForAgent deletes what a lost agent has created, once the policies that reserve it to the agent are gone.
func (l *leave) cleanForAgent(ctx context.Context) error {
	agent := &membership.Gate{Local: sparse{l.Member.Client}}
	const what = "deleting what the agent has created"
	if l.helm != "" { // the policies stay as well
		if err := agent.Clean(ctx); err != nil {
			return report.WithRemedy(l.Member.Failed(err, what), l.helm)
		}
		return nil
	}
	err := cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		err := agent.Clean(ctx)
		return err == nil, "", err
	})
	return l.Member.Failed(err, what)
}

// sparse is a cluster that may lack kinds, for example after an interrupted join.
type sparse struct{ client.Client }

func (s sparse) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := s.Client.List(ctx, list, opts...)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

const onHub = "# On %s, this would be deleted, and clusterset-controller hub would delete everything else of the " +
	"member:\nClusterProfile %s/%s\n"

// print is --dry-run.
func (l *leave) print() error {
	var out strings.Builder
	when := " when its agent has withdrawn its exports"
	if l.setProperty == nil {
		when = ", with all that its agent has created"
	}
	fmt.Fprintf(&out, "# On %s, this would be deleted%s:\n", l.Member.Name, when)
	for _, o := range slices.Backward(l.objects) {
		fmt.Fprintln(&out, cluster.Title(o))
	}
	if l.helm != "" {
		fmt.Fprintf(&out, "# Helm's release stays, with its agent scaled to 0: %s\n", l.helm)
	}
	for _, id := range l.claims {
		fmt.Fprintf(&out, onHub, l.Hub.Name, l.HubNamespace, id)
	}
	_, err := fmt.Fprint(l.DryRun, out.String())
	return err
}

// Evict removes a member from the hub's side.
func Evict(ctx context.Context, o *Options, id string) error {
	if _, err := checkServer(ctx, o.Hub, o.Say); err != nil {
		return err
	}
	var all inventoryv1alpha1.ClusterProfileList
	if err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return o.Hub.Failed(err, "listing ClusterProfiles")
	}
	if role := cluster.RoleOf(ctx, o.Hub); len(all.Items) == 0 && !slices.Contains(role.HubOf, o.HubNamespace) {
		return o.noSet(ctx, "name the hub with --hub-context")
	}
	if err := evictable(all.Items, id); err != nil {
		return fmt.Errorf("%s, ClusterSet %s: %w", o.Hub.Name, o.HubNamespace, err)
	}
	if o.DryRun != nil {
		_, err := fmt.Fprintf(o.DryRun, onHub, o.Hub.Name, o.HubNamespace, id)
		return err
	}
	fmt.Fprintf(o.Out, "ClusterSet %s evicts its member %s: it loses its credentials at once, and the other clusters "+
		"lose its exports.\n", o.HubNamespace, id)
	if err := cluster.Confirm(ctx, o.Confirm, o.Out); err != nil {
		return err
	}
	if err := o.giveUp(ctx, id, ""); err != nil {
		return err
	}
	o.Say("if that cluster still exists, its imports stay until, %s",
		o.Flags.OfHub().Step(report.Here(facts.Leave).In(id)))
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
	return fmt.Errorf("there is no member %s; members are: %s", id, cmp.Or(strings.Join(ids, ", "), "none"))
}

// inUse returns why a claim of this cluster must stay, or "". Its agent does not run, so whoever renews its Lease is a
// clone, or the cluster that this one is a clone of. With Force, nobody waits to see that.
func (l *leave) inUse(ctx context.Context, id string) (why string, err error) {
	name := types.NamespacedName{Namespace: l.HubNamespace, Name: id}
	p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, l.Hub, name)
	switch {
	case err != nil:
		return "", l.Hub.Failed(err, "reading ClusterProfile %s", id)
	case p == nil || p.DeletionTimestamp != nil || p.Annotations[clusterset.AnnotationClusterUID] == "" ||
		p.Annotations[clusterset.AnnotationLeft] != "":
		return "", nil
	case l.Force:
		return "it is in use", nil
	}
	began, version := time.Now(), ""
	err = cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		lease, err := kube.Get[*coordinationv1.Lease](ctx, l.Hub, name)
		if err != nil || lease == nil {
			return err == nil, "", err
		}
		version = cmp.Or(version, lease.ResourceVersion)
		if version != lease.ResourceVersion {
			why = "another agent renews its Lease"
		}
		lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
		return why != "" || time.Since(began) > lasts, "its Lease has not expired yet", nil
	})
	return why, l.Hub.Failed(err, "waiting for the end of Lease %s", id)
}

// giveUp deletes a claim, unless its member has left, and waits until the hub's controller has cleaned up after it.
// With a uid, it leaves another cluster's claim alone.
func (o *Options) giveUp(ctx context.Context, id, uid string) error {
	name := types.NamespacedName{Namespace: o.HubNamespace, Name: id}
	var gone types.UID // of the claim that is deleted
	var refused error
	err := o.Say.Until(ctx, o.Timeout, "clusterset-controller hub", func(ctx context.Context) (bool, string, error) {
		p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, o.Hub, name)
		switch {
		case err != nil && !meta.IsNoMatchError(err):
			return false, "", err
		case p == nil || uid != "" && holderOf(p) != uid || gone != "" && p.UID != gone:
			return true, "", nil
		case p.DeletionTimestamp == nil && p.Annotations[clusterset.AnnotationLeft] == "" && gone == "":
			if err := kube.DeleteUnchanged(ctx, o.Hub.Client, p); apierrors.IsForbidden(err) {
				refused = err
				return true, "", nil
			} else if err != nil {
				return false, "", err
			}
			o.Say("the hub: deleting ClusterProfile %s", id)
		}
		gone = p.UID
		why := "ClusterProfile " + id + " still exists"
		if down := whyDown(ctx, o.Hub, manifest.HubDeployment(o.HubNamespace)); down != "" {
			why += "; clusterset-controller hub: " + down
		}
		return false, why, nil
	})
	switch {
	case refused != nil:
		return o.Hub.Failed(refused, "deleting ClusterProfile %s", id)
	case err != nil:
		err = o.Hub.Failed(err, "waiting for clusterset-controller hub to clean up after %s", id)
		if apierrors.IsForbidden(err) { // it is not the Deployment's fault
			return err
		}
		return report.WithRemedy(err, o.Flags.AtHub(facts.Doctor))
	}
	o.Say("the hub: removed %s, with its credentials, records and Lease", id)
	return nil
}
