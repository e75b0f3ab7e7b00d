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

// Apply applies objects server-side, and takes over the fields of other managers. CustomResourceDefinitions must come
// first. It leaves newer ones, and those that others applied.
func (c *Cluster) Apply(ctx context.Context, objects []*unstructured.Unstructured, say Say) error {
	for _, o := range objects {
		why, err := c.kept(ctx, o)
		if why != "" {
			say("%s: kept %s: %s", c.Name, Title(o), why)
			continue
		}
		if err == nil {
			err = Settled(ctx, func(ctx context.Context) error { return c.apply(ctx, o) })
		}
		if err != nil {
			return c.Failed(err, "applying %s", Title(o))
		}
	}
	return nil
}

// kept returns why Apply would leave a CustomResourceDefinition, or "".
func (c *Cluster) kept(ctx context.Context, o *unstructured.Unstructured) (why string, err error) {
	if o.GetKind() != "CustomResourceDefinition" {
		return "", nil
	}
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(o.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), existing); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return manifest.Keep(existing, o), nil
}

func (c *Cluster) apply(ctx context.Context, o *unstructured.Unstructured, opts ...client.ApplyOption) error {
	return c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
		append(opts, client.FieldOwner(manifest.FieldManager), client.ForceOwnership)...)
}

// Settled retries a write while the API server does not serve the kind yet, or has not found the kinds that policies
// take their parameters from: it refuses writes for seconds after its start, or after a kind is created.
func Settled(ctx context.Context, write func(context.Context) error) error {
	var refused error
	err := Until(ctx, Settle, func(ctx context.Context) (bool, string, error) {
		refused = write(ctx)
		if meta.IsNoMatchError(refused) || apierrors.IsNotFound(refused) ||
			refused != nil && strings.Contains(refused.Error(), "failed to configure policy") { // its reason is Invalid
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
			err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
			if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
				return nil
			} else if err != nil {
				return err
			}
			return kube.Delete(ctx, c.Client, o, client.PropagationPolicy("Background"))
		})
		if err != nil {
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
)

// rehearse has the API server check that Apply would apply an object, and stores nothing.
func (c *Cluster) rehearse(ctx context.Context, o *unstructured.Unstructured) error {
	if kept, err := c.kept(ctx, o); kept != "" || err != nil {
		return err
	}
	return c.apply(ctx, o, client.DryRunAll)
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
