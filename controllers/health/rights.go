package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rules returns the rules of the Roles and ClusterRoles with these names in the files of manifests.
func Rules(manifests fs.FS, path string, names ...string) (out []rbacv1.PolicyRule, err error) {
	text, err := fs.ReadFile(manifests, path)
	if err != nil {
		return nil, err
	}
	objects := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole // has the fields of a Role
		if err := objects.Decode(&role); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if strings.HasSuffix(role.Kind, "Role") && slices.Contains(names, role.Name) {
			out = append(out, role.Rules...)
		}
	}
}

// Missing returns which of the wanted rules whoever c authenticates as lacks in namespace, such as "create services".
// An authorizer by webhook, as EKS and GKE have one, lists none of its rules: where the list is not complete, the API
// server is asked about each right that it does not list. With an error, there may be more.
func Missing(ctx context.Context, c client.Client, namespace string, wanted []rbacv1.PolicyRule) ([]string, error) {
	review := &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}
	if err := c.Create(ctx, review); err != nil {
		return nil, err
	}
	var out []string
	for _, rule := range wanted {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				var verbs []string
				for _, verb := range rule.Verbs {
					has := allowed(review.Status.ResourceRules, group, resource, rule.ResourceNames, verb)
					if !has && review.Status.Incomplete {
						var err error
						if has, err = may(ctx, c, namespace, group, resource, rule.ResourceNames, verb); err != nil {
							return out, err
						}
					}
					if !has {
						verbs = append(verbs, verb)
					}
				}
				if len(verbs) > 0 {
					out = append(out, strings.Join(verbs, "/")+" "+resource)
				}
			}
		}
	}
	return out, nil
}

// may asks about one verb, for all of names, or without names for all objects.
func may(ctx context.Context, c client.Client, namespace, group, resource string, names []string, verb string) (
	bool, error,
) {
	if len(names) == 0 {
		names = []string{""}
	}
	kind, sub, _ := strings.Cut(resource, "/")
	for _, name := range names {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: group, Resource: kind, Subresource: sub, Name: name,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return false, err
		}
		if !review.Status.Allowed {
			if failed := review.Status.EvaluationError; failed != "" {
				return false, fmt.Errorf("%s %s: %s", verb, resource, failed)
			}
			return false, nil
		}
	}
	return true, nil
}

// allowed returns whether one of the rules allows a verb for all of names, or without names for all objects.
func allowed(rules []authorizationv1.ResourceRule, group, resource string, names []string, verb string) bool {
	has := func(list []string, item string) bool {
		return slices.Contains(list, item) || slices.Contains(list, "*")
	}
	for _, r := range rules {
		named := len(r.ResourceNames) == 0
		if !named && len(names) > 0 {
			named = !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(r.ResourceNames, n) })
		}
		_, sub, _ := strings.Cut(resource, "/")
		if named && has(r.APIGroups, group) && has(r.Verbs, verb) &&
			(has(r.Resources, resource) || sub != "" && slices.Contains(r.Resources, "*/"+sub)) {
			return true
		}
	}
	return false
}
