package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Right is one verb on one resource.
type Right = authorizationv1.ResourceAttributes

// RightTo returns the right to a verb on an object. For create it has no name: a role cannot limit creation to one.
func RightTo(verb string, o client.Object) Right {
	plural, _ := meta.UnsafeGuessKindToResource(kindOf(o))
	r := Right{Verb: verb, Group: plural.Group, Resource: plural.Resource, Namespace: o.GetNamespace()}
	if verb != "create" {
		r.Name = o.GetName()
	}
	return r
}

// text returns a right in words.
func text(r *Right) string {
	of := schema.GroupResource{Group: r.Group, Resource: strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")}
	out := r.Verb + " " + strings.TrimSpace(of.String()+" "+r.Name)
	if r.Namespace != "" {
		out += " in " + r.Namespace
	}
	return out
}

// Writes are what a command will write: objects that it applies or, if they exist, deletes, and what else it needs.
type Writes struct {
	Apply, Delete []*unstructured.Unstructured
	Rights        []Right
}

// Allowed returns an error that names the first right that the user lacks. Call it before anything is written. An admin
// of the namespace, or of the cluster for "", lacks none. What is applied is tried in a dry run, because access reviews
// ignore escalation. Reviews are for the rest: objects whose dry run fails for another reason, as in a namespace that
// does not exist yet or is being deleted, and deletions, which a policy may allow only later.
func (c *Cluster) Allowed(ctx context.Context, namespace string, w Writes) error {
	admin, err := may(ctx, c, Right{Verb: "*", Group: "*", Resource: "*", Namespace: namespace})
	if err != nil || admin {
		return err
	}
	var lacking []error
	rights := slices.Clone(w.Rights)
	for _, o := range w.Apply {
		if err := c.rehearse(ctx, o); apierrors.IsForbidden(err) && !ending(err) {
			lacking = append(lacking, c.Failed(err, "applying %s", Title(o)))
		} else if err != nil {
			rights = append(rights, RightTo("create", o), RightTo("patch", o))
		}
	}
	for _, o := range w.Delete {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopy())
		if apierrors.IsForbidden(err) {
			lacking = append(lacking, c.Failed(err, "reading %s", Title(o)))
		} else if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			rights = append(rights, RightTo("delete", o))
		}
	}
	for i := range rights {
		if ok, err := may(ctx, c, rights[i]); err != nil {
			return err
		} else if !ok {
			lacking = append(lacking, fmt.Errorf("you cannot %s", text(&rights[i])))
		}
	}
	switch n := len(lacking); n {
	case 0:
		return nil
	case 1:
		err = lacking[0]
	default:
		err = fmt.Errorf("%w, and %d more", lacking[0], n-1)
	}
	return report.Fail("run the command as a cluster admin", "you lack rights on %s, and nothing was written: %w",
		c.Name, err)
}

// ending reports whether the namespace is being deleted. The API server calls that Forbidden as well.
func ending(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }

// may reports whether the user has a right.
func may(ctx context.Context, c *Cluster, r Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{}
	review.Spec.ResourceAttributes = &r
	err := c.Create(ctx, review)
	return review.Status.Allowed, c.Failed(err, "checking rights")
}
