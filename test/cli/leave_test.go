package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// TestAClusterThatLeavesIsAsBeforeItJoined is issue 4, C: the users' objects are untouched, and what the agent and
// join had made is gone, here and on the hub.
func TestAClusterThatLeavesIsAsBeforeItJoined(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub", "east", "south")
	e.ok(t, "init", "--context", "hub")
	e.users(t, "east", "leaving")
	hub, before := e.snapshot(t, "hub"), e.snapshot(t, "east")
	for _, c := range []string{"east", "south"} {
		e.ok(t, "join", "--context", c, "--hub-context", "hub", "--cluster-id", c)
	}
	e.declare(t, "east", "leaving", "web")
	e.export(t, "south", "leaving", "web")
	for _, c := range []string{"east", "south"} {
		eventually(t, "web.leaving in "+c,
			func(ctx context.Context) error { return e.imported(ctx, c, "leaving", "web", 2) })
	}

	r := e.ok(t, "leave", "--yes", "--context", "east", "--hub-context", "hub")
	t.Logf("leave took %v", r.took)
	e.asBefore(t, "east", "leaving", before)
	if more := gone(e.snapshot(t, "hub"), hub); slices.ContainsFunc(more,
		func(n string) bool { return strings.Contains(n, "east") }) {
		t.Errorf("on the hub is left %v", more)
	}
	e.ok(t, "leave", "--yes", "--context", "south", "--hub-context", "hub")
	if missing, more := gone(hub, e.snapshot(t, "hub")), gone(e.snapshot(t, "hub"), hub); len(missing)+len(more) > 0 {
		t.Errorf("the hub lacks %v and has in addition %v", missing, more)
	}
	e.forget(t, "leaving")
}

// users makes Service web in a namespace, and waits until all is there that every namespace has.
func (e *environment) users(t *testing.T, cluster, namespace string) {
	t.Helper()
	e.service(t, cluster, namespace, "web")
	for name, o := range map[string]client.Object{"default": &corev1.ServiceAccount{},
		"kube-root-ca.crt": &corev1.ConfigMap{}} {
		eventually(t, name+" in "+namespace, func(ctx context.Context) error {
			return e.admin[cluster].Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
		})
	}
}

// asBefore checks that a cluster that has left is as before it joined, except for CRDs and the ServiceExport web, which
// has no condition any more.
func (e *environment) asBefore(t *testing.T, cluster, namespace string, before map[string]string) {
	t.Helper()
	after := e.snapshot(t, cluster)
	for _, name := range gone(before, after) {
		t.Errorf("it took %s away", name)
	}
	export := "ServiceExport " + namespace + " web"
	more := slices.DeleteFunc(gone(after, before), func(n string) bool {
		return strings.HasPrefix(n, "CustomResourceDefinition ")
	})
	if want := []string{export}; !slices.Equal(more, want) {
		t.Errorf("it left %v, and not %v", more, want)
	}
	users := in(after, namespace)
	delete(users, export)
	if differ := changed(in(before, namespace), users); len(differ) > 0 {
		t.Errorf("it wrote the users' %v", differ)
	}
	said := &mcsv1beta1.ServiceExport{}
	if err := e.admin[cluster].Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"},
		said); err != nil || len(said.Status.Conditions) > 0 {
		t.Errorf("the ServiceExport: %v, conditions %+v", err, said.Status.Conditions)
	}
}

// TestAnEvictedMemberIsCleanedUpOnTheHub, though its agent never comes back. The others drop its exports, also one that
// was away when it was evicted. leave deletes what is left in its own cluster.
func TestAnEvictedMemberIsCleanedUpOnTheHub(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub")
	e.ok(t, "init", "--context", "hub")
	e.users(t, "east", "evicted")
	hub, member := e.snapshot(t, "hub"), e.snapshot(t, "east")
	dead, away := e.node(t, "east"), e.node(t, "west")
	for _, c := range []string{"east", "west"} {
		e.ok(t, "join", "--context", c, "--hub-context", "hub", "--cluster-id", c)
	}
	e.declare(t, "east", "evicted", "web")
	eventually(t, "web.evicted in west",
		func(ctx context.Context) error { return e.imported(ctx, "west", "evicted", "web", 1) })
	dead.Stop()
	away.Stop()
	e.refused(t, []string{"members are: east"}, "evict", "nobody", "--context", "hub")
	e.ok(t, "evict", "--yes", "east", "--context", "hub")
	if more := gone(e.snapshot(t, "hub"), hub); slices.ContainsFunc(more,
		func(n string) bool { return strings.Contains(n, "east") }) {
		t.Errorf("on the hub is left %v", more)
	}
	if err := e.imported(t.Context(), "west", "evicted", "web", 1); err != nil {
		t.Errorf("before west is back: %v", err)
	}
	e.nodes(t, "west")
	eventually(t, "west has dropped it",
		func(ctx context.Context) error { return e.dropped(ctx, "west", "evicted", "web") })
	e.ok(t, "leave", "--yes", "--context", "west", "--hub-context", "hub")
	if missing, more := gone(hub, e.snapshot(t, "hub")), gone(e.snapshot(t, "hub"), hub); len(missing)+len(more) > 0 {
		t.Errorf("the hub lacks %v and has in addition %v", missing, more)
	}

	// Its agent comes back, and is told; leave goes on without the hub's help.
	e.nodes(t, "east")
	eventually(t, "status says so", func(context.Context) error {
		r := e.run(t, "status", "--context", "east")
		if r.code() != 0 || !strings.Contains(r.stdout, "x The hub refuses the agent's token") {
			return fmt.Errorf("%v\n%s%s", r.err, r.stdout, r.stderr)
		}
		return nil
	})
	r := e.ok(t, "leave", "--yes", "--context", "east", "--hub-context", "hub")
	if !strings.Contains(r.stderr, "this cluster was evicted") {
		t.Errorf("leave of an evicted member:\n%s", r.stderr)
	}
	e.asBefore(t, "east", "evicted", member)
	e.forget(t, "evicted")
}

// TestID3AnEvictedMemberIsTakenInAgain by join, also with --renew, while its agent runs, as it is after a hub that was
// restored to before it joined: id, import and VIP are as before.
func TestID3AnEvictedMemberIsTakenInAgain(t *testing.T) {
	e := setUp(t)
	e.eastExports(t, "again")
	before, after := &mcsv1beta1.ServiceImport{}, &mcsv1beta1.ServiceImport{}
	web := client.ObjectKey{Namespace: "again", Name: "web"}
	if err := e.admin["west"].Get(t.Context(), web, before); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--wait", "--renew"} {
		e.ok(t, "evict", "--yes", "west", "--context", "hub")
		if r := e.run(t, "status", "--context", "west", "--hub-context", "hub"); !strings.Contains(r.stdout,
			"the hub does not know this cluster as a member: it has no ClusterProfile west") {
			t.Errorf("status of an evicted member: %v\n%s%s", r.err, r.stdout, r.stderr)
		}
		e.ok(t, "join", flag, "--context", "west", "--hub-context", "hub")
		eventually(t, "west is a member, and its claim is used",
			func(ctx context.Context) error { return e.healthy(ctx, "west") })
		eventually(t, "web.again in west again",
			func(ctx context.Context) error { return e.imported(ctx, "west", "again", "web", 1) })
		if err := e.admin["west"].Get(t.Context(), web, after); err != nil || after.UID != before.UID ||
			!slices.Equal(after.Spec.IPs, before.Spec.IPs) {
			t.Errorf("join %s: the import was %s with %v, and is %s with %v: %v", flag, before.UID, before.Spec.IPs,
				after.UID, after.Spec.IPs, err)
		}
	}
	for _, c := range []string{"east", "west"} {
		e.ok(t, "leave", "--yes", "--context", c, "--hub-context", "hub")
	}
	e.forget(t, "again")
}

// dropped reports whether nothing is left of an import but its VIP, which is kept for a while for whoever has it in a
// cache (I6).
func (e *environment) dropped(ctx context.Context, cluster, ns, name string) error {
	imp := &mcsv1beta1.ServiceImport{}
	if err := e.admin[cluster].Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, imp); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the ServiceImport: %v", err)
	}
	var slices discoveryv1.EndpointSliceList
	if err := e.admin[cluster].List(ctx, &slices, client.InNamespace(ns)); err != nil || len(slices.Items) > 0 {
		return fmt.Errorf("%d slices: %v", len(slices.Items), err)
	}
	svc := &corev1.Service{}
	err := e.admin[cluster].Get(ctx, client.ObjectKey{Namespace: ns, Name: derived.Name(ns, name)}, svc)
	if err == nil && svc.Annotations[derived.AnnotationUnusedSince] == "" {
		err = errors.New("it is in use")
	}
	if err != nil {
		return fmt.Errorf("the derived Service: %w", err)
	}
	return nil
}

// forget deletes a namespace of the tests everywhere.
func (e *environment) forget(t *testing.T, namespace string) {
	t.Helper()
	for _, c := range []string{"east", "west", "south"} {
		if _, err := e.planes[c].Kubectl(t.Context(), "", "delete", "namespace", namespace,
			"--ignore-not-found"); err != nil {
			t.Error(err)
		}
	}
}
