package heartbeat

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// plane is an API server in memory with a cluster's objects, as much as a heartbeat needs.
func plane(t *testing.T, funcs interceptor.Funcs) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, hubv1alpha1.AddToScheme, inventoryv1alpha1.AddToScheme} {
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
		Cluster: "east", HubNamespace: "prod", Holder: holder, Local: local, LocalNow: local,
		Hub: func() client.Client { return hub }, HubNow: func() client.Reader { return hub },
		Now: func() time.Time { return *now }, Events: discard{}, Answered: func(error) {},
		Votes: func() (string, bool) { return "", false }, Relist: func(string, string) {},
	})
}

// beat is a pass after d, and one that sees its renewal.
func beat(t *testing.T, h *Heartbeat, now *time.Time, d time.Duration) {
	t.Helper()
	*now = now.Add(d)
	for range 2 {
		if _, err := h.Reconcile(t.Context(), own); err != nil {
			t.Fatal(err)
		}
	}
}

const interval = 11 * time.Second // in which a renewal is due

var own = reconcile.Request{NamespacedName: types.NamespacedName{Name: "east"}}

// TestARestartPublishesAtOnce, and so does another replica: the hub has the renewal that the cluster has kept.
func TestARestartPublishesAtOnce(t *testing.T) {
	now := start
	hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	for _, holder := range []string{"a", "b", "c"} {
		h := process(holder, local, hub, &now)
		if beat(t, h, &now, interval); !h.MayPublish() {
			t.Errorf("%s does not publish", holder)
		}
		if _, lapsed := h.Lapsed(); lapsed != (holder == "a") {
			t.Errorf("%s: lapsed is %v", holder, lapsed)
		}
	}
}

// TestACloneStops: it finds a renewal that its cluster has not kept, and sees another one. The original never notices.
// If that stops, the clone takes over after a Lease's duration; then the original finds the clone, and stops.
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
	if !clone.Cloned() || !clone.foreign.reported || original.Cloned() {
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

// TestALastRenewalThatWasNotKept is taken over after one interval and a fifth: nobody renews it.
func TestALastRenewalThatWasNotKept(t *testing.T) {
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

// TestAnAnswerThatIsLostStopsNobody: the hub took the renewal all the same.
func TestAnAnswerThatIsLostStopsNobody(t *testing.T) {
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
		t.Fatal("the answer was not lost")
	}
	lost = false
	if beat(t, h, &now, time.Second); !h.MayPublish() || h.contested {
		t.Error("it takes its own renewal for another agent's")
	}
}

// TestARestoredHubIsListedAgain: its Lease is older than this agent's last renewal.
func TestARestoredHubIsListedAgain(t *testing.T) {
	now := start
	hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	h := process("a", local, hub, &now)
	var relists []string
	h.Relist = func(reason, _ string) { relists = append(relists, reason) }
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
	if len(relists) > 0 {
		t.Fatalf("%q", relists)
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
	if _, lapsed := h.Lapsed(); !slices.Equal(relists, []string{"HubRestored"}) || !lapsed || !h.MayPublish() {
		t.Errorf("%q, lapsed %v, publishes %v", relists, lapsed, h.MayPublish())
	}
}

// TestT1RenewalsGoForwardThoughTheHubForgot what the last one said, and the clock that said it was put right: else
// peers would take each for a backup's until the clock is where it was.
func TestT1RenewalsGoForwardThoughTheHubForgot(t *testing.T) {
	now := start.Add(10 * time.Minute) // it is ahead
	hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	h := process("a", local, hub, &now)
	said := func() time.Time {
		t.Helper()
		var lease coordinationv1.Lease
		if err := hub.Get(t.Context(), types.NamespacedName{Namespace: "prod", Name: "east"}, &lease); err != nil {
			t.Fatal(err)
		}
		return lease.Spec.RenewTime.Time
	}
	for _, restart := range []bool{false, true} {
		beat(t, h, &now, interval)
		last := said()
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
		h.tried = time.Time{}
		beat(t, h, &now, interval)
		if next := said(); !next.After(last) {
			t.Errorf("restart %v: %v after %v", restart, next, last)
		}
	}
}
