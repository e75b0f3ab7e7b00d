package membership

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

type silent struct{}

func (silent) Event(runtime.Object, string, string, string) {}

// TestP5AMembersPropertiesStayWithinItsHalfOfTheBudget: one that changes every ten seconds for an hour costs no
// more than that, and at its end the truth is told. What does not differ costs nothing.
func TestP5AMembersPropertiesStayWithinItsHalfOfTheBudget(t *testing.T) {
	w := newWorld(t)
	now := at
	set := &aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet},
		Spec:       aboutv1beta1.ClusterPropertySpec{Value: "blue"},
	}
	restless := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: "users.example.org"}}
	for _, p := range []*aboutv1beta1.ClusterProperty{set, restless} {
		if err := w.local.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	r := w.mirror(t, &now, new(bool))
	told := func() string {
		for _, p := range get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east").Status.Properties {
			if p.Name == restless.Name {
				return p.Value
			}
		}
		return ""
	}
	due, updates := now, 0
	look := func() {
		t.Helper()
		before := told()
		result, err := settle(t, r, &now)
		if err != nil {
			t.Fatal(err)
		}
		if told() != before {
			updates++
		}
		due = now.Add(result.RequeueAfter)
	}
	const changes = 360
	for i := range changes {
		now = at.Add(time.Duration(i) * 10 * time.Second)
		restless.Spec.Value = fmt.Sprint("value ", i)
		if err := w.local.Update(t.Context(), restless); err != nil {
			t.Fatal(err)
		}
		look()
	}
	if updates < 30 || updates > 3+30 {
		t.Errorf("%d updates in an hour, and one in two minutes is its share, after three at first", updates)
	}
	now = due
	look()
	if last := told(); last != fmt.Sprint("value ", changes-1) {
		t.Errorf("an hour of changes ends in %q, and the hub says %q", restless.Spec.Value, last)
	}
	calm := get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east").ResourceVersion
	now = now.Add(time.Hour)
	look()
	if got := get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east").ResourceVersion; got != calm {
		t.Error("nothing differs, and it is written")
	}
}

// mirror returns the reconciler of a member's ClusterProfile.
func (w *world) mirror(t *testing.T, now *time.Time, contested *bool) reconcile.Reconciler {
	return New(Config{
		Member: kube.Member{
			Cluster:      "east",
			HubNamespace: "blue",
			Local:        w.local,
			Hub:          func() client.Client { return w.hub },
			Events:       silent{},
			Now:          func() time.Time { return *now },
		},
		Version:   func(context.Context) (string, error) { return "v1.36.0", nil },
		Restart:   func(why string) { t.Fatal(why) },
		Contested: func() bool { return *contested },
	}).Reconciler
}

// settle makes a pass, and the one that writes what the first has found to differ.
func settle(t *testing.T, r reconcile.Reconciler, now *time.Time) (reconcile.Result, error) {
	t.Helper()
	result, err := r.Reconcile(t.Context(), reconcile.Request{})
	if err == nil && result.RequeueAfter == settling {
		*now = now.Add(settling)
		return r.Reconcile(t.Context(), reconcile.Request{})
	}
	return result, err
}

// TestP5PropertiesOfOneSecondAreOneWrite: a new member reports its ranges and then how many blocks it wants. Told one
// by one they would use up its budget, and its wish for a second block would wait for minutes.
func TestP5PropertiesOfOneSecondAreOneWrite(t *testing.T) {
	w, now := newWorld(t), at
	w.settled(t)
	r := w.mirror(t, &now, new(bool))
	written := func() string {
		return get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east").ResourceVersion
	}
	before := written()
	for i, name := range []string{"service-ranges.example.org", "blocks.example.org"} {
		if err := w.local.Create(t.Context(), &aboutv1beta1.ClusterProperty{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: aboutv1beta1.ClusterPropertySpec{Value: "x"},
		}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Duration(i) * settling / 2)
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil || written() != before {
			t.Errorf("written at once, %v", err)
		}
	}
	now = now.Add(settling / 2)
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil || written() == before {
		t.Errorf("after a second nothing is written, %v", err)
	}
	p := get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east")
	if names := fmt.Sprint(p.Status.Properties); !strings.Contains(names, "service-ranges.example.org") ||
		!strings.Contains(names, "blocks.example.org") {
		t.Errorf("written: %v", names)
	}
}

// TestID2ACloneWritesNoProperties: its original writes its own to the same ClusterProfile, and each would write again.
func TestID2ACloneWritesNoProperties(t *testing.T) {
	w, now := newWorld(t), at
	w.settled(t)
	contested := true
	r := w.mirror(t, &now, &contested)
	for _, c := range []struct {
		contested bool
		again     time.Duration
	}{{true, time.Minute}, {false, 0}} {
		contested = c.contested
		result, err := settle(t, r, &now)
		if err != nil || result.RequeueAfter != c.again {
			t.Errorf("contested %v: again in %v, want %v, %v", c.contested, result.RequeueAfter, c.again, err)
		}
		p := get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east")
		if written := len(p.Status.Properties) > 0; written == c.contested {
			t.Errorf("contested %v: it writes %+v", c.contested, p.Status)
		}
	}
}

// TestP3AnUpgradeOfTheControlPlaneIsReported, although no event follows it.
func TestP3AnUpgradeOfTheControlPlaneIsReported(t *testing.T) {
	w, now, version := newWorld(t), at, "v1.36.0"
	w.settled(t)
	r := w.mirror(t, &now, new(bool))
	r.(*reconciler).Version = func(context.Context) (string, error) { return version, nil }
	for range 2 { // the second finds nothing to write
		result, err := settle(t, r, &now)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(result.RequeueAfter)
	}
	version = "v1.37.0"
	if took := now.Sub(at); took < time.Minute || took > time.Hour {
		t.Fatalf("it looks again after %v", took)
	}
	if _, err := settle(t, r, &now); err != nil {
		t.Fatal(err)
	}
	p := get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east")
	if got := p.Status.Version.Kubernetes; got != version {
		t.Errorf("the hub has %s", got)
	}
}

// TestID3ARecreatedClaimIsUsed: a member that was evicted, and joined again while its agent ran, holds its id
// as before.
func TestID3ARecreatedClaimIsUsed(t *testing.T) {
	w, now := newWorld(t), at
	w.settled(t)
	w.drop(t)
	r := w.mirror(t, &now, new(bool))
	look := func() {
		t.Helper()
		if _, err := settle(t, r, &now); err != nil {
			t.Fatal(err)
		}
	}
	look()
	others := &inventoryv1alpha1.ClusterProfile{ObjectMeta: named("blue", "east")}
	others.Annotations = map[string]string{clusterset.AnnotationJoiningUID: "uid-of-another"}
	if err := w.hub.Create(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err == nil ||
		!strings.Contains(err.Error(), "uid-of-another") {
		t.Errorf("the claim that is for another: %v", err)
	}
	if err := w.hub.Delete(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	newer := &inventoryv1alpha1.ClusterProfile{ObjectMeta: named("blue", "east")}
	newer.Annotations = map[string]string{clusterset.AnnotationJoiningUID: "uid-of-east"}
	if err := w.hub.Create(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	look()
	look()
	p := get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east")
	if holder := p.Annotations[clusterset.AnnotationClusterUID]; holder != "uid-of-east" ||
		len(p.Status.Properties) == 0 {
		t.Errorf("held by %q, with %+v", holder, p.Status)
	}
}
