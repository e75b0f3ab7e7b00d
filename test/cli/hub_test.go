package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestAHubThatStopsIsTold: members, names and traffic do not need the hub's controller, so that nobody would notice;
// status and doctor say what stands still, and what to do, for as long as it does not run.
func TestAHubThatStopsIsTold(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "east")
	hub := e.node(t, "hub")
	e.ok(t, "init", "--context", "hub")
	e.ok(t, "join", "--context", "east", "--hub-context", "hub", "--cluster-id", "east")
	scale := func(replicas int) {
		t.Helper()
		if _, err := e.planes["hub"].Kubectl(t.Context(), "", "-n", "clusterset-system", "scale", "deployment",
			"clusterset-hub", fmt.Sprintf("--replicas=%d", replicas)); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"--context", "east", "--hub-context", "hub"}
	if out := e.run(t, "status", "--context", "hub", "--hub-only").stdout; strings.Contains(out, "does not run") {
		t.Errorf("while it runs:\n%s", out)
	}
	if got := e.outcomes(t, all...); got["hub-controller"] != "" {
		t.Errorf("while it runs: %v", got)
	}
	scale(0)
	hub.Stop()
	eventually(t, "status says so", func(context.Context) error {
		out := e.run(t, "status", "--context", "hub", "--hub-only").stdout
		if !strings.Contains(
			out,
			"! the hub's controller does not run as it should: nobody has renewed its Lease clusterset-hub-clusterset",
		) {
			return fmt.Errorf("it says\n%s", out)
		}
		return nil
	})
	if r := e.run(t, append([]string{"doctor"}, all...)...); !strings.Contains(r.stdout,
		"! the hub's controller does not run as it should: nobody has renewed its Lease") ||
		!strings.Contains(r.stdout, "scale deployment clusterset-hub --replicas=2") {
		t.Errorf("doctor says\n%s%s", r.stdout, r.stderr)
	}
	if r := e.run(t, "doctor", "--context", "east"); !strings.Contains(r.stdout,
		"  → to check this as well, name the hub") {
		t.Errorf("without the hub admin's credentials doctor says\n%s%s", r.stdout, r.stderr)
	}
	scale(2)
	e.nodes(t, "hub")
	eventually(t, "it runs again", func(context.Context) error {
		if out := e.run(t, "status", "--context", "hub", "--hub-only").stdout; strings.Contains(out, "does not run") {
			return fmt.Errorf("it says\n%s", out)
		}
		return nil
	})
	e.ok(t, "leave", "--yes", "--context", "east", "--hub-context", "hub")
}
