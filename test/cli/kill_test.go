package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAJoinKilledAfterAnyWriteIsFinishedOrUndone is ID3's "nothing is half-joined": the program is killed after its
// first, second, … last write. The same command then makes a member of what was begun, which leaves; or leave undoes
// it at once, beside an agent that goes on joining once it has its credentials. Neither cluster has an object more or
// less than before.
func TestAJoinKilledAfterAnyWriteIsFinishedOrUndone(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub", "west")
	e.ok(t, "init", "--context", "hub")
	e.ok(t, joining...) // CRDs stay
	e.ok(t, leaving...)
	before := e.clusters(t)
	w := e.through(t, "hub", "west")
	step := stride(12)
	for n := 1; ; n += step {
		killed := e.killAfter(t, w, n, slices.Concat(joining, []string{"--wait=false"})...)
		if !killed && n < 20 {
			t.Fatalf("a join has fewer than %d writes: are they seen?", n)
		}
		if killed && n/step%2 == 1 {
			e.ok(t, joining...)
		}
		e.ok(t, leaving...)
		e.same(t, fmt.Sprintf("join killed after write %d, then left", n), before)
		if !killed {
			return
		}
	}
}

// TestALeaveKilledAfterAnyWriteGoesOn: the same command again ends it, or finds after the last write that nothing is
// left to do. What is left is a member, and a join that was not finished, whose agent is just starting.
func TestALeaveKilledAfterAnyWriteGoesOn(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub", "west")
	e.ok(t, "init", "--context", "hub")
	e.ok(t, joining...) // CRDs stay
	e.ok(t, leaving...)
	before := e.clusters(t)
	w := e.through(t, "hub", "west")
	for what, join := range map[string][]string{"a member": joining, "an unfinished join": slices.Concat(joining,
		[]string{"--wait=false"})} {
		killed := true
		for n := 1; killed; n += stride(16) {
			e.ok(t, join...)
			if killed = e.killAfter(t, w, n, leaving...); !killed && n < 10 {
				t.Fatalf("%s: leave has fewer than %d writes: are they seen?", what, n)
			}
			if killed {
				if r := e.run(t, leaving...); r.err != nil && !strings.Contains(r.stderr, "nothing is left to delete") {
					t.Fatalf("%s, killed after write %d: %v\n%s%s", what, n, r.err, r.stdout, r.stderr)
				}
			}
			e.same(t, fmt.Sprintf("%s, leave killed after write %d, then left", what, n), before)
		}
	}
}

// What is killed.
var (
	joining = []string{"join", "--context", "west", "--hub-context", "hub", "--cluster-id", "killed"}
	leaving = []string{"leave", "--yes", "--context", "west", "--hub-context", "hub"}
)

// clusters are the hub and the member as they are now.
func (e *environment) clusters(t *testing.T) map[string]map[string]string {
	t.Helper()
	return map[string]map[string]string{"hub": e.snapshot(t, "hub"), "west": e.snapshot(t, "west")}
}

// same checks that neither has an object more or less.
func (e *environment) same(t *testing.T, what string, before map[string]map[string]string) {
	t.Helper()
	for cluster, now := range e.clusters(t) {
		if missing, more := gone(before[cluster], now), gone(now, before[cluster]); len(missing)+len(more) > 0 {
			t.Fatalf("%s: %s lacks %v, and has in addition %v", what, cluster, missing, more)
		}
	}
}

// TestAnInitKilledAfterAnyWriteGoesOn: each run gets further, and the last one makes the same hub as one that was not
// interrupted.
func TestAnInitKilledAfterAnyWriteGoesOn(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub", "south")
	before := e.snapshot(t, "south")
	w := e.through(t, "south")
	n := 1
	for ; e.killAfter(t, w, n, "init", "--context", "south"); n += stride(3) {
		if n > 100 {
			t.Fatal("it does not end")
		}
	}
	if n == 1 { // later runs have fewer writes
		t.Fatal("an init has no write: are they seen?")
	}
	e.ok(t, "init", "--context", "hub")
	made, hub := gone(e.snapshot(t, "south"), before), e.snapshot(t, "hub")
	for _, name := range made {
		if hub[name] == "" {
			t.Errorf("it has %s, and an uninterrupted one has not", name)
		}
	}
	if len(made) < 20 {
		t.Errorf("a hub is %v only", made)
	}
	e.unmake(t, "south")
}

// stride is how many writes are skipped between two kills; make chaos kills after each.
func stride(n int) int {
	if os.Getenv("CHAOS") != "" {
		return 1
	}
	return n
}

// killAfter runs the program and kills it after its nth write; it returns false where there were fewer.
func (e *environment) killAfter(t *testing.T, w *way, n int, args ...string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := e.command(ctx, args...)
	cmd.Env = append(slices.Clone(cmd.Env), "KUBECONFIG="+w.kubeconfig)
	out, err := os.CreateTemp(t.TempDir(), "said")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	killed, base := false, 0
	w.mu.Lock()
	base = len(w.writes)
	w.after = func(now int) {
		if now-base == n {
			killed = true
			_ = cmd.Process.Kill() // before it hears that the write was done
		}
	}
	began := time.Now()
	err = cmd.Start()
	w.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after = nil
	if !killed && err != nil {
		text, _ := os.ReadFile(out.Name())
		t.Fatalf("it failed by itself after %v: %v\n%s", time.Since(began), err, text)
	}
	return killed
}
