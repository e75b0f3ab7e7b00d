package lifecycle

import (
	"context"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Init makes a cluster the hub of a ClusterSet, and checks that its API server refuses forged writes.
func Init(ctx context.Context, o *Options) error {
	if err := checkNamespace(o.HubNamespace); err != nil {
		return err
	}
	server, err := checkServer(ctx, o.Hub, o.Say)
	if err != nil {
		return err
	}
	if err := o.isMember(ctx, server.Now); err != nil {
		return err
	}
	objects, err := o.renderHub(ctx)
	if err != nil {
		return err
	}
	if o.DryRun != nil {
		return o.print(ctx, o.Hub, objects)
	}
	if err := o.Hub.Allowed(ctx, "", cluster.Writes{Apply: objects}); err != nil {
		return err
	}
	ran, err := available(ctx, o.Hub, manifest.HubDeployment(o.HubNamespace))
	if err != nil {
		return err
	}
	if err := o.applyHub(ctx, objects); err != nil {
		return err
	}
	if err := o.checkPolicies(ctx); err != nil {
		return err
	}
	o.Say("the hub: refuses forged writes")
	if o.Wait {
		if err := o.awaitRollout(ctx, o.Hub, manifest.HubDeployment(o.HubNamespace), ran); err != nil {
			return err
		}
		if err := o.awaitHub(ctx); err != nil {
			return err
		}
	}
	o.Say("the hub: ClusterSet %s is ready\nnext, for each member: %s", o.HubNamespace, o.next())
	return nil
}

// isMember refuses a live member of the ClusterSet whose hub is elsewhere: it would be a second hub.
func (o *Options) isMember(ctx context.Context, now time.Time) error {
	role := cluster.RoleOf(ctx, o.Hub)
	if role.MemberOf != o.HubNamespace || slices.Contains(role.HubOf, o.HubNamespace) {
		return nil
	}
	kept, err := leases(ctx, o.Hub)
	if err != nil {
		return err
	}
	if _, expired, known := facts.HubSeen(kept, now); !known || expired {
		return nil
	}
	return report.Fail("name that hub with --hub-context; for another ClusterSet: --hub-namespace",
		"%s, at %s, %s: it would be a second hub", o.Hub.Name, o.Hub.Config.Host, &role)
}

// next returns the command that makes a cluster a member.
func (o *Options) next() string {
	command := "kubectl clusterset join --context MEMBER --hub-context=HUB --cluster-id ID"
	if o.Image != "" {
		command += " --image " + o.Image
	}
	return o.Flags.OfHub().Here(command)
}

// renderHub returns what is applied.
func (o *Options) renderHub(ctx context.Context) (objects []*unstructured.Unstructured, err error) {
	runs, err := o.Hub.Deployment(ctx, manifest.HubDeployment(o.HubNamespace))
	if err != nil {
		return nil, err
	}
	image, err := o.image(facts.Container(runs))
	if err != nil {
		return nil, err
	}
	values := manifest.Values{Namespace: o.HubNamespace, Image: image, Args: facts.OtherFlags(runs, "hub-namespace"),
		Runs: runs}
	for _, folder := range []string{manifest.Hub, manifest.ClusterSet, manifest.HubController} {
		some, err := manifest.Render(folder, values)
		if err != nil {
			return nil, err
		}
		objects = append(objects, some...)
	}
	manifest.Sort(objects)
	return objects, nil
}

// applyHub applies all objects. An existing ClusterSet stays as it is.
func (o *Options) applyHub(ctx context.Context, objects []*unstructured.Unstructured) error {
	err := o.applyPart(ctx, "kinds and policies", without(objects, "ClusterSet", "Deployment")...)
	if err != nil {
		return err
	}
	var sets hubv1alpha1.ClusterSetList
	if err := o.Hub.List(ctx, &sets, client.InNamespace(o.HubNamespace)); err != nil {
		return o.Hub.Failed(err, "listing ClusterSets")
	}
	if len(sets.Items) > 0 {
		o.Say("the hub: kept ClusterSet %s", sets.Items[0].Name)
	} else if err := o.applyPart(ctx, "ClusterSet "+o.HubNamespace, firstOf(objects, "ClusterSet")); err != nil {
		return err
	}
	return o.applyPart(ctx, "the controller", firstOf(objects, "Deployment"))
}

func (o *Options) applyPart(ctx context.Context, what string, objects ...*unstructured.Unstructured) error {
	o.Say("the hub: applying %s", what)
	err := o.Hub.Apply(ctx, objects, o.Say)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// If its Role is deleted first, the controller can no longer remove the finalizers of ClusterProfiles.
		err = report.WithRemedy(err, "if the deletion is stuck: "+report.DocsHubDeleted)
	}
	return err
}

// checkPolicies tries forged writes, in dry runs, as a made-up member. That has a member's rights, so the policies must
// refuse the writes, not RBAC. A write that members may do must pass.
func (o *Options) checkPolicies(ctx context.Context) error {
	forger := "init-check-" + rand.String(8)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.HubNamespace, Name: clusterset.AccountPrefix + forger},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clusterset-member"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.HubNamespace,
			Name: clusterset.AccountPrefix + forger}},
	}
	if err := o.Hub.Create(ctx, binding, client.FieldOwner(manifest.FieldManager)); err != nil {
		return o.Hub.Failed(err, "creating RoleBinding %s", binding.Name)
	}
	defer func() {
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := kube.Delete(again, o.Hub.Client, binding); err != nil {
			o.Say("the hub: deleting RoleBinding %s failed: %v\n  → %s", binding.Name, err,
				o.Flags.AtHub("kubectl -n "+binding.Namespace+" delete rolebinding "+binding.Name))
		}
	}()
	as, err := o.Hub.As(o.Hub.Name, "system:serviceaccount:"+o.HubNamespace+":"+clusterset.AccountPrefix+forger)
	if err != nil {
		return err
	}
	for _, trial := range trialWrites(o.HubNamespace, forger) {
		err := cluster.Until(ctx, cluster.Settle, func(ctx context.Context) (bool, string, error) {
			err := as.Create(ctx, trial.object.DeepCopyObject().(client.Object), client.DryRunAll)
			switch {
			case trial.refusal == "" && err == nil:
				return true, "", nil
			case trial.refusal != "" && err != nil && strings.Contains(err.Error(), trial.refusal):
				return true, "", nil
			case err == nil:
				return false, "the API server accepts it", nil
			}
			return false, "", err
		})
		if err != nil {
			err = o.Hub.Failed(err, "checking the policies with %s", trial.what)
			return report.WithRemedy(err,
				"check the ValidatingAdmissionPolicies clusterset-*.clusterset-dns.io and their bindings, and the "+
					"label "+clusterset.LabelSet+" of the namespace; let nobody join before")
		}
	}
	return nil
}

// trialWrite is a write that must be refused with these words, or accepted if they are "".
type trialWrite struct {
	what, refusal string
	object        client.Object
}

// trialWrites are writes of a made-up member: one for itself, the others as another member.
func trialWrites(namespace, forger string) []trialWrite {
	forged := forger + "-other"
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	origin := hubv1alpha1.Origin{ClusterID: forged, ServiceNamespace: "default", ServiceName: "web", Revision: 1}
	return []trialWrite{
		{"a member's own Lease", "", &coordinationv1.Lease{ObjectMeta: meta(forger)}},
		{"another member's Lease", "does not write Lease " + forged, &coordinationv1.Lease{ObjectMeta: meta(forged)}},
		{"another member's export", "does not write the records of cluster " + forged, &hubv1alpha1.ServiceExportRecord{
			ObjectMeta: meta(clusterset.RecordName("web", "default", forged)),
			Spec:       hubv1alpha1.ServiceExportRecordSpec{Origin: origin, Withdrawn: true}}},
		{"another member's endpoints", "does not write the records of cluster " + forged, &hubv1alpha1.EndpointPage{
			ObjectMeta: meta(clusterset.PageName(0, "web", "default", forged)),
			Spec: hubv1alpha1.EndpointPageSpec{Origin: origin,
				EndpointGroup: hubv1alpha1.EndpointGroup{AddressType: discoveryv1.AddressTypeIPv4}}}},
	}
}

// awaitHub waits until the hub's controller renews its Lease as leader. An earlier renewal proves nothing.
func (o *Options) awaitHub(ctx context.Context) error {
	name := client.ObjectKey{Namespace: kube.SystemNamespace, Name: clusterset.LeaseHubPrefix + o.HubNamespace}
	was := ""
	err := o.Say.Until(ctx, o.Timeout, "clusterset-controller hub", func(ctx context.Context) (bool, string, error) {
		lease := &coordinationv1.Lease{}
		if err := o.Hub.Get(ctx, name, lease); client.IgnoreNotFound(err) != nil {
			return false, "", err
		}
		if r := lease.Spec.RenewTime; r != nil {
			if was != "" && was != r.String() {
				return true, "", nil
			}
			was = r.String()
		}
		return false, whyDown(ctx, o.Hub, manifest.HubDeployment(o.HubNamespace)), nil
	})
	if err != nil {
		return report.WithRemedy(o.Hub.Failed(err, "starting clusterset-controller hub"),
			"run the same command with --image IMAGE, one that the nodes can pull; members can already join")
	}
	return nil
}
