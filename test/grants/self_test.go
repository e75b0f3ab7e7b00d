package grants

import (
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
)

const west = "system:serviceaccount:clusterset:mcs-west"

// TestTheComparisonSeesEveryDifference: a verb, a name, a namespace, a subresource, an account or a cluster more or
// less.
func TestTheComparisonSeesEveryDifference(t *testing.T) {
	to := grant{cluster: "hub", user: west, namespace: "clusterset"}
	grants := slices.Concat(
		to.each(
			rbacv1.PolicyRule{
				APIGroups: []string{"g"},
				Resources: []string{"things"},
				Verbs:     []string{"get", "update"},
			},
		),
		to.each(
			rbacv1.PolicyRule{
				APIGroups:     []string{"g"},
				Resources:     []string{"things/status"},
				ResourceNames: []string{"one"},
				Verbs:         []string{"update"},
			},
		),
	)
	ask := func(change func(*request)) request {
		r := request{
			cluster:   "hub",
			user:      west,
			verb:      "get",
			group:     "g",
			resource:  "things",
			namespace: "clusterset",
			name:      "one",
			code:      200,
		}
		change(&r)
		return r
	}
	all := []request{
		ask(func(*request) {}),
		ask(func(r *request) { r.verb = "update" }),
		ask(func(r *request) { r.verb, r.resource = "update", "things/status" }),
	}
	if got := unused(grants, all); len(got) > 0 {
		t.Errorf("all are used, and not so %q", got)
	}
	for what, other := range map[string]func(*request){
		"verb":        func(r *request) { r.verb = "patch" },
		"group":       func(r *request) { r.group = "h" },
		"subresource": func(r *request) { r.resource = "things/scale" },
		"namespace":   func(r *request) { r.namespace = "blue" },
		"name":        func(r *request) { r.name = "two" },
		"account":     func(r *request) { r.user += "er" },
		"cluster":     func(r *request) { r.cluster = "a" },
		"refusal":     func(r *request) { r.refused = true },
	} {
		last := all[2]
		other(&last)
		if got := unused(
			grants,
			[]request{all[0], all[1], last},
		); len(got) != 1 ||
			got[0] != "hub: clusterset:mcs-ID may update things/status.g one in clusterset" {
			t.Errorf("with another %s, unused are %q", what, got)
		}
	}
	wide := to.each(
		rbacv1.PolicyRule{
			APIGroups: []string{"g"},
			Resources: []string{"things/status"},
			Verbs:     []string{"update"},
		},
	)
	if got := twice(append(wide, grants...)); len(got) != 1 {
		t.Errorf("given twice are %q, want one", got)
	}
}

// TestOnlyAMemberThatIsOutMayBeRefused, on the hub, until it is in again and the API server knows.
func TestOnlyAMemberThatIsOutMayBeRefused(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	binding := func(seconds int, verb string) request {
		return request{
			cluster:   "hub",
			at:        at(seconds),
			user:      "admin",
			verb:      verb,
			group:     rbacv1.GroupName,
			resource:  "rolebindings",
			namespace: "clusterset",
			name:      "mcs-west",
			code:      200,
		}
	}
	grants := []grant{{cluster: "hub", user: west}, {cluster: "a", user: west}}
	for _, c := range []struct {
		cluster string
		second  int
		right   bool
	}{
		{"hub", 50, false}, {"hub", 150, true}, {"a", 150, false}, {"hub", 205, true}, {"hub", 219, true},
		{"hub", 221, false}, {"hub", 350, true},
	} {
		r := request{
			cluster:  c.cluster,
			at:       at(c.second),
			user:     west,
			verb:     "get",
			resource: "things",
			code:     403,
			refused:  true,
		}
		got := refused(
			grants,
			[]request{
				binding(10, "patch"),
				binding(100, "delete"),
				{cluster: "hub", at: at(150), user: west, verb: "create", code: 201},
				binding(200, "patch"),
				{cluster: "hub", at: at(220), user: west, verb: "get", namespace: "clusterset", code: 200},
				binding(300, "delete"),
				r,
			},
		)
		if right := len(got) == 0; right != c.right {
			t.Errorf("refused in %s at %d s: right is %v, want %v", c.cluster, c.second, right, c.right)
		}
	}
	if got := refused(
		grants,
		[]request{{cluster: "hub", user: "system:serviceaccount:default:default", refused: true}},
	); len(got) > 0 {
		t.Errorf("others are none of this: %q", got)
	}
}
