package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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

type JoinOptions struct {
	Options
	Member    *cluster.Cluster
	ClusterID string // "" for the ClusterProperty, or that of an installed agent, or the UID of kube-system
	// URL at which the member's pods reach the hub; "" to keep it, or for that of the kubeconfig
	HubServer     string
	TokenLifetime time.Duration // 0 to keep it, or for a day
	Renew         bool
}

// maxSkew is how far two API servers' clocks may differ: the age of exports decides conflicts.
const maxSkew = time.Minute

// join is the state of one run.
type join struct {
	*JoinOptions
	state
	set     string // the ClusterSet's name
	hubSet  *hubv1alpha1.ClusterSet
	current *corev1.Secret               // the member's credentials before this run
	server  string                       // the hub's URL in the new credentials, "" if there are none
	file    string                       // the agent's own --hub-kubeconfig; "" if it uses the Secret's
	hubSide []*unstructured.Unstructured // what is applied on the hub
	here    []*unstructured.Unstructured // and in the member
	claimed bool                         // the claim existed before this run
	lease   *coordinationv1.Lease        // its Lease on the hub before this run, or nil
	now     time.Time                    // of the member's API server's clock
	hubNow  time.Time
}

// state is a cluster's identity and membership.
type state struct {
	uid             string // of kube-system
	id, setProperty *aboutv1beta1.ClusterProperty
	agentID         string // --cluster-id of its agent, or ""
	hubNamespace    string // of its ClusterSet, or of the one that its agent joins or has left; "" if nothing shows it
	usedHub         string // the hub's URL, as its agent last used it; "" if nothing shows it
}

// Join makes a cluster a member. It claims the cluster ID on the hub before it writes to the cluster. With Renew, it
// replaces only the account's rights and the Secret, and the claim of a member that the hub has evicted.
func Join(ctx context.Context, o *JoinOptions) error {
	j := &join{JoinOptions: o}
	if err := j.preflight(ctx); err != nil {
		return err
	}
	if o.DryRun != nil {
		return j.printAll()
	}
	ran, err := available(ctx, o.Member, manifest.AgentDeployment)
	if err != nil {
		return err
	}
	if err := j.write(ctx); err != nil {
		return err
	}
	switch {
	case j.leaving(): // with --renew: membership refuses any other join of a member that leaves
		o.Say("%s: its agent continues to leave ClusterSet %s; to wait for it: %s", o.Member.Name, j.set,
			o.Flags.Here("kubectl clusterset leave"))
		return nil
	case !o.Wait && o.Renew:
		o.Say("%s: replaced the credentials of %s", o.Member.Name, o.ClusterID)
		return nil
	case !o.Wait:
		o.Say("%s: installed the agent of %s; to see when it is a member: %s", o.Member.Name, o.ClusterID,
			o.Flags.Here("kubectl clusterset status"))
		return nil
	case !o.Renew:
		if err := o.awaitRollout(ctx, o.Member, manifest.AgentDeployment, ran); err != nil {
			return err
		}
	}
	return j.await(ctx)
}

// errVoid marks a join that must not be repeated: another one has given the cluster another ID.
var errVoid = errors.New("this join is void")

// write runs the steps of the join. Each can be repeated.
func (j *join) write(ctx context.Context) error {
	steps := []func(context.Context) error{j.createClaim, j.applyAccount, j.applyPrerequisites, j.createID,
		j.applyDeployment, j.writeCredentials}
	if j.Renew {
		steps = []func(context.Context) error{j.createClaim, j.applyAccount, j.writeCredentials}
	}
	err := all(ctx, steps...)
	if err == nil || errors.Is(err, errVoid) {
		return err
	}
	return report.WithRemedy(err, "to continue, run the same command again")
}

// preflight reads both clusters and checks all preconditions. The order counts: a step uses what those before it set.
func (j *join) preflight(ctx context.Context) (err error) {
	if t := j.TokenLifetime; t != 0 && (t < shortest || t > longest) {
		return errors.New("--token-lifetime must be between 10m and 24h")
	}
	if j.Hub.Config.Insecure {
		return report.Fail("use one with the hub's certificate authority",
			"the kubeconfig of the hub has insecure-skip-tls-verify, so the member could not authenticate the hub")
	}
	if err := j.checkServers(ctx); err != nil {
		return err
	}
	if j.state, err = readState(ctx, j.Member); err != nil {
		return err
	}
	j.chooseNamespace(j.state)
	if err := checkNamespace(j.HubNamespace); err != nil {
		return err
	}
	return all(ctx, j.readClusterSet, j.chooseID, j.checkMembership, j.render, j.checkClaim, j.checkRights,
		j.readSecret, j.checkSameHub, j.checkSameAddress)
}

// checkSameHub refuses to move a live member to another hub. Two hubs may have ClusterSets of the same name, but only
// one has the renewals of the member's agent. A hub that has lost its data is still at the URL that the agent uses.
func (j *join) checkSameHub(ctx context.Context) error {
	address := j.currentAddress()
	if j.setProperty == nil || address == nil || j.usedHub == j.Hub.Config.Host {
		return nil
	}
	local, err := leases(ctx, j.Member)
	if err != nil {
		return err
	}
	if facts.Departed(j.hubSet, j.ClusterID, local) || !facts.RenewsElsewhere(local, j.now, j.lease, j.hubNow) {
		return nil
	}
	return report.Fail("name that hub; to move all members to this one: "+report.DocsMoving, "%s is a member, and its "+
		"agent renews its Lease on another hub, at %s", j.Member.Name, address.Server)
}

func (j *join) checkServers(ctx context.Context) error {
	hub, err := checkServer(ctx, j.Hub, j.Say)
	if err != nil {
		return err
	}
	before := time.Now()
	member, err := checkServer(ctx, j.Member, j.Say)
	if err != nil {
		return err
	}
	j.now, j.hubNow = member.Now, hub.Now
	if skew := (member.Now.Sub(hub.Now) - time.Since(before)).Abs(); skew > maxSkew {
		return report.Fail("set them first (NTP): the age of exports decides conflicts, and tokens have dates",
			"the clocks of %s and %s are %v apart", j.Member.Name, j.Hub.Name, skew.Round(time.Second))
	}
	return nil
}

// readState returns the identity and membership of a cluster.
func readState(ctx context.Context, c *cluster.Cluster) (s state, err error) {
	system := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, system); err != nil {
		return s, c.Failed(err, "reading namespace kube-system, whose UID identifies the cluster,")
	}
	s.uid = string(system.UID)
	if s.id, s.setProperty, err = c.Properties(ctx); err != nil {
		return s, err
	}
	known, err := cluster.MembershipOf(ctx, c)
	if err != nil {
		return s, err
	}
	agent, err := c.Deployment(ctx, manifest.AgentDeployment)
	s.agentID = facts.Flag(agent, "cluster-id")
	s.usedHub = known.Status.Hub
	s.hubNamespace = cmp.Or(facts.Flag(agent, "hub-namespace"), known.Status.HubNamespace)
	if s.setProperty != nil {
		s.hubNamespace = cmp.Or(s.hubNamespace, s.setProperty.Spec.Value)
	}
	return s, err
}

// chooseID sets ClusterID unless it was given, and returns an error if the cluster has another ID.
func (j *join) chooseID(context.Context) error {
	switch {
	case j.id != nil && j.ClusterID == "":
		j.ClusterID = j.id.Spec.Value
	case j.ClusterID == "":
		j.ClusterID = cmp.Or(j.agentID, j.uid)
		if !j.Renew && j.agentID == "" {
			j.Say("%s: without --cluster-id, its cluster ID is the UID of its kube-system, %s. It keeps that until "+
				"it leaves, and names of Headless Services contain it", j.Member.Name, j.uid)
		}
	case j.id != nil && j.id.Spec.Value != j.ClusterID && j.setProperty != nil:
		return report.Fail("if you mean another cluster, name it with --context", "%s, at %s, is a member as %q, and "+
			"keeps that cluster ID until it leaves", j.Member.Name, j.Member.Config.Host, j.id.Spec.Value)
	case j.id != nil && j.id.Spec.Value != j.ClusterID:
		return report.Fail("to keep it, join without --cluster-id; to change it, undo what began: "+
			j.Flags.Here(facts.Leave)+"; or delete your own: "+
			j.Flags.Here("kubectl delete clusterproperty "+clusterset.PropertyID), "ClusterProperty %s of %s is %q",
			clusterset.PropertyID, j.Member.Name, j.id.Spec.Value)
	}
	if err := clusterset.CheckID(j.ClusterID); err != nil {
		return report.WithRemedy(err, "choose another with --cluster-id")
	}
	return nil
}

// readClusterSet reads the only ClusterSet, and fails without one.
func (j *join) readClusterSet(ctx context.Context) error {
	var sets hubv1alpha1.ClusterSetList
	err := j.Hub.List(ctx, &sets, client.InNamespace(j.HubNamespace))
	if err != nil && !meta.IsNoMatchError(err) {
		return j.Hub.Failed(err, "listing ClusterSets")
	}
	switch n := len(sets.Items); {
	case n == 0 && j.setProperty != nil && j.usedHub != j.Hub.Config.Host: // a member has a hub
		return j.noSet(ctx, "name the hub of this cluster with --hub-context")
	case n == 0:
		return j.noSet(ctx, j.Flags.Here(facts.Init))
	case n > 1:
		return report.Fail("keep one: "+j.Flags.AtHub("kubectl -n "+j.HubNamespace+" delete clusterset NAME"),
			"namespace %s of the hub holds %d ClusterSets", j.HubNamespace, n)
	}
	j.hubSet, j.set = &sets.Items[0], sets.Items[0].Name
	return nil
}

// leaving reports whether the member was told to leave.
func (s *state) leaving() bool {
	return s.setProperty != nil && s.setProperty.Annotations[clusterset.AnnotationLeaving] != ""
}

// checkMembership refuses to join a second ClusterSet, to renew without a membership, and to join while the member
// leaves. A leave that needs the hub may need a valid token, so --renew is allowed then.
func (j *join) checkMembership(context.Context) error {
	switch p := j.setProperty; {
	case p == nil && j.Renew:
		return report.Fail("to join: run the same command without --renew",
			"%s is a member of no ClusterSet, so there is nothing to renew", j.Member.Name)
	case p == nil:
		return nil
	case p.Spec.Value != j.set:
		return report.Fail("to change to ClusterSet "+j.set+", first: "+j.Flags.Here("kubectl clusterset leave"),
			"%s is a member of ClusterSet %s, and cannot be one of two", j.Member.Name, p.Spec.Value)
	case p.Annotations[clusterset.AnnotationLeaving] == clusterset.LeavingForced, j.leaving() && !j.Renew:
		return report.Fail("to wait for it: "+j.Flags.Here("kubectl clusterset leave")+"; "+report.DocsLeaving,
			"%s is leaving ClusterSet %s", j.Member.Name, j.set)
	}
	return nil
}

func (j *join) checkRights(ctx context.Context) error {
	if j.DryRun != nil {
		return nil
	}
	there := cluster.Writes{Apply: without(j.hubSide, "ClusterProfile")}
	here := cluster.Writes{}
	if !j.claimed {
		there.Rights = []cluster.Right{cluster.RightTo("create", only(j.hubSide, "ClusterProfile")[0])}
	}
	if !j.Renew {
		here.Apply = slices.Clone(j.here)
		if j.id == nil {
			here.Rights = []cluster.Right{cluster.RightTo("create", property(clusterset.PropertyID))}
		}
	}
	if j.file == "" {
		there.Rights = append(there.Rights, cluster.Right{Verb: "create", Resource: "serviceaccounts",
			Subresource: "token", Namespace: j.HubNamespace, Name: clusterset.AccountPrefix + j.ClusterID})
		here.Apply = append(here.Apply, secret())
	}
	return errors.Join(j.Hub.Allowed(ctx, j.HubNamespace, there), j.Member.Allowed(ctx, "", here))
}

// applyAccount creates the member's account on the hub.
func (j *join) applyAccount(ctx context.Context) error {
	j.Say("the hub: applying ServiceAccount %s%s and its rights", clusterset.AccountPrefix, j.ClusterID)
	return j.Hub.Apply(ctx, without(j.hubSide, "ClusterProfile"), j.Say)
}

// applyPrerequisites applies all but the agent's Deployment.
func (j *join) applyPrerequisites(ctx context.Context) error {
	// The namespace of an earlier membership may still be terminating.
	if err := j.Member.NamespaceGone(ctx, kube.SystemNamespace, j.Timeout); err != nil {
		return err
	}
	j.Say("%s: applying kinds, policies and the agent's account", j.Member.Name)
	return j.Member.Apply(ctx, without(j.here, "Deployment"), j.Say)
}

// applyDeployment starts the agent. It follows createID, so that of two joins at once only the one whose ID the cluster
// got starts one.
func (j *join) applyDeployment(ctx context.Context) error {
	return j.Member.Apply(ctx, only(j.here, "Deployment"), j.Say)
}

// createID creates the ClusterProperty with the cluster ID, unless there is one. It fails if another join has created
// it meanwhile. Leave deletes it only if join or the agent created it.
func (j *join) createID(ctx context.Context) error {
	if j.id != nil {
		return nil
	}
	p := &aboutv1beta1.ClusterProperty{}
	p.Name, p.Spec.Value = clusterset.PropertyID, j.ClusterID
	err := cluster.Settled(ctx, func(ctx context.Context) error {
		return j.Member.Create(ctx, p.DeepCopy(), client.FieldOwner(manifest.FieldManager))
	})
	if apierrors.IsAlreadyExists(err) {
		err = j.Member.Get(ctx, client.ObjectKeyFromObject(p), p)
	}
	switch {
	case err != nil:
		return j.Member.Failed(err, "creating ClusterProperty %s", p.Name)
	case p.Spec.Value != j.ClusterID:
		return report.Fail("to delete its claim of "+j.ClusterID+": "+j.evict(j.ClusterID), "%w: another one has "+
			"meanwhile given %s the cluster ID %s", errVoid, j.Member.Name, p.Spec.Value)
	}
	j.Say("%s: its cluster ID is %s", j.Member.Name, j.ClusterID)
	return nil
}

// checkClaim sets claimed if the claim is this cluster's already, and fails if it cannot be claimed. It also reads the
// member's Lease, for checkSameHub.
func (j *join) checkClaim(ctx context.Context) (err error) {
	name := types.NamespacedName{Namespace: j.HubNamespace, Name: j.ClusterID}
	p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, j.Hub, name)
	if err != nil {
		return j.Hub.Failed(err, "reading ClusterProfile %s", name)
	}
	if j.lease, err = kube.Get[*coordinationv1.Lease](ctx, j.Hub, name); err != nil {
		return j.Hub.Failed(err, "reading Lease %s", name)
	}
	claims, err := j.claimsOf(ctx, j.uid)
	if err != nil {
		return err
	}
	// An unfinished join under another ID blocks this one, unless this cluster is a member. A claim in use may be that
	// of a clone, which has the same UID.
	for i := range claims {
		if id := claims[i].Name; id != j.ClusterID && j.setProperty == nil &&
			claims[i].Annotations[clusterset.AnnotationClusterUID] == "" {
			return report.Fail("join with --cluster-id "+id+", or undo it: "+j.Flags.Here(facts.Leave),
				"%s has an unfinished join as %s", j.Member.Name, id)
		}
	}
	if j.claimed = p != nil; j.claimed {
		return j.checkHolder(p)
	}
	if !j.Renew {
		return nil
	}
	kept, err := leases(ctx, j.Member)
	if err == nil && (j.leaving() || !facts.Departed(j.hubSet, j.ClusterID, kept)) {
		remedy := "to remove what is left here: " + j.Flags.Here(facts.Leave)
		if !j.leaving() {
			remedy = "to be a member again with its cluster ID and VIPs: " + j.Flags.Here(facts.Join) + "; " + remedy
		}
		return report.Fail(remedy, "%s has no ClusterProfile %s: this cluster was evicted, or the hub was restored "+
			"from an earlier backup, or this is another hub", j.Hub.Name, j.ClusterID)
	}
	return err
}

// checkHolder returns an error unless the claim is this cluster's.
func (j *join) checkHolder(p *inventoryv1alpha1.ClusterProfile) error {
	holder := holderOf(p)
	switch {
	case p.DeletionTimestamp != nil || p.Annotations[clusterset.AnnotationLeft] != "":
		return report.Fail("wait, or check that clusterset-controller hub runs, and run the command again",
			"cluster ID %s is not free yet on %s: its records are being deleted", p.Name, j.Hub.Name)
	case holder == "":
		return report.Fail("choose another with --cluster-id; if it was created for this cluster: "+
			j.Flags.AtHub("kubectl -n "+p.Namespace+" annotate clusterprofile "+p.Name+" "+
				clusterset.AnnotationJoiningUID+"="+j.uid),
			"cluster ID %s is taken on %s, by a ClusterProfile with no recorded owner", p.Name, j.Hub.Name)
	case holder != j.uid:
		return report.Fail("choose another with --cluster-id, or, if that cluster is lost: "+j.evict(p.Name),
			"cluster ID %s is taken on %s, by the cluster whose kube-system has the UID %s", p.Name, j.Hub.Name, holder)
	}
	return nil
}

// createClaim creates the ClusterProfile. If two clusters try at once, one succeeds.
func (j *join) createClaim(ctx context.Context) error {
	if j.claimed {
		j.Say("the hub: this cluster already holds cluster ID %s", j.ClusterID)
		return nil
	}
	err := j.Hub.Create(ctx, only(j.hubSide, "ClusterProfile")[0].DeepCopy(), client.FieldOwner(manifest.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		if again := j.checkClaim(ctx); again != nil || j.claimed {
			return again
		}
	}
	if err != nil {
		return j.Hub.Failed(err, "claiming cluster ID %s", j.ClusterID)
	}
	j.Say("the hub: claimed cluster ID %s", j.ClusterID)
	return nil
}

// claimsOf returns the ClusterProfiles that the cluster with this UID holds or is about to.
func (o *Options) claimsOf(ctx context.Context, uid string) (out []inventoryv1alpha1.ClusterProfile, err error) {
	if o.Hub == nil {
		return nil, nil
	}
	var all inventoryv1alpha1.ClusterProfileList
	if err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return nil, o.Hub.Failed(err, "listing ClusterProfiles")
	}
	return slices.DeleteFunc(all.Items, func(p inventoryv1alpha1.ClusterProfile) bool {
		return holderOf(&p) != uid
	}), nil
}

// holderOf returns the UID of the cluster that holds a claim, or is about to.
func holderOf(p *inventoryv1alpha1.ClusterProfile) string {
	return cmp.Or(p.Annotations[clusterset.AnnotationClusterUID], p.Annotations[clusterset.AnnotationJoiningUID])
}

// render fills what join applies on both sides. Arguments, resources and replicas that somebody gave the agent stay.
func (j *join) render(ctx context.Context) error {
	deployed, err := j.Member.Deployment(ctx, manifest.AgentDeployment)
	if err != nil {
		return err
	}
	container := facts.Container(deployed)
	if container == nil && j.Image == "" && j.Release == "" { // a build without a release: the version that the hub has
		hub, err := j.Hub.Deployment(ctx, manifest.HubDeployment(j.HubNamespace))
		if err != nil && !apierrors.IsForbidden(err) { // rights in the clusterset's namespace are enough to join
			return err
		}
		container = facts.Container(hub)
	}
	image, err := j.image(container)
	if err != nil {
		return err
	}
	values := manifest.Values{Namespace: j.HubNamespace, ClusterID: j.ClusterID, Image: image, Runs: deployed}
	values.Args = append([]string{"--cluster-id=" + j.ClusterID}, facts.OtherFlags(deployed, "cluster-id",
		"hub-kubeconfig", "hub-namespace")...)
	if j.file = facts.OwnCredentials(deployed); j.file != "" {
		values.Args = append(values.Args, "--hub-kubeconfig="+j.file) // after the manifest's own: the last one counts
		if j.Renew || j.HubServer != "" || j.TokenLifetime != 0 {
			return report.Fail("change them where the file comes from: "+report.DocsTokens, "--renew, --hub-server "+
				"and --token-lifetime are for Secret %s/%s, but the agent of %s has its credentials in %s",
				kube.SystemNamespace, clusterset.SecretHub, j.Member.Name, j.file)
		}
	}
	if j.here, err = manifest.Render(manifest.Member, values); err != nil {
		return err
	}
	j.hubSide, err = manifest.Render(manifest.HubMember, manifest.Values{Namespace: j.HubNamespace,
		ClusterID: j.ClusterID})
	if err != nil {
		return err
	}
	profile := only(j.hubSide, "ClusterProfile")[0]
	annotations := profile.GetAnnotations()
	annotations[clusterset.AnnotationJoiningUID] = j.uid
	profile.SetAnnotations(annotations)
	return nil
}

// printAll prints what this run would write (--dry-run).
func (j *join) printAll() error {
	var here []*unstructured.Unstructured
	if j.file == "" {
		secret, _, err := j.secretWith("(issued by the hub)")
		if err != nil {
			return err
		}
		here = append(here, secret)
	}
	id := property(clusterset.PropertyID)
	id.Object["spec"] = map[string]any{"value": j.ClusterID}
	hub := j.hubSide
	if j.claimed {
		hub = without(hub, "ClusterProfile")
	}
	if !j.Renew && j.id == nil {
		here = append([]*unstructured.Unstructured{id}, here...)
	}
	if !j.Renew {
		here = append(j.here, here...)
	}
	return errors.Join(j.print(j.Hub, hub), j.print(j.Member, here))
}
