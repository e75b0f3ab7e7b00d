package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Say prints a line of progress.
type Say func(format string, args ...any)

// Settle is how long an API server may take to serve a new kind, policy or right.
const Settle = 30 * time.Second

// Apply applies objects server-side; CustomResourceDefinitions must come first. It leaves newer ones, and those that
// others applied.
func (c *Cluster) Apply(ctx context.Context, objects []*unstructured.Unstructured, say Say) error {
	kinds := 0
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			break
		}
		kinds++
		if err := c.applyKind(ctx, o, say); err != nil {
			return err
		}
	}
	for _, o := range objects[:kinds] {
		err := Until(ctx, Settle, func(ctx context.Context) (bool, string, error) {
			return c.established(ctx, o.GetName())
		})
		if err != nil {
			err = c.Failed(err, "establishing CustomResourceDefinition %s", o.GetName())
			return report.WithRemedy(err, c.Command("kubectl describe crd "+o.GetName()))
		}
	}
	for _, o := range objects[kinds:] {
		if err := c.applyOne(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) applyKind(ctx context.Context, o *unstructured.Unstructured, say Say) error {
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(o.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(o), existing)
	if err == nil {
		if why := manifest.Keep(existing, o); why != "" {
			say("%s: kept CustomResourceDefinition %s: %s", c.Name, o.GetName(), why)
			return nil
		}
	} else if !apierrors.IsNotFound(err) {
		return c.Failed(err, "reading CustomResourceDefinition %s", o.GetName())
	}
	return c.applyOne(ctx, o)
}

// applyOne takes over the fields of other managers. It retries while an API server does not serve the kind yet.
func (c *Cluster) applyOne(ctx context.Context, o *unstructured.Unstructured) error {
	var refused error
	err := Until(ctx, Settle, func(ctx context.Context) (bool, string, error) {
		err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
			client.FieldOwner(manifest.FieldManager), client.ForceOwnership)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, "", err
		}
		refused = err
		return true, "", nil
	})
	if refused != nil {
		err = refused
	}
	return c.Failed(err, "applying %s", Title(o))
}

func (c *Cluster) established(ctx context.Context, name string) (bool, string, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return false, "", err
	}
	why := "no conditions yet"
	for _, s := range crd.Status.Conditions {
		if s.Status != apiextensionsv1.ConditionTrue {
			why = fmt.Sprint(s.Type, ": ", s.Message)
		}
	}
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established), why, nil
}

// Settled retries a write while the API server has not found the kinds that policies take their parameters from: it
// refuses writes for seconds after its start, or after a kind is created.
func Settled(ctx context.Context, write func(context.Context) error) error {
	var refused error
	err := Until(ctx, Settle, func(ctx context.Context) (bool, string, error) {
		refused = write(ctx)
		if refused != nil && strings.Contains(refused.Error(), "failed to configure policy") { // its reason is Invalid
			return false, "", refused
		}
		return true, "", nil
	})
	if err != nil {
		return err
	}
	return refused
}

// Remove deletes objects in the reverse of their order. Objects that do not exist are no error.
func (c *Cluster) Remove(ctx context.Context, objects []*unstructured.Unstructured) error {
	for i := len(objects) - 1; i >= 0; i-- {
		err := Settled(ctx, func(ctx context.Context) error {
			o := objects[i].DeepCopy()
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return client.IgnoreNotFound(err)
			}
			return kube.Delete(ctx, c.Client, o, client.PropagationPolicy("Background"))
		})
		if err != nil && !meta.IsNoMatchError(err) {
			return c.Failed(err, "deleting %s", Title(objects[i]))
		}
	}
	return nil
}

// NamespaceGone waits until a namespace that is being deleted no longer exists.
func (c *Cluster) NamespaceGone(ctx context.Context, name string, limit time.Duration) error {
	err := Until(ctx, limit, func(ctx context.Context) (bool, string, error) {
		ns, err := kube.Get[*corev1.Namespace](ctx, c, client.ObjectKey{Name: name})
		return err == nil && (ns == nil || ns.DeletionTimestamp == nil), "it is being deleted", err
	})
	if err != nil {
		return report.WithRemedy(c.Failed(err, "deleting namespace %s", name),
			"to see what it waits for: "+c.Command("kubectl get namespace "+name+" -o yaml"))
	}
	return nil
}

// Title returns kind and name of an object.
func Title(o client.Object) string {
	name := o.GetName()
	if ns := o.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return kindOf(o).Kind + " " + name
}

// kindOf returns the kind of an object. One that a typed client has read does not have it.
func kindOf(o client.Object) schema.GroupVersionKind {
	if gvk := o.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
		return gvk
	}
	gvk, _ := apiutil.GVKForObject(o, Scheme()) // the scheme has all
	return gvk
}

// DryRun is the value of kubectl's flag --dry-run.
type DryRun string

// The values of --dry-run.
const (
	DryRunNone   DryRun = "none"
	DryRunClient DryRun = "client" // print what would be written
	DryRunServer DryRun = "server" // print it, and have the API server check it without storing it
)

// Rehearse has the API server check that it would apply objects, and stores nothing. It cannot check objects whose
// kind or namespace does not exist yet, and reports that. mark begins each line.
func (c *Cluster) Rehearse(ctx context.Context, out io.Writer, mark string, objects []*unstructured.Unstructured,
) error {
	for _, o := range objects {
		kept, err := c.rehearse(ctx, o)
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			fmt.Fprintf(out, "%s%s: not checked, its kind or namespace does not exist yet\n", mark, Title(o))
		case err != nil:
			return c.Failed(err, "applying %s", Title(o))
		case kept != "":
			fmt.Fprintf(out, "%s%s: kept: %s\n", mark, Title(o), kept)
		default:
			fmt.Fprintf(out, "%s%s: accepted (server dry run)\n", mark, Title(o))
		}
	}
	return nil
}

// rehearse is Rehearse for one object. It returns why Apply would keep a CustomResourceDefinition, or "".
func (c *Cluster) rehearse(ctx context.Context, o *unstructured.Unstructured) (kept string, err error) {
	if o.GetKind() == "CustomResourceDefinition" {
		existing := &unstructured.Unstructured{}
		existing.SetGroupVersionKind(o.GroupVersionKind())
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), existing); err == nil {
			kept = manifest.Keep(existing, o)
		} else if !apierrors.IsNotFound(err) {
			return "", err
		}
	}
	if kept != "" {
		return kept, nil
	}
	return "", c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
		client.FieldOwner(manifest.FieldManager), client.ForceOwnership, client.DryRunAll)
}

// ErrDeclined says that the user did not confirm.
var ErrDeclined = report.Fail("answer y, or use --yes", "not confirmed, and nothing was written")

// Confirm asks on out whether to go on. It returns ErrDeclined unless the answer in is yes, or the error of ctx if that
// ends before. Without in, it does not ask.
func Confirm(ctx context.Context, in io.Reader, out io.Writer) error {
	if in == nil {
		return nil
	}
	fmt.Fprint(out, "\nGo on? [y/N] ")
	answer := make(chan string, 1)
	go func() { // nothing ends a read from a terminal
		line, _ := bufio.NewReader(in).ReadString('\n') // nothing is no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case line := <-answer:
		if !slices.Contains([]string{"y", "yes"}, line) {
			return ErrDeclined
		}
		return nil
	}
}

// Until is the function Until, and says a reason for waiting, once, if it has stood for 10 s. What passes by itself
// sooner is none that a user could act on. The first time, it says for how long it waits for what at most.
func (say Say) Until(ctx context.Context, limit time.Duration, what string, look func(context.Context) (done bool,
	why string, err error)) error {
	last, said, since := "", map[string]bool{}, time.Now()
	return Until(ctx, limit, func(ctx context.Context) (bool, string, error) {
		done, why, err := look(ctx)
		if why != last {
			last, since = why, time.Now()
		}
		if done || why == "" || said[why] || time.Since(since) < 10*time.Second {
			return done, why, err
		}
		if len(said) == 0 {
			say("waiting up to %v for %s: %s", limit, what, why)
		} else {
			say("waiting for %s: %s", what, why)
		}
		said[why] = true
		return false, why, err
	})
}
