package lifecycle

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Init makes a cluster the hub of a ClusterSet.
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
		return o.print(o.Hub, objects)
	}
	if err := o.Hub.Allowed(ctx, "", cluster.Writes{Apply: objects}); err != nil {
		return err
	}
	ran, err := available(ctx, o.Hub, manifest.HubDeployment(o.HubNamespace))
	if err != nil {
		return err
	}
	if err := o.freeNamespace(ctx); err != nil {
		return err
	}
	if err := o.applyHub(ctx, objects); err != nil {
		return err
	}
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

// freeNamespace ends a deletion of the hub's namespace. The Role of the hub's controller went first, so that it can no
// longer remove its finalizer from ClusterProfiles.
func (o *Options) freeNamespace(ctx context.Context) error {
	ns, err := kube.Get[*corev1.Namespace](ctx, o.Hub, client.ObjectKey{Name: o.HubNamespace})
	if err != nil || ns == nil || ns.DeletionTimestamp == nil {
		return o.Hub.Failed(err, "reading namespace %s", o.HubNamespace)
	}
	o.Say("the hub: namespace %s is being deleted: removing what keeps it", o.HubNamespace)
	var profiles inventoryv1alpha1.ClusterProfileList
	err = o.Hub.List(ctx, &profiles, client.InNamespace(o.HubNamespace))
	if err != nil && !meta.IsNoMatchError(err) {
		return o.Hub.Failed(err, "listing ClusterProfiles")
	}
	for i := range profiles.Items {
		p := profiles.Items[i].DeepCopy()
		if controllerutil.RemoveFinalizer(p, clusterset.FinalizerRecords) {
			if err := o.Hub.Patch(ctx, p, kube.Changes(&profiles.Items[i])); client.IgnoreNotFound(err) != nil {
				return o.Hub.Failed(err, "releasing %s", cluster.Title(p))
			}
		}
	}
	return o.Hub.NamespaceGone(ctx, o.HubNamespace, o.Timeout)
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
	} else if err := o.applyPart(ctx, "ClusterSet "+o.HubNamespace, only(objects, "ClusterSet")...); err != nil {
		return err
	}
	return o.applyPart(ctx, "the controller", only(objects, "Deployment")...)
}

func (o *Options) applyPart(ctx context.Context, what string, objects ...*unstructured.Unstructured) error {
	o.Say("the hub: applying %s", what)
	return o.Hub.Apply(ctx, objects, o.Say)
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
