package record

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// rig is a hub and a member in memory.
type rig struct {
	hub, local client.Client
	lost       int // the member stores so many writes more whose answers are lost
	writes     int
	events     []string
}

func (r *rig) Event(about runtime.Object, _, reason, _ string) {
	r.events = append(r.events, fmt.Sprintf("%s/%s", reason, about.(client.Object).GetUID()))
}

func newRig(t *testing.T, shown *hubv1alpha1.ServiceExportRecord) *rig {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		hubv1alpha1.AddToScheme, mcsv1beta1.Install, discoveryv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{}
	answer := func(err error) error {
		if r.writes++; err == nil && r.lost > 0 {
			r.lost--
			return errors.New("the answer is lost")
		}
		return err
	}
	r.hub = fake.NewClientBuilder().WithScheme(s).WithObjects(shown).Build()
	r.local = fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(shown).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID(types.UID("copy-of-" + o.GetName()))
			return answer(c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return answer(c.Update(ctx, o, opts...))
		},
	}).WithIndex(&discoveryv1.EndpointSlice{}, kube.ByImport, func(client.Object) []string { return nil }).Build()
	return r
}

// settle runs passes, each of a process that remembers nothing, until one writes nothing.
func (r *rig) settle(t *testing.T, name string) {
	t.Helper()
	for range 10 {
		before := r.writes
		agent := reconciler{
			Config{Cluster: "b", HubNamespace: "set", Local: r.local, Hub: func() client.Client { return r.hub },
				Events: r, Now: time.Now},
		}
		_, err := agent.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		if err == nil && r.writes == before {
			return
		}
	}
	t.Fatal("ten passes do not settle it")
}

// TestE9ABackdatedExportIsReported once, whichever write's answer is lost, and recreated where the claim is another.
func TestE9ABackdatedExportIsReported(t *testing.T) {
	const told = "BackdatedExport/copy-of-web.shop.a"
	published := metav1.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name  string
		since time.Duration
		lost  int
		want  int
	}{
		{"at home in time", BackdateTolerance, 0, 0},
		{"backdated", BackdateTolerance + time.Second, 0, 1},
		{"backdated, and the answer to the copy's creation is lost", BackdateTolerance + time.Second, 1, 1},
		{"backdated, and each write's answer is lost", BackdateTolerance + time.Second, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			shown := rec(1, false)
			shown.Namespace, shown.CreationTimestamp = "set", published
			shown.Spec.ExportedAt = new(metav1.NewTime(published.Add(-c.since)))
			r := newRig(t, shown)
			r.lost = c.lost
			r.settle(t, shown.Name)
			if len(r.events) != c.want || c.want > 0 && r.events[0] != told {
				t.Errorf("Events %v, want %d of %s", r.events, c.want, told)
			}
			r.events = nil
			shown.Spec.Revision, shown.Spec.ExportedAt = 2, new(metav1.NewTime(published.Add(-2*BackdateTolerance)))
			if err := r.hub.Update(t.Context(), shown); err != nil {
				t.Fatal(err)
			}
			r.settle(t, shown.Name)
			if len(r.events) != 1 || r.events[0] != told {
				t.Errorf("Events of another claim: %v, want one of %s", r.events, told)
			}
		})
	}
}

// TestC1ACopyKeepsItsRank while the hub is emptied and its owner publishes again. Nothing reports it as backdated then.
// It loses its rank when its owner departs, though this member may see only that it has joined again.
func TestC1ACopyKeepsItsRank(t *testing.T) {
	first := metav1.Unix(1_700_000_000, 0)
	shown := rec(1, false)
	shown.Namespace, shown.CreationTimestamp, shown.Spec.ExportedAt = "set", first, &first
	r := newRig(t, shown)
	r.settle(t, shown.Name)
	if err := r.hub.Delete(t.Context(), shown); err != nil {
		t.Fatal(err)
	}
	shown.ResourceVersion, shown.CreationTimestamp = "", metav1.NewTime(first.AddDate(0, 1, 0))
	if err := r.hub.Create(t.Context(), shown); err != nil {
		t.Fatal(err)
	}
	r.settle(t, shown.Name)
	copied := rec(1, false)
	copied.Namespace = kube.SystemNamespace
	if err := r.local.Get(t.Context(), client.ObjectKeyFromObject(copied), copied); err != nil {
		t.Fatal(err)
	}
	if published := clusterset.Published(copied); !published.Equal(first.Time) ||
		!clusterset.Created(copied).Equal(shown.CreationTimestamp.Time) || len(r.events) > 0 {
		t.Errorf("published %v, created %v, Events %v", published, clusterset.Created(copied), r.events)
	}
	delete(copied.Annotations, clusterset.AnnotationPublished) // a user does
	if err := r.local.Update(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	r.settle(t, shown.Name)
	if err := r.local.Get(t.Context(), client.ObjectKeyFromObject(copied), copied); err != nil {
		t.Fatal(err)
	}
	if !clusterset.Published(copied).Equal(shown.CreationTimestamp.Time) {
		t.Errorf("a copy without a time is not repaired: %v", clusterset.Published(copied))
	}
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	set.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "a", At: metav1.NewTime(first.AddDate(0, 2, 0))}}
	if err := errors.Join(r.hub.Create(t.Context(), set), r.hub.Delete(t.Context(), shown)); err != nil {
		t.Fatal(err)
	}
	shown.ResourceVersion, shown.CreationTimestamp = "", metav1.NewTime(first.AddDate(0, 3, 0))
	if err := r.hub.Create(t.Context(), shown); err != nil {
		t.Fatal(err)
	}
	r.settle(t, shown.Name)
	if err := r.local.Get(t.Context(), client.ObjectKeyFromObject(copied), copied); err != nil {
		t.Fatal(err)
	}
	if !clusterset.Published(copied).Equal(shown.CreationTimestamp.Time) {
		t.Errorf("its cluster departed and joined again, and it counts since %v", clusterset.Published(copied))
	}
}
