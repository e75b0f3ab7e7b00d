package heartbeat

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
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

// process is an agent of the member east, in a cluster and on a hub.
func process(holder string, local, hub client.Client, now *time.Time) *Heartbeat {
	env := &kube.Env{
		Cluster: "east", HubNamespace: "prod", Local: local, LocalNow: local,
		Hub: func() client.Client { return hub }, HubNow: func() client.Reader { return hub },
		Now: func() time.Time { return *now }, Events: &watcher{}, Answered: func(error) {},
		Votes: func() (string, bool) { return "", false },
	}
	env.Relist = func(string, string) {}
	return New(env, holder)
}

// beat is a pass in which a renewal is due, and one that sees it.
func beat(t *testing.T, h *Heartbeat, now *time.Time) error {
	t.Helper()
	*now = now.Add(11 * time.Second)
	if _, err := h.Reconcile(t.Context(), own); err != nil {
		return err
	}
	_, err := h.Reconcile(t.Context(), own)
	return err
}

var own = reconcile.Request{NamespacedName: types.NamespacedName{Name: "east"}}

// TestARestartPublishesAtOnce: the version of the Lease that its cluster made last stands on the hub. A clone has what its backup had, and
// of two with the same backup the hub takes one.
func TestARestartPublishesAtOnce(t *testing.T) {
	now := start
	hub, local, copied := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
	backup := func() { // of local
		var kept coordinationv1.Lease
		name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed}
		if err := local.Get(t.Context(), name, &kept); err != nil {
			t.Fatal(err)
		}
		if ptr.Deref(kept.Spec.LeaseDurationSeconds, 0) == 0 {
			t.Errorf("%+v does not tell for how long it holds", kept.Spec)
		}
		_ = copied.Delete(t.Context(), kept.DeepCopy()) // the one before it, if there is one
		kept.ResourceVersion = ""
		if err := copied.Create(t.Context(), &kept); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(holder string, in client.Client, still bool) *Heartbeat {
		t.Helper()
		h := process(holder, in, hub, &now)
		if err := beat(t, h, &now); err != nil {
			t.Fatal(err)
		}
		if h.Still() != still {
			t.Errorf("%s keeps still: %v, want %v", holder, h.Still(), still)
		}
		return h
	}
	begin("the first one", local, false)
	backup()
	begin("its restart", local, false)
	begin("a clone, of a backup from before", copied, true)
	begin("its restart, though nobody has renewed since it did", copied, true)
	before := begin("the restart of who the clone has come after", local, true)
	for before.Still() { // until it is proven that no elder one comes
		if err := beat(t, before, &now); err != nil {
			t.Fatal(err)
		}
	}
	backup()
	last := begin("the last restart", local, false)
	begin("a clone of the same backup, too late", copied, true)
	if err := beat(t, before, &now); err != nil { // it had not ended, whatever this cluster thinks
		t.Fatal(err)
	}
	if _, err := last.Reconcile(t.Context(), own); err != nil || !last.Still() {
		t.Errorf("the last restart goes on beside who renews after all: %v", err)
	}
}

// TestOneSuccessorOnly: what the hub does not take proves nothing, nor does what it took of this very agent.
func TestOneSuccessorOnly(t *testing.T) {
	now, conflict := start, false
	hub := plane(t, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
		if conflict {
			return apierrors.NewConflict(coordinationv1.Resource("leases"), "east", errors.New("changed"))
		}
		return c.Update(ctx, o, opts...)
	}})
	local := plane(t, interceptor.Funcs{})
	if err := beat(t, process("old", local, hub, &now), &now); err != nil {
		t.Fatal(err)
	}
	other := plane(t, interceptor.Funcs{})
	h := process("new", local, hub, &now)
	conflict = true
	if err := beat(t, h, &now); err == nil {
		t.Fatal("it renewed")
	}
	conflict = false
	if err := beat(t, process("another", other, hub, &now), &now); err != nil { // it was first
		t.Fatal(err)
	}
	for range 2 { // renewals
		if err := beat(t, h, &now); err != nil {
			t.Fatal(err)
		}
		if h.succeeded {
			t.Error("it succeeds whom it has not come after")
		}
	}
}

// TestWhatCouldNotBeKeptIsKeptSoon: the own API server was away at a renewal; a restart a moment after it is back succeeds all the same.
func TestWhatCouldNotBeKeptIsKeptSoon(t *testing.T) {
	now, away := start, false
	refuse := func() error {
		if away {
			return errors.New("connection refused")
		}
		return nil
	}
	hub := plane(t, interceptor.Funcs{})
	local := plane(t, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
		if err := refuse(); err != nil {
			return err
		}
		return c.Update(ctx, o, opts...)
	}})
	if err := beat(t, process("before", local, hub, &now), &now); err != nil {
		t.Fatal(err)
	}
	h := process("old", local, hub, &now)
	away = true
	if err := beat(t, h, &now); err != nil {
		t.Fatal(err)
	}
	again, err := h.Reconcile(t.Context(), own)
	if err != nil || again.RequeueAfter != time.Second {
		t.Fatalf("again after %v, want a second (%v)", again.RequeueAfter, err)
	}
	away = false
	if again, err = h.Reconcile(t.Context(), own); err != nil || again.RequeueAfter <= time.Second {
		t.Fatalf("again after %v, want the next renewal (%v)", again.RequeueAfter, err)
	}
	successor := process("new", local, hub, &now)
	if err := beat(t, successor, &now); err != nil {
		t.Fatal(err)
	}
	if _, lapsed := successor.Lapsed(); lapsed {
		t.Error("the hub is as this cluster's last renewal left it, and its agent does not know")
	}
}

// TestT1RenewalsGoForwardThoughTheHubForgot what the last one said, and the clock that said it was put right: else peers would take each for
// a backup's until the clock is where it was.
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
		if err := beat(t, h, &now); err != nil {
			t.Fatal(err)
		}
		last := said()
		if err := hub.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "east"}}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(-10 * time.Minute)
		if restart {
			h = process("b", local, hub, &now)
		}
		h.due = true
		if err := beat(t, h, &now); err != nil {
			t.Fatal(err)
		}
		if next := said(); !next.After(last) {
			t.Errorf("restart %v: %v after %v", restart, next, last)
		}
	}
}
