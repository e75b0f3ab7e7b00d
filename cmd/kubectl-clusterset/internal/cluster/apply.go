package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
)

// Say tells a person what happens, one line each.
type Say func(format string, args ...any)

// settle is how long an API server may take to know a new kind, policy or right.
const settle = 30 * time.Second

// Apply applies objects server-side, kinds first. A kind that is there in a newer version, or that others brought, is left alone, which is
// said.
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
		if err := Until(ctx, settle, func(ctx context.Context) (bool, string, error) { return c.established(ctx, o.GetName()) }); err != nil {
			return fmt.Errorf("%s: CustomResourceDefinition %s cannot be used: %w; kubectl describe crd %s", c.Name, o.GetName(), err, o.GetName())
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
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(o.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(o), there)
	if err == nil && there.GetDeletionTimestamp() != nil {
		if err := c.Gone(ctx, o); err != nil {
			return err
		}
	} else if err == nil {
		if why := manifest.LeaveAlone(there, o); why != "" {
			say("%s: CustomResourceDefinition %s is left as it is: %s", c.Name, o.GetName(), why)
			return nil
		}
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return c.applyOne(ctx, o)
}

// applyOne takes over the fields that others had. A kind may have been made a moment ago, and not be served by every API server yet.
func (c *Cluster) applyOne(ctx context.Context, o *unstructured.Unstructured) error {
	var refused error
	err := Until(ctx, settle, func(ctx context.Context) (bool, string, error) {
		err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner(manifest.FieldManager), client.ForceOwnership)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, "", err
		}
		refused = err
		return true, "", nil
	})
	if refused != nil {
		err = refused
	}
	if err != nil {
		return fmt.Errorf("%s: applying %s: %w", c.Name, Title(o), err)
	}
	return nil
}

func (c *Cluster) established(ctx context.Context, name string) (bool, string, error) {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return false, "", err
	}
	list, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	why := "it has no conditions"
	for _, e := range list {
		m, _ := e.(map[string]any)
		if m["type"] == "Established" && m["status"] == "True" {
			return true, "", nil
		}
		if m["status"] != "True" {
			why = fmt.Sprint(m["type"], ": ", m["message"])
		}
	}
	return false, why, nil
}

// Settled is a write that the API server may refuse for the time being: it answers before it has found the kinds that policies take their
// parameters from, in the seconds after its start or after the kind was made.
func Settled(ctx context.Context, write func(context.Context) error) error {
	var refused error
	err := Until(ctx, settle, func(ctx context.Context) (bool, string, error) {
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

// Remove deletes objects in the reverse of the order in which they are applied. What is gone already is no error.
func (c *Cluster) Remove(ctx context.Context, objects []*unstructured.Unstructured) error {
	for i := len(objects) - 1; i >= 0; i-- {
		err := Settled(ctx, func(ctx context.Context) error {
			return c.Delete(ctx, objects[i].DeepCopy(), client.PropagationPolicy("Background"))
		})
		if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return fmt.Errorf("%s: deleting %s: %w", c.Name, Title(objects[i]), err)
		}
	}
	return nil
}

// Gone waits until an object that was deleted is not there any more.
func (c *Cluster) Gone(ctx context.Context, o *unstructured.Unstructured) error {
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(o.GroupVersionKind())
	err := Until(ctx, settle, func(ctx context.Context) (bool, string, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), there)
		return apierrors.IsNotFound(err) || meta.IsNoMatchError(err), "it is still there", err
	})
	if err != nil {
		return fmt.Errorf("%s: %s is being deleted, and does not go: %w; kubectl get it with -o yaml tells what it waits for", c.Name, Title(o), err)
	}
	return nil
}

// Title is an object as kubectl names it.
func Title(o client.Object) string {
	name := o.GetName()
	if ns := o.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return o.GetObjectKind().GroupVersionKind().Kind + " " + name
}

// Right is one verb on one resource.
type Right struct {
	Verb, Group, Resource, Namespace, Name string
}

// Texts are rights as an admin reads them: the verbs of one resource together.
func Texts(rights []Right) (out []string) {
	var verbs []string
	for i, r := range rights {
		verbs = append(verbs, r.Verb)
		if i+1 < len(rights) && rights[i+1].on() == r.on() {
			continue
		}
		out = append(out, strings.Join(verbs, "/")+" "+r.on())
		verbs = nil
	}
	return out
}

// on is what a right is to.
func (r Right) on() string {
	s, sub, is := strings.Cut(r.Resource, "/")
	if r.Group != "" {
		s += "." + r.Group
	}
	if is {
		s += "/" + sub
	}
	if r.Name != "" {
		s += " " + r.Name
	}
	if r.Namespace != "" {
		s += " in " + r.Namespace
	}
	return s
}

func (r Right) attributes() *authorizationv1.ResourceAttributes {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	return &authorizationv1.ResourceAttributes{Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: sub, Namespace: r.Namespace, Name: r.Name}
}

// RightsToApply are those that Apply needs for objects.
func RightsToApply(objects []*unstructured.Unstructured, verbs ...string) (out []Right) {
	seen := map[Right]bool{}
	for _, o := range objects {
		plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		for _, verb := range verbs {
			r := Right{Verb: verb, Group: plural.Group, Resource: plural.Resource, Namespace: o.GetNamespace()}
			if !seen[r] {
				seen[r] = true
				out = append(out, r)
			}
		}
	}
	return out
}

// Lacking are those of rights that the one who asks does not have. It asks for all of them at once.
func (c *Cluster) Lacking(ctx context.Context, rights []Right) ([]Right, error) {
	return c.lacking(ctx, rights, func(ctx context.Context, r Right) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: r.attributes()}}
		err := c.Create(ctx, review)
		return review.Status.Allowed, err
	})
}

// LackingOf are those of rights that a ServiceAccount does not have.
func (c *Cluster) LackingOf(ctx context.Context, namespace, account string, rights []Right) ([]Right, error) {
	return c.lacking(ctx, rights, func(ctx context.Context, r Right) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: r.attributes(), User: "system:serviceaccount:" + namespace + ":" + account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		}}
		err := c.Create(ctx, review)
		return review.Status.Allowed, err
	})
}

func (c *Cluster) lacking(ctx context.Context, rights []Right, ask func(context.Context, Right) (bool, error)) (out []Right, err error) {
	allowed := make([]bool, len(rights))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(8)
	for i, r := range rights {
		all.Go(func() (err error) {
			allowed[i], err = ask(ctx, r)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, fmt.Errorf("%s: asking for rights: %w", c.Name, err)
	}
	for i, r := range rights {
		if !allowed[i] {
			out = append(out, r)
		}
	}
	return out, nil
}
