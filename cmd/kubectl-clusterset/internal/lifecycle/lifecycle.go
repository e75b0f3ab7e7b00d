// Package lifecycle makes a clusterset, takes clusters into it, and out again: the steps that deploy/'s READMEs describe, with what must
// hold before each and what to do where it does not. Every step can be taken again, so that whoever was interrupted begins anew.
package lifecycle

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Options are the same for every step.
type Options struct {
	Hub          *cluster.Cluster // nil where a step can do without
	HubNamespace string
	Image        string
	DryRun       io.Writer // where to print what would be written, instead of writing it; nil: write it
	Wait         bool      // until what was started works
	Timeout      time.Duration
	Say          cluster.Say
}

// checkNamespace tells why a clusterset cannot have this namespace, and name.
func checkNamespace(name string) error {
	if p := validation.IsDNS1123Label(name); len(p) > 0 {
		return fmt.Errorf("--hub-namespace %q: %s", name, p[0])
	}
	if name == kube.SystemNamespace || strings.HasPrefix(name, "kube-") || name == "default" {
		return fmt.Errorf("--hub-namespace %q: a clusterset has a namespace of its own, whose name is the clusterset's", name)
	}
	return nil
}

// ask checks that a cluster can be reached and is new enough.
func ask(ctx context.Context, c *cluster.Cluster, say cluster.Say) (cluster.Server, error) {
	s, err := c.Ask(ctx)
	if err != nil {
		return s, err
	}
	if doctor.TooOld(s.Version) {
		return s, fmt.Errorf("%s runs Kubernetes %s, and %s is the oldest that is supported: upgrade it first", c.Name, s.Version, doctor.Oldest)
	}
	say("%s: Kubernetes %s at %s", c.Name, s.Version, c.Config.Host)
	return s, nil
}

// allowed checks that whoever runs this may do what follows, before anything is written.
func allowed(ctx context.Context, c *cluster.Cluster, rights []cluster.Right) error {
	lacking, err := c.Lacking(ctx, rights)
	if err != nil || len(lacking) == 0 {
		return err
	}
	texts := cluster.Texts(lacking)
	if n := len(texts); n > 6 {
		texts = append(texts[:6], fmt.Sprintf("and %d more", n-6))
	}
	return fmt.Errorf("you lack rights on %s, and nothing was written: %s; run this as a cluster admin of it", c.Name, strings.Join(texts, ", "))
}

// write are the verbs by which an object is applied, remove those by which it is taken away.
var (
	write  = []string{"get", "create", "patch"}
	remove = []string{"get", "delete"}
)

// print shows what would be written.
func print(out io.Writer, where string, objects []*unstructured.Unstructured) error {
	text, err := manifest.YAML(objects)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "# On %s:\n%s", where, text)
	return err
}

// without leaves out the objects of a kind.
func without(objects []*unstructured.Unstructured, kinds ...string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return slices.Contains(kinds, o.GetKind()) })
}

// only takes the one object of a kind.
func only(objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	for _, o := range objects {
		if o.GetKind() == kind {
			return o
		}
	}
	return nil
}

// waiter says each new reason once.
func (o *Options) waiter(what string) func(why string) {
	said := ""
	return func(why string) {
		if why != "" && why != said {
			said = why
			o.Say("waiting for %s: %s", what, why)
		}
	}
}

// running is the container of a Deployment that is there; nil without one.
func running(ctx context.Context, c *cluster.Cluster, deployment string) (*corev1.Container, error) {
	d, err := kube.Get[*appsv1.Deployment](ctx, c, types.NamespacedName{Namespace: kube.SystemNamespace, Name: deployment})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	if d == nil || len(d.Spec.Template.Spec.Containers) == 0 {
		return nil, nil
	}
	return &d.Spec.Template.Spec.Containers[0], nil
}

// image is the one to run: the one that is asked for, or else the one that runs already; "" if there is none, which is said.
func (o *Options) image(c *cluster.Cluster, runs *corev1.Container) string {
	switch {
	case o.Image != "":
		return o.Image
	case runs != nil:
		return runs.Image
	}
	o.Say("%s: no --image was given, so the nodes will look for clusterset-dns/clusterset-controller in their default registry", c.Name)
	return ""
}

// added are the arguments that somebody gave to what runs already, beside the flags that are set here.
func added(runs *corev1.Container, set ...string) (out []string) {
	if runs == nil {
		return nil
	}
	for i := 0; i < len(runs.Args); i++ {
		first := i
		name, _, whole := strings.Cut(strings.TrimLeft(runs.Args[i], "-"), "=")
		if !strings.HasPrefix(runs.Args[i], "-") {
			continue // the command
		}
		if !whole && i+1 < len(runs.Args) && !strings.HasPrefix(runs.Args[i+1], "-") {
			i++ // its value
		}
		if !slices.Contains(set, name) {
			out = append(out, runs.Args[first:i+1]...)
		}
	}
	return out
}
