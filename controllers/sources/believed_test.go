package sources

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// set is a member's view of others, by their Leases.
type set struct {
	*reconciler
	t          *testing.T
	hub, local client.Client
	now        time.Time
	events     []string
}

func newSet(t *testing.T, most hubv1alpha1.MostSilent, others ...string) *set {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{coordinationv1.AddToScheme, hubv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	of := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	of.Spec.Lease = hubv1alpha1.LeaseSpec{RenewSeconds: 10, DurationSeconds: 40, GraceSeconds: 10, OnExpiry: hubv1alpha1.ExpiryRemove, MostSilent: most}
	hub, local := fake.NewClientBuilder().WithScheme(scheme).WithObjects(of), fake.NewClientBuilder().WithScheme(scheme)
	for _, id := range others {
		hub = hub.WithObjects(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: id}})
	}
	for _, x := range kube.Indexes() {
		if record, ok := x.Object.(*hubv1alpha1.ServiceExportRecord); ok && x.Side == kube.Local {
			local = local.WithIndex(record, x.Field, x.Values)
		}
	}
	s := &set{t: t, hub: hub.Build(), local: local.Build(), now: noon}
	s.restart()
	return s
}

func (s *set) restart() {
	s.reconciler = Controller(&kube.Env{
		Cluster: "me", HubNamespace: "set", Now: func() time.Time { return s.now }, HubSeen: func() time.Time { return s.now }, Events: s,
		Local: s.local, Hub: func() client.Client { return s.hub },
	}).Reconciler.(*reconciler)
}

func (s *set) Event(_ runtime.Object, _, reason, _ string) { s.events = append(s.events, reason) }

// pass lets the hub show own renewals for d, and those of whoever lives.
func (s *set) pass(d time.Duration, all []string, live ...string) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(10 * time.Second)
		for _, id := range all {
			if !slices.Contains(live, id) {
				continue
			}
			lease, at := &coordinationv1.Lease{}, metav1.NewMicroTime(s.now)
			if err := s.hub.Get(s.t.Context(), types.NamespacedName{Namespace: "set", Name: id}, lease); err != nil {
				s.t.Fatal(err)
			}
			lease.Spec.RenewTime = &at
			if err := s.hub.Update(s.t.Context(), lease); err != nil {
				s.t.Fatal(err)
			}
		}
		for _, id := range all {
			if _, err := s.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: id}}); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// dead are those that count as such here.
func (s *set) dead(all []string) (out []string) {
	s.t.Helper()
	for _, id := range all {
		lease := &coordinationv1.Lease{}
		if err := s.local.Get(s.t.Context(), types.NamespacedName{Namespace: kube.SystemNamespace, Name: liveness.LeaseName(id)}, lease); err != nil {
			s.t.Fatal(err)
		}
		if liveness.VerdictOf(lease).Dead {
			out = append(out, id)
		}
	}
	return out
}

// TestT1MostSilentTogether are held, over restarts, and for however long, which is told once; by Expire they go.
func TestT1MostSilentTogether(t *testing.T) {
	for _, most := range []hubv1alpha1.MostSilent{hubv1alpha1.MostSilentExpire, hubv1alpha1.MostSilentHold, ""} {
		hold := most != hubv1alpha1.MostSilentExpire
		all := []string{"a", "b", "c"}
		s := newSet(t, most, all...)
		s.pass(time.Minute, all, all...)
		s.pass(70*time.Second, all, "c")
		s.restart()
		s.pass(10*time.Minute, all, "c")
		want := []string{"a", "b"}
		if hold {
			want = nil
		}
		if got := s.dead(all); !slices.Equal(got, want) {
			t.Fatalf("mostSilent %q: dead are %v, want %v", most, got, want)
		}
		if s.Held() != hold {
			t.Fatalf("mostSilent %q: held is %v", most, s.Held())
		}
		if !hold {
			continue
		}
		s.pass(10*time.Second, all, all...)
		s.pass(10*time.Minute, all, "b", "c")
		if got := s.dead(all); !slices.Equal(got, []string{"a"}) {
			t.Errorf("after the others returned dead are %v, want a, which stays away alone", got)
		}
		if want := []string{"SourcesHeld", "SourcesHeld", "SourceExpired"}; !slices.Equal(s.events, want) { // one of each process
			t.Errorf("Events %v, want %v", s.events, want)
		}
	}
}

// TestT1AStartHoldsNobody: an agent that was away for long sees with its first look who has renewed since, and goes by that at once.
func TestT1AStartHoldsNobody(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	s := newSet(t, hubv1alpha1.MostSilentHold, all...)
	s.pass(time.Minute, all, all...)
	s.now = s.now.Add(time.Hour)
	s.restart()
	s.pass(70*time.Second, all, "a", "b", "c")
	if got := s.dead(all); !slices.Equal(got, []string{"d"}) || slices.Contains(s.events, "SourcesHeld") {
		t.Errorf("dead are %v, want d; Events %v", got, s.events)
	}
}
