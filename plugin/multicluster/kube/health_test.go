package kube

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/relist"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// TestTroubleIsSaidOnce: one line when the reason changes, whatever number of watches and attempts it meets (L2).
func TestTroubleIsSaidOnce(t *testing.T) {
	imports, endpoints := &resource{
		kind:    "ServiceImports",
		missing: "apply deploy/crds",
	}, &resource{
		kind: "EndpointSlices",
	}
	gr := schema.GroupResource{Resource: "serviceimports"}
	h := newHealth(pluginName, 2, func() bool { return false })
	for i, step := range []struct {
		r    *resource
		err  error
		says string // "" for nothing
		up   bool
	}{
		{imports, errors.New("refused"), "Cannot list and watch ServiceImports", false},
		{endpoints, errors.New("refused"), "", false},
		{imports, errors.New("reset"), "", false},
		{imports, apierrors.NewUnauthorized("token"), "does not accept our credentials", false},
		{endpoints, apierrors.NewUnauthorized("token"), "", false},
		{imports, apierrors.NewNotFound(gr, ""), "not served by the API server: apply deploy/crds", false},
		{imports, apierrors.NewForbidden(gr, "", nil), "bind ClusterRole clusterset-dns:coredns to the user", false},
		{endpoints, nil, "", false},
		{imports, errors.New("refused"), "Cannot list and watch ServiceImports", false},
		{imports, apierrors.NewUnauthorized("token"), "does not accept our credentials", false},
		{imports, nil, "answers again", true},
		{imports, nil, "", true},
	} {
		out := capture(t)
		h.observe(step.r, listing, step.err)
		if got := out.String(); strings.Count(got, "\n") != min(1, len(step.says)) ||
			!strings.Contains(got, step.says) {
			t.Errorf("step %d says %q, want %q", i, got, step.says)
		}
		if h.up() != step.up {
			t.Errorf("step %d: up %v", i, h.up())
		}
		if refused := h.refused() != nil; refused != (i >= 3 && i <= 7 || i == 9) {
			t.Errorf("step %d: refused %v", i, refused)
		}
	}
}

// TestTroubleThatLastsIsSaidEachHour, by as many lines as at first: a log is rotated away. Nothing is said of health.
func TestTroubleThatLastsIsSaidEachHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		imports, endpoints, namespaces := &resource{kind: "ServiceImports"}, &resource{kind: "EndpointSlices"},
			&resource{kind: "Namespaces"}
		h := newHealth(pluginName, 3, func() bool { return false })
		out := capture(t)
		for range 3 * 60 { // minutes
			h.observe(imports, listing, apierrors.NewForbidden(schema.GroupResource{}, "", nil))
			h.observe(endpoints, listing, errors.New("refused"))
			h.observe(namespaces, listing, nil)
			time.Sleep(time.Minute)
		}
		if n := strings.Count(out.String(), "\n"); n != 6 || strings.Count(out.String(), "bind ClusterRole") != 3 {
			t.Errorf("%d lines in three hours, want 6:\n%s", n, out)
		}
	})
}

// TestL2WatchIsForbidden: lists alone make a zone that is answered and follows changes; api_up is
// 0, and one line for each resource says how it is.
func TestL2WatchIsForbidden(t *testing.T) {
	out := capture(t)
	a := startAPI(t)
	a.put(clusterSetIP("web", "10.42.0.1"), headless("db"), slice("s", "db", "eu", "10.1.0.1"))
	a.edit(func() { a.noWatches["serviceimports"], a.noWatches["endpointslices"] = true, true })
	w := synced(t, open(t, a.config()))
	answers(t, w, "web.test", "10.42.0.1")
	a.put(clusterSetIP("web", "10.42.0.2"), slice("s", "db", "eu", "10.1.0.2"))
	answers(t, w, "web.test", "10.42.0.2")
	answers(t, w, "db.test", "10.1.0.2")
	if w.health.up() {
		t.Error("api_up though no watch is allowed")
	}
	const line = "kube-system/coredns); changes arrive by a list at each try"
	if n := strings.Count(out.String(), line); n != 2 || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("want two lines, of ServiceImports and of EndpointSlices, and that of the first lists:\n%s", out)
	}
	a.edit(func() { clear(a.noWatches) })
	eventually(t, "api_up", w.health.up)
}

// TestListsThatBreakAreFailures: a request that opens and a list that never ends are no answer (L1):
// api_up is 0, and one line says why.
func TestListsThatBreakAreFailures(t *testing.T) {
	for _, plural := range []string{"serviceimports", "endpointslices"} { // whole; streamed, and then whole
		t.Run(plural, func(t *testing.T) {
			out := capture(t)
			a := startAPI(t)
			a.put(clusterSetIP("web", "10.42.0.1"), slice("s", "db", "eu", "10.1.0.1"))
			a.edit(func() { a.cut[plural] = true })
			w := open(t, a.config())
			eventually(t, "said", func() bool {
				w.health.mu.Lock()
				defer w.health.mu.Unlock()
				return anyFailed(w.health.last)
			})
			tries := len(a.asked())
			eventually(t, "more attempts", func() bool {
				if w.health.up() {
					t.Fatal("api_up though no list of " + plural + " was read")
				}
				return len(a.asked()) > tries
			})
			a.edit(func() { a.cut[plural] = false })
			synced(t, w)
			eventually(t, "api_up", w.health.up)
			if n := strings.Count(
				out.String(),
				"Cannot list and watch",
			); n != 1 ||
				strings.Count(out.String(), "\n") != 3 {
				t.Errorf("want one line about the lists and two when they come:\n%s", out)
			}
		})
	}
}

// TestStreamedListsAreAnsweredAtTheirEnd: not when they open. One that breaks off is an error for the Reflector too.
func TestStreamedListsAreAnsweredAtTheirEnd(t *testing.T) {
	open := func() *intake {
		r := &resource{kind: "EndpointSlices", health: newHealth(pluginName, 1, func() bool { return false })}
		r.strip = func(object any) any { return object }
		r.watch = func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }
		if _, err := r.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: ptr.To(true)}); err != nil {
			t.Fatal(err)
		}
		if len(r.health.last) != 0 || r.heard.Load() != 0 {
			t.Error("answered before its end")
		}
		return &intake{resource: r, into: newStore(false).sliceFeed()}
	}
	complete := open()
	replace(complete, nil, "7")
	if !complete.health.up() {
		t.Error("a complete list is no answer")
	}
	broken := open()
	// relist repeats what an API server did not answer; here the Reflector has to list instead.
	again := relist.New(broken.resource)
	if _, err := again.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: ptr.To(true)}); err == nil {
		t.Error("a stream that broke off is opened again, and never replaced by a list")
	}
	if broken.health.last[broken.resource] != failed {
		t.Error("a list that broke off is an answer")
	}
	if _, err := broken.WatchWithContext(t.Context(), metav1.ListOptions{}); err != nil || !broken.health.up() {
		t.Errorf("not up after the next watch: %v", err)
	}
	if broken.heard.Load() == 0 { // it may have nothing to send until it ends
		t.Error("an API server that accepts a watch is not heard")
	}
}
