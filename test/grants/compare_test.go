package grants

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// grant is one verb on one resource that a binding gives a ServiceAccount.
type grant struct {
	cluster, user         string
	namespace             string // "": all
	group, resource, verb string
	name                  string // "": all
}

// allows reports whether r needs no other grant.
func (g grant) allows(r request) bool {
	return g.cluster == r.cluster && g.user == r.user && g.verb == r.verb && g.group == r.group &&
		g.resource == r.resource &&
		(g.namespace == "" || g.namespace == r.namespace) &&
		(g.name == "" || g.name == r.name)
}

// right is a grant as the manifests give it, to every member alike.
func (g grant) right() string {
	where, user := g.cluster, strings.TrimPrefix(g.user, "system:serviceaccount:")
	if where != "hub" {
		where = "member"
	}
	of := func(s string) string {
		if strings.HasPrefix(s, clusterset.AccountPrefix) {
			return clusterset.AccountPrefix + "ID"
		}
		return s
	}
	ns, name, _ := strings.Cut(user, ":")
	out := fmt.Sprintf("%s: %s:%s may %s %s", where, ns, of(name), g.verb, dotted(g.resource, g.group))
	if g.name != "" {
		out += " " + of(g.name)
	}
	if g.namespace != "" {
		out += " in " + g.namespace
	}
	return out
}

// granted is what RBAC gives to ServiceAccounts by name, in one cluster; to whom is not asked for is left out.
func granted(
	ctx context.Context,
	cluster string,
	api client.Client,
	wanted func(namespace, name string) bool,
) (out []grant, err error) {
	var wide rbacv1.ClusterRoleBindingList
	var namespaced rbacv1.RoleBindingList
	if err := api.List(ctx, &wide); err != nil {
		return nil, err
	}
	if err := api.List(ctx, &namespaced); err != nil {
		return nil, err
	}
	bindings := namespaced.Items
	for _, b := range wide.Items {
		bindings = append(
			bindings,
			rbacv1.RoleBinding{ObjectMeta: b.ObjectMeta, RoleRef: b.RoleRef, Subjects: b.Subjects},
		)
	}
	for _, b := range bindings {
		for _, s := range b.Subjects {
			if s.Kind != rbacv1.ServiceAccountKind || !wanted(s.Namespace, s.Name) {
				continue
			}
			rules, err := rulesOf(ctx, api, b)
			if err != nil {
				return nil, err
			}
			to := grant{
				cluster:   cluster,
				user:      "system:serviceaccount:" + s.Namespace + ":" + s.Name,
				namespace: b.Namespace,
			}
			for _, rule := range rules {
				out = append(out, to.each(rule)...)
			}
		}
	}
	return out, nil
}

func rulesOf(ctx context.Context, api client.Client, b rbacv1.RoleBinding) ([]rbacv1.PolicyRule, error) {
	if b.RoleRef.Kind == "ClusterRole" {
		var role rbacv1.ClusterRole
		err := api.Get(ctx, client.ObjectKey{Name: b.RoleRef.Name}, &role)
		return role.Rules, err
	}
	var role rbacv1.Role
	err := api.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.RoleRef.Name}, &role)
	return role.Rules, err
}

// each takes a rule apart. A wildcard or a URL is a grant that no request is found for.
func (g grant) each(rule rbacv1.PolicyRule) (out []grant) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, g.verb = range rule.Verbs {
		for _, g.resource = range rule.NonResourceURLs {
			out = append(out, g)
		}
		for _, g.group = range rule.APIGroups {
			for _, g.resource = range rule.Resources {
				for _, g.name = range names {
					out = append(out, g)
				}
			}
		}
	}
	return out
}

// unused are the rights that no request needed, in any cluster.
func unused(grants []grant, requests []request) (out []string) {
	used := map[string]bool{}
	for _, g := range grants {
		used[g.right()] = used[g.right()] ||
			slices.ContainsFunc(requests, func(r request) bool { return !r.refused && g.allows(r) })
	}
	for right, ok := range used {
		if !ok {
			out = append(out, right)
		}
	}
	slices.Sort(out)
	return out
}

// twice are the rights that another one of the same account includes.
func twice(grants []grant) (out []string) {
	for i, g := range grants {
		as := request{
			cluster:   g.cluster,
			user:      g.user,
			verb:      g.verb,
			group:     g.group,
			resource:  g.resource,
			namespace: g.namespace,
			name:      g.name,
		}
		for j, other := range grants {
			if i != j && other.allows(as) {
				out = append(out, g.right()+", and again: "+other.right())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// refused are the requests of the accounts that hold grants that the authorizer refused, but for those of a member
// that was out just then.
func refused(grants []grant, requests []request) (out []string) {
	accounts := map[[2]string]bool{}
	for _, g := range grants {
		accounts[[2]string{g.cluster, g.user}] = true
	}
	away := absences(requests)
	for _, r := range requests {
		if !r.refused || !accounts[[2]string{r.cluster, r.user}] {
			continue
		}
		if !slices.ContainsFunc(away[r.user], func(a absence) bool { return r.cluster == "hub" && a.holds(r.at) }) {
			out = append(out, r.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// absence is the time in which a ServiceAccount's RoleBinding was gone; to is zero while it lasts. given means that it
// is written again.
type absence struct {
	from, to time.Time
	given    bool
}

func (a absence) holds(t time.Time) bool {
	return t.After(a.from) && (a.to.IsZero() || t.Before(a.to))
}

// absences are those of members on the hub, in the order of requests: from the hub's deletion of what deploy/hub/member
// gave until it is given again and the API server, which learns that by its own watch, allows something in that
// namespace.
func absences(requests []request) map[string][]absence {
	out := map[string][]absence{}
	for _, r := range requests {
		if last := len(out[r.user]) - 1; r.cluster == "hub" && r.namespace != "" && !r.refused && last >= 0 &&
			out[r.user][last].given && out[r.user][last].to.IsZero() {
			out[r.user][last].to = r.at
		}
		if r.cluster != "hub" || r.group != rbacv1.GroupName || r.resource != "rolebindings" || r.code >= 300 ||
			!strings.HasPrefix(r.name, clusterset.AccountPrefix) {
			continue
		}
		user := "system:serviceaccount:" + r.namespace + ":" + r.name
		all := out[user]
		open := len(all) > 0 && all[len(all)-1].to.IsZero()
		switch {
		case r.verb == "delete" && !open:
			out[user] = append(all, absence{from: r.at})
		case (r.verb == "create" || r.verb == "patch") && open:
			all[len(all)-1].given = true
		}
	}
	return out
}
