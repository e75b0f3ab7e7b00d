package cli

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAJoinKilledAfterAnyWriteIsFinishedOrUndone is ID3's "nothing is half-joined": the program is killed after its first, second, … last
// write. The same command then finishes what was begun, and leave undoes it: neither cluster has an object more or less than before.
func TestAJoinKilledAfterAnyWriteIsFinishedOrUndone(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub")
	e.ok(t, "init", "--context", "hub")
	hub, member := e.snapshot(t, "hub"), e.snapshot(t, "west")
	w := e.through(t, "hub", "west")
	join := []string{"join", "--context", "west", "--hub-context", "hub", "--cluster-id", "killed", "--wait=false"}
	leave := []string{"leave", "--context", "west", "--hub-context", "hub"}

	step := stride(8)
	for n := 1; ; n += step {
		if killed := e.killAfter(t, w, n, join...); !killed {
			if n < 20 {
				t.Fatalf("a join has fewer than %d writes: are they seen?", n)
			}
			e.ok(t, leave...)
			return
		}
		if n/step%2 == 0 {
			e.ok(t, join...)
		}
		e.ok(t, leave...)
		for cluster, before := range map[string]map[string]string{"hub": hub, "west": member} {
			after := e.snapshot(t, cluster)
			if missing, more := gone(before, after), gone(after, before); len(missing)+len(more) > 0 {
				t.Fatalf("killed after write %d, then left: %s lacks %v, and has in addition %v", n, cluster, missing, more)
			}
		}
	}
}

// TestALeaveKilledAfterAnyWriteGoesOn: the same command again ends it, or finds after the last write that nothing is left to do.
func TestALeaveKilledAfterAnyWriteGoesOn(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub")
	e.ok(t, "init", "--context", "hub")
	member := e.snapshot(t, "west")
	w := e.through(t, "hub", "west")
	leave := []string{"leave", "--context", "west", "--hub-context", "hub"}
	killed := true
	for n := 1; killed; n += stride(12) {
		e.ok(t, "join", "--context", "west", "--hub-context", "hub", "--cluster-id", "killed", "--wait=false")
		if killed = e.killAfter(t, w, n, leave...); killed {
			if r := e.run(t, leave...); r.err != nil && !strings.Contains(r.stderr, "nothing of one is left in it") {
				t.Fatalf("killed after write %d: %v\n%s%s", n, r.err, r.stdout, r.stderr)
			}
		}
		after := e.snapshot(t, "west")
		if missing, more := gone(member, after), gone(after, member); len(missing)+len(more) > 0 {
			t.Fatalf("killed after write %d, then left: west lacks %v, and has in addition %v", n, missing, more)
		}
	}
}

// TestAnInitKilledAfterAnyWriteGoesOn: each run gets further, and the last one makes the same hub as one that was not interrupted.
func TestAnInitKilledAfterAnyWriteGoesOn(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub", "south")
	before := e.snapshot(t, "south")
	w := e.through(t, "south")
	for n := 1; e.killAfter(t, w, n, "init", "--context", "south"); n += stride(3) {
		if n > 100 {
			t.Fatal("it does not end")
		}
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
	base = w.writes
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
