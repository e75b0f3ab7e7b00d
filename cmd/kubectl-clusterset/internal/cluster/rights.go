package cluster

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Right is one verb on one resource.
type Right = authorizationv1.ResourceAttributes

// texts returns rights in words, the verbs of one resource together.
func texts(rights []Right) (out []string) {
	var verbs []string
	for i := range rights {
		verbs = append(verbs, rights[i].Verb)
		of := resource(&rights[i])
		if i+1 < len(rights) && resource(&rights[i+1]) == of {
			continue
		}
		out = append(out, strings.Join(verbs, "/")+" "+of)
		verbs = nil
	}
	return out
}

// resource returns what a right is to, in words.
func resource(r *Right) string {
	s := schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	if r.Namespace != "" {
		s += " in " + r.Namespace
	}
	return s
}

// RightsTo returns the rights to these verbs on objects.
func RightsTo(objects []*unstructured.Unstructured, verbs ...string) (out []Right) {
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

// Allowed returns an error if the user lacks rights. Call it before anything is written.
func (c *Cluster) Allowed(ctx context.Context, rights []Right) error {
	allowed := make([]bool, len(rights))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(8)
	for i, r := range rights {
		all.Go(func() error {
			review := &authorizationv1.SelfSubjectAccessReview{}
			review.Spec.ResourceAttributes = &r
			err := c.Create(ctx, review)
			allowed[i] = review.Status.Allowed
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return c.Failed(err, "checking rights")
	}
	var lacking []Right
	for i, r := range rights {
		if !allowed[i] {
			lacking = append(lacking, r)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	says := texts(lacking)
	if n := len(says); n > 6 {
		says = append(says[:6], fmt.Sprintf("and %d more", n-6))
	}
	return report.Fail("run the command as a cluster admin", "you lack rights on %s, and nothing was written: %s",
		c.Name, strings.Join(says, ", "))
}
