package inventory

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

type noEvents struct{}

func (noEvents) Event(runtime.Object, string, string, string) {}

// P5: a member that comes and goes for an hour costs no more than half of the budget, and at its end the truth is
// told.
func TestP5FlappingMemberStaysWithinTheBudget(t *testing.T) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{coordinationv1.AddToScheme, hubv1alpha1.AddToScheme,
		inventoryv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	ctx, clock, writes := t.Context(), now, 0
	p := profile()
	p.Namespace, p.Name, p.UID, p.Spec.ClusterManager.Name = "set", "east", "uid", clusterset.ClusterManager
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	set.Spec.Lease.DurationSeconds = 40
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "east"}}
	hub := fake.NewClientBuilder().
		WithScheme(s).
		WithObjects(p, set, lease).
		WithStatusSubresource(p).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object,
				patch client.Patch, opts ...client.SubResourcePatchOption) error {
				writes++
				return c.SubResource(sub).Patch(ctx, o, patch, opts...)
			},
		}).
		Build()
	r := New(kube.HubEnv{
		Namespace: "set", Now: func() time.Time { return clock }, Events: noEvents{}, Hub: hub, Live: hub,
	}).Reconciler
	req := reconcile.Request{NamespacedName: types.NamespacedName{Name: "east"}}
	var due time.Time // of the last pass's next one
	for second := range 3600 {
		clock = now.Add(time.Duration(second) * time.Second)
		renews := second%70 < 30 // then silent for as long as a Lease lasts
		if renews {
			at := metav1.NewMicroTime(clock)
			lease.Spec.RenewTime = &at
			if err := hub.Update(ctx, lease); err != nil {
				t.Fatal(err)
			}
		}
		if !renews && (due.IsZero() || clock.Before(due)) {
			continue
		}
		result, err := r.Reconcile(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		due = time.Time{}
		if result.RequeueAfter > 0 {
			due = clock.Add(result.RequeueAfter)
		}
	}
	if limit := 60 + burst; writes > limit || writes < 50 {
		t.Errorf(
			"%d writes in an hour; at most %d are allowed, and more than a hundred changes were to be told",
			writes, limit,
		)
	}
	for !due.IsZero() {
		clock = due
		result, err := r.Reconcile(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		due = time.Time{}
		if result.RequeueAfter > 0 {
			due = clock.Add(result.RequeueAfter)
		}
	}
	if err := hub.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy); c == nil ||
		c.Reason != ReasonHeartbeatLost {
		t.Errorf("at the end it says %+v", c)
	}
}
