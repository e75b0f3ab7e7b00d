package cli

import (
	"context"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestAClusterThatLeavesIsAsBeforeItJoined is issue 4, C: the users' objects are untouched, and what the agent and join had made is gone,
// here and on the hub.
func TestAClusterThatLeavesIsAsBeforeItJoined(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub", "east", "south")
	e.ok(t, "init", "--context", "hub")
	hub, before := e.snapshot(t, "hub"), e.snapshot(t, "east")
	for _, c := range []string{"east", "south"} {
		e.ok(t, "join", "--context", c, "--hub-context", "hub", "--cluster-id", c)
	}
	e.export(t, "east", "leaving", "web")
	e.export(t, "south", "leaving", "web")
	for _, c := range []string{"east", "south"} {
		eventually(t, "web.leaving in "+c, func(ctx context.Context) error { return e.imported(ctx, c, "leaving", "web", 2) })
	}
	joined := e.snapshot(t, "east")

	r := e.ok(t, "leave", "--context", "east", "--hub-context", "hub")
	t.Logf("leave took %v", r.took)
	after := e.snapshot(t, "east")
	for _, name := range gone(before, after) {
		t.Errorf("it took %s away", name)
	}
	for _, name := range gone(after, before) {
		if name != "CustomResourceDefinition  serviceexports.multicluster.x-k8s.io" && !strings.Contains(name, " leaving") {
			t.Errorf("it left %s", name)
		}
	}
	for _, users := range []string{"Service leaving web", "EndpointSlice leaving web-1", "Namespace  leaving"} {
		if after[users] == "" || after[users] != joined[users] {
			t.Errorf("%s: version %q before and %q after", users, joined[users], after[users])
		}
	}
	export := &mcsv1beta1.ServiceExport{}
	if err := e.admin["east"].Get(t.Context(), client.ObjectKey{Namespace: "leaving", Name: "web"}, export); err != nil || len(export.Status.Conditions) > 0 {
		t.Errorf("the ServiceExport: %v, conditions %+v", err, export.Status.Conditions)
	}
	if more := gone(e.snapshot(t, "hub"), hub); slices.ContainsFunc(more, func(n string) bool { return strings.Contains(n, "east") }) {
		t.Errorf("on the hub is left %v", more)
	}
	e.ok(t, "leave", "--context", "south", "--hub-context", "hub")
	if missing, more := gone(hub, e.snapshot(t, "hub")), gone(e.snapshot(t, "hub"), hub); len(missing)+len(more) > 0 {
		t.Errorf("the hub lacks %v and has in addition %v", missing, more)
	}
	e.forget(t, "leaving")
}

// TestAnEvictedMemberIsCleanedUpOnTheHub is issue 4, C: its agent never comes back. What it leaves in its own cluster goes with leave.
func TestAnEvictedMemberIsCleanedUpOnTheHub(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub")
	e.ok(t, "init", "--context", "hub")
	hub, member := e.snapshot(t, "hub"), e.snapshot(t, "east")
	dead := e.node(t, "east")
	e.ok(t, "join", "--context", "east", "--hub-context", "hub", "--cluster-id", "east")
	e.export(t, "east", "evicted", "web")
	eventually(t, "its records are on the hub", func(ctx context.Context) error {
		rec := &hubv1alpha1.ServiceExportRecord{}
		return e.admin["hub"].Get(ctx, client.ObjectKey{Namespace: "clusterset", Name: "web.evicted.east"}, rec)
	})
	dead.Stop()
	e.refused(t, []string{"its members are: east"}, "leave", "west", "--evict", "--context", "hub")
	e.ok(t, "leave", "east", "--evict", "--context", "hub")
	if more := gone(e.snapshot(t, "hub"), hub); len(more) > 0 {
		t.Errorf("on the hub is left %v", more)
	}

	// Its agent comes back, and is told; leave goes on without the hub's help.
	e.nodes(t, "east")
	r := e.run(t, "status", "--context", "east")
	if r.err != nil || !strings.Contains(r.stdout, "hub: the hub was not read") {
		t.Errorf("status of an evicted member: %v\n%s%s", r.err, r.stdout, r.stderr)
	}
	r = e.ok(t, "leave", "--context", "east", "--hub-context", "hub")
	if !strings.Contains(r.stderr, "this cluster was evicted") {
		t.Errorf("leave of an evicted member:\n%s", r.stderr)
	}
	for _, name := range gone(e.snapshot(t, "east"), member) {
		if name != "CustomResourceDefinition  serviceexports.multicluster.x-k8s.io" && !strings.Contains(name, " evicted") {
			t.Errorf("it left %s", name)
		}
	}
	e.forget(t, "evicted")
}

// forget deletes a namespace of the tests everywhere, and the kinds that were kept for what was in it.
func (e *environment) forget(t *testing.T, namespace string) {
	t.Helper()
	for _, c := range []string{"east", "west", "south"} {
		if _, err := e.planes[c].Kubectl(t.Context(), "", "delete", "namespace", namespace, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
		if _, err := e.planes[c].Kubectl(t.Context(), "", "delete", "crd", "serviceexports.multicluster.x-k8s.io", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	}
}
