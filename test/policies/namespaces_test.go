package policies

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

var byDefault = hubv1alpha1.NamespaceRules{Deny: clusterset.DefaultDeny}

// recordsOf are a valid record of each kind for a namespace.
func recordsOf(id, namespace string) []client.Object {
	export, endpoints := exportRecord(id, "web"), endpointPage(id, "web")
	export.Name, endpoints.Name = clusterset.RecordName(
		"web",
		namespace,
		id,
	), clusterset.PageName(
		7,
		"web",
		namespace,
		id,
	)
	export.Spec.ServiceNamespace, endpoints.Spec.ServiceNamespace = namespace, namespace
	return []client.Object{export, endpoints}
}

// TestS5MembersPublishNothingOfExcludedNamespaces, and withdraw and delete what they published before.
func TestS5MembersPublishNothingOfExcludedNamespaces(t *testing.T) {
	e := setUp(t)
	ctx, m := t.Context(), e.mighty["m"]
	const denies = "ClusterSet clusterset denies namespace "
	t.Cleanup(func() { e.setRules(t, hubv1alpha1.NamespaceRules{}) })
	for _, record := range recordsOf("m", "kube-system") {
		refused(t, m.Create(ctx, record.DeepCopyObject().(client.Object)), denies+"kube-system")
		refused(t, e.members["a"].Create(ctx, recordsOf("a", "clusterset-system")[0]), denies+"clusterset-system")

		e.exclude(t, hubv1alpha1.NamespaceRules{Deny: []string{"bank"}})
		must(t, m.Create(ctx, record))
		e.exclude(t, byDefault)
		originOf(record).Revision = 2
		refused(t, m.Update(ctx, record.DeepCopyObject().(client.Object)), denies+"kube-system")
		if export, ok := record.(*hubv1alpha1.ServiceExportRecord); ok {
			export.Spec.Withdrawn = true
			must(t, m.Update(ctx, export))
		}
		must(t, m.Delete(ctx, record))
	}
}

// TestF5MembersPublishNoLoadBalancerThatIsForbidden, and drop or withdraw what they published before.
func TestF5MembersPublishNoLoadBalancerThatIsForbidden(t *testing.T) {
	e := setUp(t)
	ctx, m := t.Context(), e.mighty["m"]
	rule := func(rule hubv1alpha1.ExternalNames) {
		t.Helper()
		e.setClusterSet(t, func(set *hubv1alpha1.ClusterSet) { set.Spec.ExternalNames = rule })
	}
	t.Cleanup(func() { rule(hubv1alpha1.ExternalNamesAllow) })
	record := exportRecord("m", "balanced")
	record.Spec.External = &hubv1alpha1.ExternalAddresses{IPs: []string{"192.0.2.1"}}
	must(t, m.Create(ctx, record))
	if w := record.Spec.External.Weight; w == nil || *w != 100 {
		t.Errorf("the default weight is %v", w)
	}
	rule(hubv1alpha1.ExternalNamesForbid)
	const forbids = "ClusterSet clusterset forbids external names"
	must(t, until(ctx, func() error {
		forged := exportRecord("a", "balanced")
		forged.Spec.External = record.Spec.External
		err := e.members["a"].Create(ctx, forged, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), forbids) {
			return fmt.Errorf("the policy does not follow the ClusterSet: %w", err)
		}
		return nil
	}))
	record.Spec.Revision++
	refused(t, m.Update(ctx, record.DeepCopy()), forbids)
	record.Spec.External = nil
	must(t, m.Update(ctx, record))
	must(t, m.Delete(ctx, record))
}

// TestS5AServerThatDoesNotFindClusterSetsTakesRecords: one that has just started may not find the kind for half a
// minute. As long as the policy cannot be evaluated, members publish all the same: agents follow the same rules.
func TestS5AServerThatDoesNotFindClusterSetsTakesRecords(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	shipped, err := os.ReadFile("../../deploy/hub/namespaces.yaml")
	must(t, err)
	missing := strings.ReplaceAll(string(shipped), "kind: ClusterSet", "kind: Unserved")
	named := func(name string) string {
		return strings.ReplaceAll(missing, "clusterset-namespaces.clusterset-dns.io", name)
	}
	strict := regexp.MustCompile("failurePolicy: .*").ReplaceAllString(named("strict"), "failurePolicy: Fail")
	publish := func() error { return e.members["a"].Create(ctx, recordsOf("a", "shop")[0], client.DryRunAll) }
	remove := func(name string) {
		_, err := e.cp.Kubectl(context.WithoutCancel(ctx), "", "delete", "--ignore-not-found",
			"validatingadmissionpolicies,validatingadmissionpolicybindings", name)
		must(t, err)
	}
	t.Cleanup(func() { remove("strict"); remove("shipped") })
	must(t, e.cp.Apply(ctx, named("shipped")))
	must(t, e.cp.Apply(ctx, strict))
	must(t, until(ctx, func() error {
		if err := publish(); err == nil || !strings.Contains(err.Error(), "'strict'") {
			return fmt.Errorf("the server does not read the policies: %w", err)
		}
		return nil
	}))
	remove("strict")
	must(t, until(ctx, func() error {
		err := publish()
		if err == nil || strings.Contains(err.Error(), "'strict'") {
			return err
		}
		t.Errorf("refused: %v", err)
		return nil
	}))
}

// exclude sets the rules of the ClusterSet, and waits until the policy follows them: it denies one more name, which no
// other rules match.
func (e *environment) exclude(t *testing.T, rules hubv1alpha1.NamespaceRules) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	e.changes++
	marker := fmt.Sprintf("z%d", e.changes)
	rules.Allow, rules.Deny = slices.Clone(rules.Allow), append(slices.Clone(rules.Deny), marker)
	if len(rules.Allow) > 0 {
		rules.Allow = append(rules.Allow, marker)
	}
	e.setRules(t, rules)
	must(t, until(ctx, func() error {
		err := e.members["a"].Create(ctx, recordsOf("a", marker)[0], client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "denies namespace "+marker) {
			return fmt.Errorf("the policy does not follow the ClusterSet: %w", err)
		}
		return nil
	}))
}

// setRules writes the rules; zero ones are the defaults of the CRD.
func (e *environment) setRules(t *testing.T, rules hubv1alpha1.NamespaceRules) {
	t.Helper()
	e.setClusterSet(t, func(set *hubv1alpha1.ClusterSet) { set.Spec.Namespaces = rules })
}

func (e *environment) setClusterSet(t *testing.T, edit func(*hubv1alpha1.ClusterSet)) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	must(t, until(ctx, func() error {
		set := &hubv1alpha1.ClusterSet{}
		if err := e.admin.Get(ctx, client.ObjectKey{Namespace: home, Name: home}, set); err != nil {
			return err
		}
		edit(set)
		return e.admin.Update(ctx, set)
	}))
}

// TestS5CELAndGoAgree on random patterns and names, of letters that make matches likely.
func TestS5CELAndGoAgree(t *testing.T) {
	e := setUp(t)
	ctx, seed := t.Context(), rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	word := func(most int) (w string) {
		for range 1 + random.IntN(most) {
			w += string("ab-"[random.IntN(3)])
		}
		return w
	}
	list := func() (out []string) {
		for range random.IntN(3) {
			out = append(out, [...]string{word(3), word(3) + "*", "*" + word(3)}[random.IntN(3)])
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	t.Cleanup(func() { e.setRules(t, hubv1alpha1.NamespaceRules{}) })
	for range 30 {
		rules := hubv1alpha1.NamespaceRules{Allow: list(), Deny: list()}
		if random.IntN(8) == 0 {
			rules.Allow = append(rules.Allow, "*")
		}
		e.exclude(t, rules)
		if rules.Deny == nil {
			rules.Deny = []string{} // because of the name that exclude adds
		}
		for range 20 {
			name := "a" + word(4) + "b"
			err := e.members["a"].Create(ctx, recordsOf("a", name)[0], client.DryRunAll)
			if err != nil && !apierrors.IsForbidden(err) {
				t.Fatal(err)
			}
			if may := clusterset.MayUse(rules, name); may != (err == nil) {
				t.Fatal(fmt.Errorf("rules %+v, namespace %s: Go allows it: %v, CEL: %w", rules, name, may, err))
			}
		}
	}
}
