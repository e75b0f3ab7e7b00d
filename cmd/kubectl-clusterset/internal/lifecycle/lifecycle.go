// Package lifecycle makes hubs, and lets clusters join and leave. It takes the steps of the READMEs in deploy/ and
// checks their preconditions. Every step can be repeated, so that an interrupted command is run again.
package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Options are common to all commands of this package.
type Options struct {
	Hub          *cluster.Cluster // nil if none was named and the command works without it
	HubNamespace string           // "" for that of the membership, or the default; init and evict need one
	Image        string
	Release      string    // the image of this version's release, "" if this version is none
	DryRun       io.Writer // prints what would be written; nil to write it
	Wait         bool      // for the controller or agent that was started
	Timeout      time.Duration
	Say          cluster.Say
	Flags        report.Flags // for commands in remedies
	Confirm      io.Reader    // the answer of a user who lets a member leave or evicts one; nil to go on without it
	Out          io.Writer    // for the question
}

// chooseNamespace sets HubNamespace unless it was given.
func (o *Options) chooseNamespace(s state) {
	if o.HubNamespace != "" {
		return
	}
	o.HubNamespace = cmp.Or(s.hubNamespace, DefaultHubNamespace)
	if o.HubNamespace != DefaultHubNamespace {
		o.Flags.HubNamespace = o.HubNamespace
	}
}

// noSet is the error if the hub has no ClusterSet in the namespace. The remedy is for a cluster that could become it.
func (o *Options) noSet(ctx context.Context, remedy string) error {
	role := cluster.RoleOf(ctx, o.Hub)
	return role.NoSet(o.HubNamespace, remedy)
}

// evict returns the command that deletes a claim.
func (o *Options) evict(id string) string {
	return o.Flags.Here("kubectl clusterset evict " + id + " --hub-context=HUB")
}

// checkNamespace refuses namespaces that a ClusterSet cannot have.
func checkNamespace(name string) error {
	if p := validation.IsDNS1123Label(name); len(p) > 0 {
		return fmt.Errorf("--hub-namespace %q: %s", name, p[0])
	}
	if name == kube.SystemNamespace || strings.HasPrefix(name, "kube-") || name == "default" {
		return fmt.Errorf("--hub-namespace %q: a ClusterSet needs a namespace of its own, with the ClusterSet's name",
			name)
	}
	return nil
}

// checkServer checks that a cluster is reachable and new enough.
func checkServer(ctx context.Context, c *cluster.Cluster, say cluster.Say) (cluster.Server, error) {
	s, err := c.Ask(ctx)
	if err != nil {
		return s, err
	}
	if facts.TooOld(s.Version) {
		return s, fmt.Errorf("%s runs Kubernetes %s, and %s is the oldest supported version: upgrade it first", c.Name,
			s.Version, facts.Oldest)
	}
	say("%s: Kubernetes %s at %s", c.Name, s.Version, c.Config.Host)
	return s, nil
}

// leases returns those in clusterset-system.
func leases(ctx context.Context, c *cluster.Cluster) ([]coordinationv1.Lease, error) {
	var out coordinationv1.LeaseList
	err := c.List(ctx, &out, client.InNamespace(kube.SystemNamespace))
	return out.Items, c.Failed(err, "listing Leases")
}

// object returns an object with nothing but its kind and name.
func object(gvk schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// secret returns the Secret with the agent's credentials, without them.
func secret() *unstructured.Unstructured {
	return object(corev1.SchemeGroupVersion.WithKind("Secret"), kube.SystemNamespace, clusterset.SecretHub)
}

// property returns a ClusterProperty without its value.
func property(name string) *unstructured.Unstructured {
	return object(aboutv1beta1.GroupVersion.WithKind("ClusterProperty"), "", name)
}

// print writes the objects that --dry-run does not apply.
func (o *Options) print(c *cluster.Cluster, objects []*unstructured.Unstructured) error {
	text, err := manifest.YAML(objects)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.DryRun, "# On %s:\n%s", c.Name, text)
	return err
}

// without returns objects except those of some kinds.
func without(objects []*unstructured.Unstructured, kinds ...string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
		return slices.Contains(kinds, o.GetKind())
	})
}

// only returns the objects of some kinds.
func only(objects []*unstructured.Unstructured, kinds ...string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
		return !slices.Contains(kinds, o.GetKind())
	})
}

// image returns the image of --image, or else that of the running container, or else this version's.
func (o *Options) image(runs *corev1.Container) (string, error) {
	switch {
	case o.Image != "":
		return o.Image, manifest.CheckImage(o.Image)
	case runs != nil:
		return runs.Image, nil
	case o.Release != "":
		return o.Release, nil
	}
	return "", facts.NoRelease()
}

// all takes steps until one fails.
func all(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// available returns how many replicas of a Deployment of clusterset-system are available.
func available(ctx context.Context, c *cluster.Cluster, name string) (int32, error) {
	d, err := c.Deployment(ctx, name)
	if err != nil || d == nil {
		return 0, err
	}
	return d.Status.AvailableReplicas, nil
}

// awaitRollout waits until all replicas of a Deployment are new, if some were available before. Without it, the old
// replicas would hide that the new ones do not start.
func (o *Options) awaitRollout(ctx context.Context, c *cluster.Cluster, name string, before int32) error {
	if before == 0 {
		return nil
	}
	at := types.NamespacedName{Namespace: kube.SystemNamespace, Name: name}
	if err := c.AwaitRollout(ctx, at, before, o.Timeout, o.Say); err != nil {
		return report.WithRemedy(c.Failed(err, "rolling out Deployment %s", name), "the previous version continues to "+
			"run; for another image, run the same command with --image")
	}
	return nil
}

// stopAgent scales the agent's Deployment to 0, and waits until its Pods have ended.
func (l *leave) stopAgent(ctx context.Context) error {
	d, err := l.scaleAgent(ctx, 0)
	if err != nil || d == nil {
		return err
	}
	err = cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		pods, err := l.Member.PodsOf(ctx, d)
		for i := range pods {
			if !facts.Ended(&pods[i]) {
				return false, "Pod " + pods[i].Name + " still runs", nil
			}
		}
		return err == nil, "", err
	})
	return l.Member.Failed(err, "stopping the agent")
}

// scaleAgent scales the agent's Deployment, unless it is at 0, or above 0, already. It returns nil if there is none.
func (l *leave) scaleAgent(ctx context.Context, replicas int32) (*appsv1.Deployment, error) {
	d, err := l.Member.Deployment(ctx, manifest.AgentDeployment)
	if err != nil || d == nil || (ptr.Deref(d.Spec.Replicas, 1) > 0) == (replicas > 0) {
		return d, err
	}
	scaled := d.DeepCopy()
	scaled.Spec.Replicas = &replicas
	err = l.Member.Patch(ctx, scaled, client.MergeFrom(d), client.FieldOwner(manifest.FieldManager))
	return d, l.Member.Failed(err, "scaling the agent's Deployment")
}

// whyStopped returns why a Pod of the agent waits; "" if another one runs, or if that is not known.
func whyStopped(ctx context.Context, c *cluster.Cluster) (why string) {
	d, err := c.Deployment(ctx, manifest.AgentDeployment)
	if err != nil || d == nil {
		return ""
	}
	pods, _ := c.PodsOf(ctx, d)
	for i := range pods {
		if slices.ContainsFunc(pods[i].Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.State.Running != nil
		}) {
			return ""
		}
		why = cmp.Or(why, facts.Waiting(&pods[i]))
	}
	return why
}

// whyDown returns why replicas of a Deployment of clusterset-system are missing; "" if the user may not read it.
func whyDown(ctx context.Context, c *cluster.Cluster, name string) string {
	d, err := c.Deployment(ctx, name)
	switch {
	case apierrors.IsForbidden(err):
		return ""
	case err != nil:
		return err.Error()
	case d == nil:
		return "there is no Deployment " + name
	}
	pods, _ := c.PodsOf(ctx, d) // without them the cause is missing
	if down := facts.Missing(d, pods); down != nil {
		return down.Why
	}
	return "its Deployment runs"
}
