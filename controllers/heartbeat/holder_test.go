package heartbeat

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// plane returns an in-memory API server with the kinds and indexes that a Heartbeat uses.
func plane(t *testing.T, funcs interceptor.Funcs) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, hubv1alpha1.AddToScheme, inventoryv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(funcs)
	for _, x := range kube.Indexes() {
		if x.Side == kube.Local {
			b = b.WithIndex(x.Object, x.Field, x.Values)
		}
	}
	return b.Build()
}

// process returns an agent of the member east, in a cluster and on a hub.
func process(holder string, local, hub client.Client, now *time.Time) *Heartbeat {
	return New(Config{
		Member: kube.Member{
			Cluster: "east", HubNamespace: "prod", Local: local, LocalNow: local,
			Hub: func() client.Client { return hub },
			Now: func() time.Time { return *now }, Events: discard{},
		},
		Holder: holder, HubNow: func() client.Reader { return hub }, Answered: func(error) {},
		ListAgain: func() {},
		Complete:  func(context.Context, *coordinationv1.Lease) error { return nil },
	})
}

// beat reconciles after d, and once more to observe the renewal.
func beat(t *testing.T, h *Heartbeat, now *time.Time, d time.Duration) {
	t.Helper()
	*now = now.Add(d)
	for range 2 {
		if _, err := h.Reconcile(t.Context(), own); err != nil {
			t.Fatal(err)
		}
	}
}

const interval = 11 * time.Second // a renewal is due by then

var own = reconcile.Request{NamespacedName: types.NamespacedName{Name: "east"}}

// TestARestartPublishesAtOnce, and so does another replica: the hub has the renewal that the cluster has stored.
func TestARestartPublishesAtOnce(t *testing.T) {
	now := start
	hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	for _, holder := range []string{"a", "b", "c"} {
		h := process(holder, local, hub, &now)
		if beat(t, h, &now, interval); !h.MayPublish() {
			t.Errorf("%s does not publish", holder)
		}
		if lost, _ := h.HubMayHaveLost(); !lost.IsZero() {
			t.Errorf("%s: the hub may have lost something by %v", holder, lost)
		}
	}
}

// TestARestoredHubShowsNoHigherRevisionThanTheNextProcessWrites: where the clock is behind this time, revisions follow
// it.
func TestARestoredHubShowsNoHigherRevisionThanTheNextProcessWrites(t *testing.T) {
	now := start
	hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	beat(t, process("a", local, hub, &now), &now, interval)
	if err := hub.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace("prod")); err != nil {
		t.Fatal(err)
	}
	b := process("b", local, hub, &now) // it writes again what the hub has lost
	beat(t, b, &now, interval)
	first, written := b.HubMayHaveLost()
	beat(t, b, &now, interval)
	if last, _ := b.HubMayHaveLost(); !first.After(now) || first != written || last != first {
		t.Errorf("at %v the hub may have lost something by %v, then by %v", now, first, last)
	}
	for range 2 { // b may have ended before it had written all again, and c, too
		c := process("c", local, hub, &now) // a restored hub may show what it showed before the last writes
		beat(t, c, &now, interval)
		lost, after := c.HubMayHaveLost()
		if !lost.Equal(first) || after.Sub(written) < interval {
			t.Errorf("the next process: lost by %v, written by %v; the last by %v and %v", lost, after, first, written)
		}
		written = after
	}
}

// TestACloneStops: it finds a renewal that its cluster has not stored, and observes another one.
// The original continues. If the original stops, the clone takes over after a Lease's duration.
// Then the original finds the clone, and stops.
func TestACloneStops(t *testing.T) {
	now := start
	hub, local, copied := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	original, clone := process("original", local, hub, &now), process("clone", copied, hub, &now)
	beat(t, original, &now, interval)
	for range 10 {
		beat(t, clone, &now, 5*time.Second)
		beat(t, original, &now, 6*time.Second)
		if clone.MayPublish() || !original.MayPublish() {
			t.Fatalf("clone publishes %v, original %v", clone.MayPublish(), original.MayPublish())
		}
	}
	if !clone.Cloned() || original.Cloned() {
		t.Errorf("clone has stopped %v, original %v", clone.Cloned(), original.Cloned())
	}
	for range 12 {
		beat(t, clone, &now, 5*time.Second)
	}
	if !clone.MayPublish() {
		t.Error("the clone does not take over from an original that has stopped")
	}
	for range 10 {
		beat(t, original, &now, 3*time.Second)
		beat(t, clone, &now, 8*time.Second)
	}
	if !original.Cloned() || original.MayPublish() || !clone.MayPublish() {
		t.Errorf("original has stopped %v, clone publishes %v", original.Cloned(), clone.MayPublish())
	}
}

// cutOff returns a client of local that gets no answer while cut is true.
func cutOff(local client.WithWatch, cut *bool) client.Client {
	gone := errors.New("dial tcp 10.96.0.1:443: i/o timeout")
	return interceptor.NewClient(local, interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			if *cut {
				return gone
			}
			return c.Get(ctx, k, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if *cut {
				return gone
			}
			return c.Update(ctx, o, opts...)
		},
	})
}

// TestTheElectedReplicaPublishes although the former leader, which has lost this cluster's API server and not the hub,
// renews. The former leader finds the Lease contested and ends (cmd/clusterset-controller: lock). Other members never
// see the Lease expire. The hub loses the first question. The former leader may have stored none of its renewals.
func TestTheElectedReplicaPublishes(t *testing.T) {
	for _, stored := range []bool{true, false} {
		testElected(t, stored)
	}
}

func testElected(t *testing.T, stored bool) {
	now, cut := start, false
	hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	beat(t, process("pod-c_0", local, hub, &now), &now, interval)
	before, after := &coordinationv1.Lease{}, &coordinationv1.Lease{}
	if err := local.Get(t.Context(), storedLease, before); err != nil {
		t.Fatal(err)
	}
	former := process("pod-a_1", cutOff(local, &cut), hub, &now)
	beat(t, former, &now, interval)
	beat(t, former, &now, interval)
	if err := local.Get(t.Context(), storedLease, after); err != nil {
		t.Fatal(err)
	}
	if before.ResourceVersion = after.ResourceVersion; !stored {
		if err := local.Update(t.Context(), before); err != nil {
			t.Fatal(err)
		}
	}
	cut = true
	for range 3 { // until the other replica is elected
		if beat(t, former, &now, 10*time.Second); former.MayPublish() {
			t.Error("it publishes what it saw before it was cut off")
		}
	}
	elected := process("pod-b_2", local, hub, &now)
	restored := false
	for began := now; !elected.MayPublish(); {
		for range 2 {
			_, _ = former.Reconcile(t.Context(), own)
		}
		beat(t, elected, &now, time.Second)
		var lease coordinationv1.Lease
		if err := hub.Get(t.Context(), types.NamespacedName{Namespace: "prod", Name: "east"}, &lease); err != nil {
			t.Fatal(err)
		}
		if _, asked := lease.Annotations[clusterset.AnnotationAskedBy]; asked && !restored { // to before the question
			restored = true
			delete(lease.Annotations, clusterset.AnnotationAskedBy)
			if err := hub.Update(t.Context(), &lease); err != nil {
				t.Fatal(err)
			}
			former.last, former.stale = &lease, false
		}
		renewed := lease.Spec.RenewTime.Time
		if now.Sub(renewed) > 45*time.Second {
			t.Fatalf("nobody has renewed since %v", renewed)
		}
		if now.Sub(began) > time.Minute {
			t.Fatalf("it does not publish after a minute; cloned: %v", elected.Cloned())
		}
	}
	_, _ = former.Reconcile(t.Context(), own)
	if !restored || !former.Contested() || former.MayPublish() || elected.Cloned() {
		t.Errorf("former leader contested %v, publishes %v; elected cloned %v", former.Contested(),
			former.MayPublish(), elected.Cloned())
	}
}

// TestAFreshCloneNeverPublishes: its copy of the stored renewal names the original's process, and is seconds old by its
// clock, or not even written yet. Its original answers when it is asked, also if it has lost its API server since.
func TestAFreshCloneNeverPublishes(t *testing.T) {
	for _, skew := range []time.Duration{0, -time.Hour, time.Hour} {
		now, cut := start, false
		hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
		copied := plane(t, interceptor.Funcs{})
		original := process("pod-a_1", cutOff(local, &cut), hub, &now)
		beat(t, original, &now, interval)
		beat(t, original, &now, interval)
		var stored coordinationv1.Lease
		if err := local.Get(t.Context(), storedLease, &stored); err != nil {
			t.Fatal(err)
		}
		stored.ResourceVersion = ""
		if err := copied.Create(t.Context(), &stored); err != nil {
			t.Fatal(err)
		}
		beat(t, original, &now, interval)
		clone := process("pod-b_2", copied, hub, &now)
		clone.Now = func() time.Time { return now.Add(skew) }
		for i := range 60 {
			cut = i > 20
			beat(t, clone, &now, 2*time.Second)
			beat(t, original, &now, 2*time.Second)
			if clone.MayPublish() || original.Contested() || !cut && !original.MayPublish() {
				t.Fatalf("clock %v: clone publishes %v, original %v", skew, clone.MayPublish(), original.MayPublish())
			}
		}
		if !clone.Cloned() {
			t.Errorf("clock %v: the clone does not say that it has stopped", skew)
		}
	}
}

// TestWhatTheHubAnswers: an agent that waits for another one is answered, and what this cluster refuses is no answer of
// the hub.
func TestWhatTheHubAnswers(t *testing.T) {
	now := start
	var refuses error
	hub := plane(t, interceptor.Funcs{})
	local := plane(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if refuses != nil {
				return refuses
			}
			return c.Get(ctx, k, o, opts...)
		},
	})
	beat(t, process("original", plane(t, interceptor.Funcs{}), hub, &now), &now, interval)
	h := process("clone", local, hub, &now)
	answers := []error{}
	h.Answered = func(err error) { answers = append(answers, err) }
	if _, err := h.Reconcile(t.Context(), own); err != nil || len(answers) != 1 || answers[0] != nil {
		t.Errorf("%v; the hub answered %v", err, answers)
	}
	now = now.Add(interval)
	refuses, answers = apierrors.NewForbidden(coordinationv1.Resource("leases"), "renewed", errors.New("no")), nil
	if _, err := h.Reconcile(t.Context(), own); !apierrors.IsForbidden(err) || len(answers) > 0 {
		t.Errorf("%v; the hub answered %v", err, answers)
	}
}

// TestARenewalThatWasNotStored is replaced after 1.2 intervals, because nobody renews the Lease.
func TestARenewalThatWasNotStored(t *testing.T) {
	now := start
	hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	beat(t, process("before", plane(t, interceptor.Funcs{}), hub, &now), &now, interval)
	h := process("after", local, hub, &now)
	if beat(t, h, &now, 0); h.MayPublish() {
		t.Error("it publishes at once")
	}
	if beat(t, h, &now, 9*time.Second); h.MayPublish() || h.Cloned() {
		t.Errorf("after 9 s: publishes %v, cloned %v", h.MayPublish(), h.Cloned())
	}
	if beat(t, h, &now, 4*time.Second); !h.MayPublish() {
		t.Error("it does not publish after 13 s")
	}
}

// TestALostResponseStopsNobody: the hub has stored the renewal.
func TestALostResponseStopsNobody(t *testing.T) {
	now, lost := start, false
	hub := plane(t, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := c.Update(ctx, o.DeepCopyObject().(client.Object), opts...); err != nil || !lost {
				return err
			}
			return errors.New("connection lost")
		},
	})
	h := process("a", plane(t, interceptor.Funcs{}), hub, &now)
	beat(t, h, &now, interval)
	beat(t, h, &now, interval)
	lost = true
	now = now.Add(interval)
	if _, err := h.Reconcile(t.Context(), own); err == nil {
		t.Fatal("the response was not lost")
	}
	lost = false
	if beat(t, h, &now, time.Second); !h.MayPublish() || h.contested {
		t.Error("it treats its own renewal as another agent's")
	}
}

// TestAStopDuringARenewalDelaysNoSuccessor: the renewal ends, and this cluster stores it.
func TestAStopDuringARenewalDelaysNoSuccessor(t *testing.T) {
	now, stop := start, func() {}
	hub, local := plane(t, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := c.Update(ctx, o, opts...); err != nil {
				return err
			}
			stop()
			return ctx.Err()
		},
	}), plane(t, interceptor.Funcs{})
	a := process("a", local, hub, &now)
	beat(t, a, &now, interval)
	ctx, cancel := context.WithCancel(t.Context())
	stop, now = cancel, now.Add(interval)
	if _, err := a.Reconcile(ctx, own); err != nil || ctx.Err() == nil {
		t.Errorf("the last renewal: %v; the context: %v", err, ctx.Err())
	}
	stop = func() {}
	b := process("b", local, hub, &now)
	beat(t, b, &now, 0)
	if lost, _ := b.HubMayHaveLost(); !b.MayPublish() || !lost.IsZero() {
		t.Errorf("the successor publishes %v, and the hub may have lost something: %v", b.MayPublish(), lost)
	}
}

// TestARestoredHubIsReported, because its Lease is older than this agent's last renewal.
func TestARestoredHubIsReported(t *testing.T) {
	now := start
	hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	h := process("a", local, hub, &now)
	var said reasons
	lists := 0
	h.Events, h.ListAgain = &said, func() { lists++ }
	name := types.NamespacedName{Namespace: "prod", Name: "east"}
	var backup coordinationv1.Lease
	for i := range 4 {
		beat(t, h, &now, interval)
		if i == 1 {
			if err := hub.Get(t.Context(), name, &backup); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(said) > 0 {
		t.Fatalf("%q", said)
	}
	var lease coordinationv1.Lease
	if err := hub.Get(t.Context(), name, &lease); err != nil {
		t.Fatal(err)
	}
	lease.Spec, lease.Annotations = backup.Spec, backup.Annotations
	if err := hub.Update(t.Context(), &lease); err != nil {
		t.Fatal(err)
	}
	beat(t, h, &now, interval)
	if lost, _ := h.HubMayHaveLost(); !slices.Equal(said, reasons{"HubRestored"}) || lost.IsZero() || !h.MayPublish() ||
		lists != 1 {
		t.Errorf("%q, lost %v, publishes %v, listed %d times", said, lost, h.MayPublish(), lists)
	}
}

// TestT1RenewTimeIncreasesAfterTheHubLostTheLease and this cluster's clock was set back. Otherwise
// other members would treat each renewal as restored from a backup, until the clock reaches the
// lost renewTime.
func TestT1RenewTimeIncreasesAfterTheHubLostTheLease(t *testing.T) {
	now := start.Add(10 * time.Minute) // the clock is ahead
	hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	h := process("a", local, hub, &now)
	renewTime := func() time.Time {
		t.Helper()
		var lease coordinationv1.Lease
		if err := hub.Get(t.Context(), types.NamespacedName{Namespace: "prod", Name: "east"}, &lease); err != nil {
			t.Fatal(err)
		}
		return lease.Spec.RenewTime.Time
	}
	for _, restart := range []bool{false, true} {
		beat(t, h, &now, interval)
		last := renewTime()
		if err := hub.Delete(
			t.Context(),
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "east"}},
		); err != nil {
			t.Fatal(err)
		}
		now = now.Add(-10 * time.Minute)
		if restart {
			h = process("b", local, hub, &now)
		}
		h.lastAttempt = time.Time{}
		beat(t, h, &now, interval)
		if next := renewTime(); !next.After(last) {
			t.Errorf("restart %v: %v after %v", restart, next, last)
		}
	}
}

// TestF5WhomItDoesNotReachIsStatedAtOnce: others decide by it. A further change waits for a second, and other
// statements wait for the next renewal.
func TestF5WhomItDoesNotReachIsStatedAtOnce(t *testing.T) {
	now := start
	hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	h := process("a", local, hub, &now)
	unreachable, other := map[string]time.Time{}, ""
	h.Complete = func(_ context.Context, lease *coordinationv1.Lease) error {
		reach.WriteUnreachable(lease, unreachable)
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, "other", other)
		return nil
	}
	want := func(what string, d time.Duration, clusters int, statement string) {
		t.Helper()
		beat(t, h, &now, d)
		var lease coordinationv1.Lease
		if err := hub.Get(t.Context(), types.NamespacedName{Namespace: "prod", Name: "east"}, &lease); err != nil {
			t.Fatal(err)
		}
		got, err := reach.ReadUnreachable(&lease)
		if err != nil || len(got) != clusters || lease.Annotations["other"] != statement {
			t.Errorf("%s: %v, %v, %v", what, got, lease.Annotations, err)
		}
	}
	want("first", interval, 0, "")
	other = "x"
	want("another statement", 2*time.Second, 0, "")
	unreachable["west"] = now
	want("one is lost", 0, 1, "x")
	unreachable["west"], other = now.Add(time.Second), "y"
	want("since when", 2*time.Second, 1, "x")
	delete(unreachable, "west")
	want("it is back", 0, 0, "y")
	unreachable["west"] = now
	want("too soon", 500*time.Millisecond, 0, "y")
	want("a second later", 600*time.Millisecond, 1, "y")
}
