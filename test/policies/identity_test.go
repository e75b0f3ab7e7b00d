package policies

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// member makes the cluster a member, by its id and its clusterset, until the test ends.
func (e *environment) member(t *testing.T, id, set string) (idProperty, setProperty *aboutv1beta1.ClusterProperty) {
	t.Helper()
	idProperty, setProperty = property(clusterset.PropertyID, id), property(clusterset.PropertySet, set)
	must(t, e.admin.Create(t.Context(), idProperty))
	t.Cleanup(func() { e.leave(t) })
	// The policies' parameters come to the API server as events.
	must(t, until(t.Context(), func() error { return e.admin.Create(t.Context(), setProperty) }))
	must(t, until(t.Context(), func() error {
		if err := e.admin.Delete(
			t.Context(),
			idProperty.DeepCopy(),
			client.DryRunAll,
		); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the API server does not know of the membership yet: %v", err)
		}
		return nil
	}))
	return idProperty, setProperty
}

// leave takes both properties away, as an admin whose agent is gone, and returns when the policies know.
func (e *environment) leave(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	set := property(clusterset.PropertySet, "")
	say := client.RawPatch(
		types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"force"}}}`, clusterset.AnnotationLeaving),
	)
	must(t, client.IgnoreNotFound(e.admin.Patch(ctx, set, say)))
	must(t, client.IgnoreNotFound(e.admin.Delete(ctx, set)))
	must(
		t,
		until(
			ctx,
			func() error { return client.IgnoreNotFound(e.admin.Delete(ctx, property(clusterset.PropertyID, ""))) },
		),
	)
	must(t, until(ctx, func() error { // by events, as of its creation
		if err := e.admin.Create(
			ctx,
			property(clusterset.PropertySet, home),
			client.DryRunAll,
		); err == nil ||
			!strings.Contains(err.Error(), idFirst) {
			return fmt.Errorf("the API server still knows the id: %v", err)
		}
		return nil
	}))
}

// idFirst is what the refusal of a membership without an id names.
const idFirst = "create-clusterproperty-cluster.clusterset.k8s.io-first"

// ID1, ID3: what is no cluster id is refused, and says what is one.
func TestID3BadIDIsRefused(t *testing.T) {
	e := setUp(t)
	long := strings.Repeat("x", 64)
	for _, id := range []string{"East", "a_b", "-a", "a-", "a.", ".a", "a..b", "a.b.c", "a b", "ä", long,
		long[:32] + "." + long[:32], strings.Repeat("y", 1000)} {
		refused(
			t,
			e.admin.Create(t.Context(), property(clusterset.PropertyID, id), client.DryRunAll),
			"is no cluster id: use one DNS label",
		)
	}
	for _, id := range []string{"a", "7", "east-1", "x.b", long[:63], long[:31] + "." + long[:31],
		"3f0ddb4e-7a4c-4c5e-9f0d-3a1c5a2b7c11"} {
		if err := e.admin.Create(t.Context(), property(clusterset.PropertyID, id), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if err := clusterset.CheckID(id); err != nil {
			t.Errorf("the policy takes it and the agent does not: %v", err)
		}
	}
	refused(t, e.admin.Create(t.Context(), property(clusterset.PropertyID, ""), client.DryRunAll), "spec.value")
}

// ID1: v1alpha1 is served, and refused alike.
func TestID1BothVersionsAreServed(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	old := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "about.k8s.io/v1alpha1",
		"kind":       "ClusterProperty",
		"metadata": map[string]any{
			"name": "fingerprint.example.com",
		},
		"spec": map[string]any{"value": strings.Repeat("é", 128_000)},
	}}
	must(t, e.admin.Create(ctx, old))
	t.Cleanup(func() { must(t, e.admin.Delete(context.WithoutCancel(ctx), old)) })
	var got aboutv1beta1.ClusterProperty
	must(t, e.admin.Get(ctx, client.ObjectKey{Name: old.GetName()}, &got))
	if n := len([]rune(got.Spec.Value)); n != 128_000 {
		t.Errorf("v1beta1 shows %d characters of 128000", n)
	}
	refused(
		t,
		e.admin.Create(ctx, property("longer.example.com", strings.Repeat("é", 128_001)), client.DryRunAll),
		"may not be more than 128000",
	)
	bad := old.DeepCopy()
	bad.SetName(clusterset.PropertyID)
	must(t, unstructured.SetNestedField(bad.Object, "NO_ID", "spec", "value"))
	refused(t, e.admin.Create(ctx, bad, client.DryRunAll), "is no cluster id")
	text, err := e.cp.Kubectl(ctx, "", "get", "multicluster", "-o", "name")
	must(t, err)
	if !strings.Contains(text, "clusterproperty.about.k8s.io/fingerprint.example.com") {
		t.Errorf("kubectl get multicluster does not show it:\n%s", text)
	}
}

// ID2: the id can change, until this cluster is a member.
func TestID2IDIsFrozenWhileAMember(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	free := property(clusterset.PropertyID, "before")
	must(t, e.admin.Create(ctx, free))
	free.Spec.Value = "after"
	must(t, e.admin.Update(ctx, free))
	must(t, e.admin.Delete(ctx, free))

	id, _ := e.member(t, "east", home)
	says := "this cluster is a member of clusterset clusterset as east, and keeps that id until it has left: " +
		"kubectl clusterset leave"
	changed := id.DeepCopy()
	changed.Spec.Value = "west"
	refused(t, e.admin.Update(ctx, changed), says)
	refused(
		t,
		e.admin.Patch(
			ctx,
			id.DeepCopy(),
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"west"}}`)),
		),
		says,
	)
	refused(t, e.admin.Delete(ctx, id.DeepCopy()), says)
	refused(t, e.admin.DeleteAllOf(ctx, &aboutv1beta1.ClusterProperty{}), "until it has left")
	refused(t, e.asAgent(t).Delete(ctx, id.DeepCopy()), says)
	must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(id), id))
	id.Annotations = map[string]string{"example.org/any": "thing"}
	must(t, e.admin.Update(ctx, id))

	e.leave(t)
	must(t, client.IgnoreAlreadyExists(e.admin.Create(ctx, property(clusterset.PropertyID, "west"))))
}

// ID2, ID3: no membership without an id, nor with what is none.
func TestID3NoMembershipWithoutAnID(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	for _, c := range []client.Client{e.admin, e.asAgent(t)} {
		refused(t, c.Create(ctx, property(clusterset.PropertySet, home)), idFirst)
	}
}

// ID2: membership neither changes nor ends by a slip.
func TestID2MembershipEndsByLeaving(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	_, set := e.member(t, "east", home)
	for _, c := range []client.Client{e.admin, e.asAgent(t)} {
		changed := set.DeepCopy()
		changed.Spec.Value = other
		refused(
			t,
			c.Update(ctx, changed),
			"this cluster is a member of clusterset clusterset and cannot become one of blue before it has left: "+
				"kubectl clusterset leave",
		)
	}
	says := "this cluster is a member of clusterset clusterset: kubectl clusterset leave; if its agent no longer " +
		"exists: kubectl annotate"
	refused(t, e.admin.Delete(ctx, set.DeepCopy()), says)
	set.Annotations = map[string]string{clusterset.AnnotationLeaving: ""}
	must(t, e.admin.Update(ctx, set))
	refused(t, e.admin.Delete(ctx, set.DeepCopy()), says)
	set.Annotations = map[string]string{clusterset.AnnotationLeaving: "true"}
	must(t, e.admin.Update(ctx, set))
	must(t, e.admin.Delete(ctx, set))
}

// ID2: the agent ends it, having cleaned up.
func TestID2AgentEndsMembership(t *testing.T) {
	e := setUp(t)
	_, set := e.member(t, "east", home)
	must(t, e.asAgent(t).Delete(t.Context(), set))
}

// ID4: the id may be used again after leaving, in another clusterset too.
func TestID4IDIsUsedAgain(t *testing.T) {
	e := setUp(t)
	for _, set := range []string{home, other} {
		e.member(t, "east", set)
		e.leave(t)
	}
}

// ID5: the other properties are the user's.
func TestID5OtherPropertiesAreTheUsers(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	e.member(t, "east", home)
	for _, name := range []string{"fingerprint", "fingerprint.example.com", "cluster.clusterset.k8s.io.example.com"} {
		p := property(name, "NO_ID")
		must(t, e.admin.Create(ctx, p))
		p.Spec.Value = "still none"
		must(t, e.admin.Update(ctx, p))
		must(t, e.admin.Delete(ctx, p))
	}
}

// asAgent is the agent with every right: what is refused to it, the policies refuse.
func (e *environment) asAgent(t *testing.T) client.Client {
	t.Helper()
	config, err := e.cp.RESTConfig()
	must(t, err)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + system + ":clusterset-controller",
		Groups:   []string{"system:masters"},
	}
	c, err := client.New(config, client.Options{Scheme: e.admin.Scheme()})
	must(t, err)
	return c
}
