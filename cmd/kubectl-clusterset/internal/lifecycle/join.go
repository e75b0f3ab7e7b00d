package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/clock"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// JoinOptions are of one member.
type JoinOptions struct {
	Options
	Member        *cluster.Cluster
	ClusterID     string        // "": the ClusterProperty, or the UID of kube-system
	HubServer     string        // the hub's address as the member's pods reach it; "": as it is, as it is reached from here at first
	TokenLifetime time.Duration // 0: as it is, a day at first
	Renew         bool
}

// maxSkew between two API servers' clocks is what still lets the age of exports decide conflicts in everybody's sense.
const maxSkew = time.Minute

// join is one run. What it has found out goes from step to step.
type join struct {
	*JoinOptions
	state
	set      string         // the clusterset's name
	departed bool           // by the clusterset's word: the hub has let this cluster go
	kept     *corev1.Secret // the credentials that the member has
	hubSide  []*unstructured.Unstructured
	here     []*unstructured.Unstructured
	mine     bool                  // the claim was there before this run
	lease    *coordinationv1.Lease // its Lease on the hub before this run; nil for none
	now      time.Time             // of the member's API server's clock
	hubNow   time.Time
}

// state is what a cluster says of itself.
type state struct {
	uid     string // of kube-system
	id, was *aboutv1beta1.ClusterProperty
}

// Join makes a cluster a member. The first write is the claim on the hub; until that is held, the cluster is not touched.
func Join(ctx context.Context, o *JoinOptions) error {
	j := &join{JoinOptions: o}
	if err := j.preflight(ctx); err != nil {
		return err
	}
	if o.DryRun != nil {
		return j.print()
	}
	steps := []func(context.Context) error{j.claim, j.grant, j.install, j.name, j.credentials}
	if o.Renew {
		steps = []func(context.Context) error{j.grant, j.credentials}
	}
	if err := j.run(ctx, steps...); err != nil {
		return err
	}
	if j.leaving() {
		o.Say("%s: its agent goes on leaving clusterset %s with them; to wait for it and to clean up: kubectl clusterset leave", o.Member.Name, j.set)
		return nil
	}
	if !o.Wait {
		o.Say("%s: %s is prepared; it is a member once its agent has said so: kubectl clusterset status", o.Member.Name, o.ClusterID)
		return nil
	}
	return j.await(ctx)
}

// run takes the steps.
func (j *join) run(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%w\nto go on: the same command again%s", err, j.undo())
		}
	}
	return nil
}

// undo is the way back. A cluster that was a member before is given none: leave would take its imports and VIPs.
func (j *join) undo() string {
	if j.was != nil {
		return ""
	}
	return "; to undo: kubectl clusterset leave"
}

// preflight reads, and refuses what would not work.
func (j *join) preflight(ctx context.Context) (err error) {
	if err := checkNamespace(j.HubNamespace); err != nil {
		return err
	}
	if j.Hub.Config.Insecure {
		return errors.New("the kubeconfig of the hub has insecure-skip-tls-verify, so the member could not tell the hub from somebody on the way: use one with the hub's certificate authority")
	}
	if err := j.askBoth(ctx); err != nil {
		return err
	}
	if j.state, err = read(ctx, j.Member); err != nil {
		return err
	}
	if err := j.chooseID(); err != nil {
		return err
	}
	if err := j.hubReady(ctx); err != nil {
		return err
	}
	if err := j.membership(); err != nil {
		return err
	}
	if err := j.render(ctx); err != nil {
		return err
	}
	if j.DryRun == nil {
		if err := j.checkRights(ctx); err != nil {
			return err
		}
	}
	if err := j.read(ctx); err != nil {
		return err
	}
	if j.mine, err = j.claimable(ctx); err != nil {
		return err
	}
	return j.sameHub(ctx)
}

// sameHub refuses to take a member that is alive on one hub to another: hubs of one clusterset's name are told apart by nothing else.
func (j *join) sameHub(ctx context.Context) error {
	if j.was == nil || j.departed {
		return nil
	}
	var kept coordinationv1.LeaseList
	if err := j.Member.List(ctx, &kept, client.InNamespace(kube.SystemNamespace)); err != nil {
		return fmt.Errorf("%s: %w", j.Member.Name, err)
	}
	way := j.keptWay()
	if way == nil || !clock.Elsewhere(kept.Items, j.now, j.lease, j.hubNow) {
		return nil
	}
	return fmt.Errorf("%s is a member, and its agent renews its Lease on another hub than %s, the one at %s: name that one; if this is to take its place, end the agent, and give this command again when the Lease has run out: kubectl -n %s scale deployment clusterset-controller --replicas=0",
		j.Member.Name, j.Hub.Name, way.Server, kube.SystemNamespace)
}

func (j *join) askBoth(ctx context.Context) error {
	hub, err := ask(ctx, j.Hub, j.Say)
	if err != nil {
		return err
	}
	before := time.Now()
	member, err := ask(ctx, j.Member, j.Say)
	if err != nil {
		return err
	}
	j.now, j.hubNow = member.Now, hub.Now
	if skew := (member.Now.Sub(hub.Now) - time.Since(before)).Abs(); skew > maxSkew {
		return fmt.Errorf("the clocks of %s and %s are %v apart: set them (NTP) first; the age of exports decides conflicts, and tokens have dates", j.Member.Name, j.Hub.Name, skew.Round(time.Second))
	}
	return nil
}

// read asks a cluster for what it says of itself. Where the kind is not there, nothing was said.
func read(ctx context.Context, c *cluster.Cluster) (s state, err error) {
	system := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, system); err != nil {
		return s, fmt.Errorf("%s: its identity is the UID of namespace kube-system: %w", c.Name, err)
	}
	s.uid = string(system.UID)
	for name, into := range map[string]**aboutv1beta1.ClusterProperty{clusterset.PropertyID: &s.id, clusterset.PropertySet: &s.was} {
		p, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, c, types.NamespacedName{Name: name})
		if err != nil && !meta.IsNoMatchError(err) {
			return s, fmt.Errorf("%s: %w", c.Name, err)
		}
		*into = p
	}
	return s, nil
}

func (j *join) chooseID() error {
	switch {
	case j.id != nil && j.ClusterID == "":
		j.ClusterID = j.id.Spec.Value
	case j.ClusterID == "":
		j.ClusterID = j.uid
	case j.id != nil && j.id.Spec.Value != j.ClusterID && j.was != nil:
		return fmt.Errorf("%s is a member as %q, and keeps that id until it has left: kubectl clusterset leave, then join with --cluster-id %s", j.Member.Name, j.id.Spec.Value, j.ClusterID)
	case j.id != nil && j.id.Spec.Value != j.ClusterID:
		return fmt.Errorf("ClusterProperty %s of %s says %q: join without --cluster-id, or delete it first (kubectl delete clusterproperty %s)", clusterset.PropertyID, j.Member.Name, j.id.Spec.Value, clusterset.PropertyID)
	}
	if err := clusterset.CheckID(j.ClusterID); err != nil {
		return fmt.Errorf("%w; choose one with --cluster-id", err)
	}
	return nil
}

// hubReady tells the clusterset's name, or that there is none.
func (j *join) hubReady(ctx context.Context) error {
	var sets hubv1alpha1.ClusterSetList
	err := j.Hub.List(ctx, &sets, client.InNamespace(j.HubNamespace))
	if err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("%s: %w", j.Hub.Name, err)
	}
	if len(sets.Items) != 1 {
		return fmt.Errorf("namespace %s of %s holds %d ClusterSets, and one is needed: kubectl clusterset init --hub-context=HUB, or give another --hub-namespace", j.HubNamespace, j.Hub.Name, len(sets.Items))
	}
	j.set, j.departed = sets.Items[0].Name, clusterset.Departed(&sets.Items[0], j.ClusterID)
	return nil
}

// leaving tells whether the member has been told to leave.
func (j *join) leaving() bool {
	return j.was != nil && j.was.Annotations[clusterset.AnnotationLeaving] != ""
}

// membership checks against the one that the cluster may have already. One that is leaving takes the hub, and so a token that lives.
func (j *join) membership() error {
	switch {
	case j.was == nil && j.Renew:
		return fmt.Errorf("%s is a member of no clusterset, so there is nothing to renew: kubectl clusterset join, without --renew", j.Member.Name)
	case j.was == nil:
		return nil
	case j.was.Spec.Value != j.set:
		return fmt.Errorf("%s is a member of clusterset %s, and of one at a time only: kubectl clusterset leave, then join %s", j.Member.Name, j.was.Spec.Value, j.set)
	case j.was.Annotations[clusterset.AnnotationLeaving] == clusterset.LeavingForced:
		return fmt.Errorf("%s is leaving clusterset %s without its hub, which takes no credentials: let that end first (kubectl clusterset leave --force)", j.Member.Name, j.set)
	case j.leaving() && !j.Renew:
		return fmt.Errorf("%s is leaving clusterset %s: let that end first (kubectl clusterset leave); if its token for the hub ran out: kubectl clusterset join --renew, with which it goes on leaving", j.Member.Name, j.set)
	}
	return nil
}

func (j *join) checkRights(ctx context.Context) error {
	hub := append(cluster.RightsToApply(j.hubSide, write...),
		cluster.Right{Verb: "create", Resource: "serviceaccounts/token", Namespace: j.HubNamespace, Name: clusterset.AccountPrefix + j.ClusterID})
	member := append(cluster.RightsToApply(j.here, write...),
		cluster.Right{Verb: "create", Group: aboutv1beta1.GroupVersion.Group, Resource: "clusterproperties"},
		cluster.Right{Verb: "get", Resource: "secrets", Namespace: kube.SystemNamespace},
		cluster.Right{Verb: "create", Resource: "secrets", Namespace: kube.SystemNamespace},
		cluster.Right{Verb: "patch", Resource: "secrets", Namespace: kube.SystemNamespace})
	return errors.Join(allowed(ctx, j.Hub, hub), allowed(ctx, j.Member, member))
}

// claimable tells whether the claim is there already for this cluster, or why it cannot be had.
func (j *join) claimable(ctx context.Context) (mine bool, err error) {
	name := types.NamespacedName{Namespace: j.HubNamespace, Name: j.ClusterID}
	p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, j.Hub, name)
	if err != nil {
		return false, fmt.Errorf("%s: %w", j.Hub.Name, err)
	}
	if j.lease, err = kube.Get[*coordinationv1.Lease](ctx, j.Hub, name); err != nil {
		return false, fmt.Errorf("%s: %w", j.Hub.Name, err)
	}
	_, begun, err := claims(ctx, &j.Options, j.uid) // one that is held may be that of the cluster of which this one is a clone
	if err != nil {
		return false, err
	}
	for _, id := range begun {
		if id != j.ClusterID && j.was == nil { // a member's may be that of its clone
			return false, fmt.Errorf("%s has begun to join as %s: join with --cluster-id %s, or give that up first (kubectl clusterset leave)", j.Member.Name, id, id)
		}
	}
	if p == nil {
		return false, j.unknown()
	}
	return true, taken(p, j.uid, j.Hub.Name)
}

// unknown is why there is nothing to renew of a member that the hub does not know; nil where there need not be.
func (j *join) unknown() error {
	switch {
	case j.Renew && j.leaving():
		return fmt.Errorf("%s has no ClusterProfile %s: this cluster was evicted, or the hub was restored to before it joined; kubectl clusterset leave goes on with leaving", j.Hub.Name, j.ClusterID)
	case j.Renew:
		return fmt.Errorf("%s has no ClusterProfile %s: this cluster was evicted, or the hub was restored to before it joined, or this is another hub; if it is the right one: kubectl clusterset join, without --renew, takes it in again with its id and VIPs; leave if it is to stay out", j.Hub.Name, j.ClusterID)
	}
	return nil
}

// taken is why a claim that is there is not for the cluster uid; nil if it is.
func taken(p *inventoryv1alpha1.ClusterProfile, uid, hub string) error {
	holder, joining := p.Annotations[clusterset.AnnotationClusterUID], p.Annotations[clusterset.AnnotationJoiningUID]
	switch {
	case p.DeletionTimestamp != nil || p.Annotations[clusterset.AnnotationLeft] != "":
		return fmt.Errorf("the id %s is still being given up on %s: it is free once its records there are gone; wait, or see that clusterset-controller hub runs, and try again", p.Name, hub)
	case holder != "" && holder != uid:
		return fmt.Errorf("the id %s is taken on %s, by the cluster whose kube-system has the UID %s: choose another with --cluster-id, or let that cluster leave first", p.Name, hub, holder)
	case holder == "" && joining != "" && joining != uid:
		return fmt.Errorf("the id %s is taken on %s, for the cluster whose kube-system has the UID %s, which is joining: choose another with --cluster-id, or: kubectl clusterset leave %s --evict", p.Name, hub, joining, p.Name)
	case holder == "" && joining == "":
		return fmt.Errorf("the id %s is taken on %s, by a ClusterProfile that says for no cluster: choose another with --cluster-id; or, if it was made for this one: kubectl -n %s annotate clusterprofile %s %s=%s",
			p.Name, hub, p.Namespace, p.Name, clusterset.AnnotationJoiningUID, uid)
	}
	return nil
}

// claim creates the ClusterProfile. Of two that try at once, one gets it.
func (j *join) claim(ctx context.Context) error {
	mine, err := j.claimable(ctx)
	if err != nil {
		return err
	}
	if mine {
		j.Say("the hub: the id %s is this cluster's already", j.ClusterID)
		return nil
	}
	err = j.Hub.Create(ctx, only(j.hubSide, "ClusterProfile").DeepCopy(), client.FieldOwner(manifest.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		_, err = j.claimable(ctx)
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: claiming the id %s: %w", j.Hub.Name, j.ClusterID, err)
	}
	j.Say("the hub: claimed the id %s", j.ClusterID)
	return nil
}

// grant makes the member's account there.
func (j *join) grant(ctx context.Context) error {
	j.Say("the hub: applying ServiceAccount %s%s and its rights", clusterset.AccountPrefix, j.ClusterID)
	return j.Hub.Apply(ctx, without(j.hubSide, "ClusterProfile"), j.Say)
}

func (j *join) install(ctx context.Context) error {
	if err := j.namespaceFree(ctx); err != nil {
		return err
	}
	j.Say("%s: applying kinds, policies and the agent", j.Member.Name)
	return j.Member.Apply(ctx, j.here, j.Say)
}

// namespaceFree waits for the end of an earlier membership.
func (j *join) namespaceFree(ctx context.Context) error {
	err := cluster.Until(ctx, j.Timeout, func(ctx context.Context) (bool, string, error) {
		ns, err := kube.Get[*corev1.Namespace](ctx, j.Member, types.NamespacedName{Name: kube.SystemNamespace})
		return err == nil && (ns == nil || ns.DeletionTimestamp == nil), "it is being deleted", err
	})
	if err != nil {
		return fmt.Errorf("%s: namespace %s: %w; kubectl get namespace %s -o yaml tells what is left in it", j.Member.Name, kube.SystemNamespace, err, kube.SystemNamespace)
	}
	return nil
}

// name says the id. What was there already is the user's, and stays when the cluster leaves.
func (j *join) name(ctx context.Context) error {
	if j.id != nil {
		return nil
	}
	p := &aboutv1beta1.ClusterProperty{}
	p.Name, p.Spec.Value = clusterset.PropertyID, j.ClusterID
	err := cluster.Settled(ctx, func(ctx context.Context) error {
		return j.Member.Create(ctx, p.DeepCopy(), client.FieldOwner(manifest.FieldManager))
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%s: ClusterProperty %s: %w", j.Member.Name, p.Name, err)
	}
	j.Say("%s: its id is %s", j.Member.Name, j.ClusterID)
	return nil
}
