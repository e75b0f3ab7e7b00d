package sources

import (
	"slices"
	"strings"
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
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// set is a member's view of others, by their Leases.
type set struct {
	*Reconciler
	t          testing.TB
	hub, local client.Client
	now        time.Time
	shown      time.Time // the latest own renewal, where that is not now
	events     []string
	notes      []string
}

func newSet(t testing.TB, most hubv1alpha1.MostSilent, others ...string) *set {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{coordinationv1.AddToScheme, hubv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	of := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	of.Spec.Lease = hubv1alpha1.LeaseSpec{
		RenewSeconds:    10,
		DurationSeconds: 40,
		GraceSeconds:    10,
		OnExpiry:        hubv1alpha1.ExpiryRemove,
		MostSilent:      most,
	}
	hub, local := fake.NewClientBuilder().
		WithScheme(scheme).
		WithObjects(of),
		fake.NewClientBuilder().
			WithScheme(scheme)
	for _, id := range others {
		hub = hub.WithObjects(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: id,
			Annotations: map[string]string{withdrawal.AnnotationAcknowledged: ""}}})
	}
	for _, x := range kube.Indexes() {
		switch record := x.Object.(type) {
		case *hubv1alpha1.ServiceExportRecord:
			if x.Side == kube.Local {
				local = local.WithIndex(record, x.Field, x.Values)
			} else {
				hub = hub.WithIndex(record, x.Field, x.Values)
			}
		case *hubv1alpha1.EndpointPage:
			if x.Side == kube.Hub {
				hub = hub.WithIndex(record, x.Field, x.Values)
			}
		}
	}
	s := &set{t: t, hub: hub.Build(), local: local.Build(), now: noon}
	s.restart()
	return s
}

func (s *set) restart() {
	s.Reconciler = New(Config{
		Member: kube.Member{
			Cluster: "me", HubNamespace: "set", Now: func() time.Time { return s.now }, Events: s,
			Local: s.local, Hub: func() client.Client { return s.hub },
		},
		HubSeen: s.hubSeen,
	})
}

func (s *set) hubSeen() time.Time {
	if s.shown.IsZero() {
		return s.now
	}
	return s.shown
}

func (s *set) Event(_ runtime.Object, _, reason, note string) {
	s.events, s.notes = append(s.events, reason), append(s.notes, note)
}

// pass lets the hub show own renewals for d, and those of whoever lives.
func (s *set) pass(d time.Duration, all []string, live ...string) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(10 * time.Second)
		for _, id := range all {
			if !slices.Contains(live, id) {
				continue
			}
			s.renew(id)
		}
		for _, id := range all {
			if _, err := s.Reconcile(
				s.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: id}},
			); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

func (s *set) renew(id string) {
	s.t.Helper()
	lease, at := &coordinationv1.Lease{}, metav1.NewMicroTime(s.now)
	if err := s.hub.Get(s.t.Context(), types.NamespacedName{Namespace: "set", Name: id}, lease); err != nil {
		s.t.Fatal(err)
	}
	lease.Spec.RenewTime = &at
	if err := s.hub.Update(s.t.Context(), lease); err != nil {
		s.t.Fatal(err)
	}
}

// grace sets spec.lease.graceSeconds.
func (s *set) grace(seconds int32) {
	s.t.Helper()
	of := &hubv1alpha1.ClusterSet{}
	if err := s.hub.Get(s.t.Context(), types.NamespacedName{Namespace: "set", Name: "set"}, of); err != nil {
		s.t.Fatal(err)
	}
	of.Spec.Lease.GraceSeconds = seconds
	if err := s.hub.Update(s.t.Context(), of); err != nil {
		s.t.Fatal(err)
	}
}

// dead are those that count as such here.
func (s *set) expired(all []string) (out []string) {
	s.t.Helper()
	for _, id := range all {
		lease := &coordinationv1.Lease{}
		if err := s.local.Get(
			s.t.Context(),
			types.NamespacedName{Namespace: kube.SystemNamespace, Name: liveness.LeaseName(id)},
			lease,
		); err != nil {
			s.t.Fatal(err)
		}
		if liveness.StateOf(lease).Expired {
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
		if got := s.expired(all); !slices.Equal(got, want) {
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
		if got := s.expired(all); !slices.Equal(got, []string{"a"}) {
			t.Errorf("after the others returned dead are %v, want a, which stays away alone", got)
		}
		if want := []string{
			"SourcesHeld",
			"SourcesHeld",
			"SourceExpired",
		}; !slices.Equal(s.events, want) { // one of each process
			t.Errorf("Events %v, want %v", s.events, want)
		}
	}
}

// TestT1WithALongGraceMembersComeBackOneByOne: docs/operate.md says to set it before the first one is back.
func TestT1WithALongGraceMembersComeBackOneByOne(t *testing.T) {
	all := []string{"a", "b", "late"}
	for grace, want := range map[int32]int{10: 1, 86400: 0} {
		s := newSet(t, hubv1alpha1.MostSilentHold, all...)
		s.pass(time.Minute, all, all...)
		s.now = s.now.Add(30 * time.Hour) // the hub was away
		s.grace(grace)
		s.restart()
		s.pass(2*time.Hour, all, "a", "b")
		if got := s.expired(all); len(got) != want {
			t.Errorf("with %d seconds, expired are %v", grace, got)
		}
		s.pass(10*time.Second, all, all...)
		s.grace(10)
		if s.pass(time.Hour, all, all...); len(s.expired(all)) != 0 {
			t.Errorf("all are back, and expired are %v", s.expired(all))
		}
	}
}

// TestT1WhoIsEvictedIsHeldNoLonger, also where those who are held are all that there are: with the next own renewal.
func TestT1WhoIsEvictedIsHeldNoLonger(t *testing.T) {
	all := []string{"a", "b"}
	s := newSet(t, hubv1alpha1.MostSilentHold, all...)
	s.pass(time.Minute, all, all...)
	s.pass(10*time.Minute, all)
	if !s.Held() {
		t.Fatal("two of two are silent, and nobody is held")
	}
	for _, id := range all {
		if err := s.hub.Delete(
			t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: id}},
		); err != nil {
			t.Fatal(err)
		}
	}
	s.pass(10*time.Second, all)
	for _, req := range s.requestsForLease(t.Context(),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "me"}}) {
		if _, err := s.Reconcile(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if s.Held() {
		t.Error("nobody else is left, and most of them are held")
	}
}

// TestT1AStartHoldsNobody: an agent that was away for long sees with its first look who has renewed since, and goes
// by that at once.
func TestT1AStartHoldsNobody(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	s := newSet(t, hubv1alpha1.MostSilentHold, all...)
	s.pass(time.Minute, all, all...)
	s.now = s.now.Add(time.Hour)
	s.restart()
	s.pass(70*time.Second, all, "a", "b", "c")
	if got := s.expired(all); !slices.Equal(got, []string{"d"}) || slices.Contains(s.events, "SourcesHeld") {
		t.Errorf("dead are %v, want d; Events %v", got, s.events)
	}
}

// TestT1ARestartAtAnyMomentOfASilence, of five seconds: who is silent goes within 65 s of its last renewal all the
// same, and not before 50.
func TestT1ARestartAtAnyMomentOfASilence(t *testing.T) {
	all := []string{"a"}
	for phase := 0; phase < 10; phase += 3 { // of the own renewals to those of a
		for killed := -5; killed < 50; killed += 2 {
			s := newSet(t, hubv1alpha1.MostSilentHold, all...)
			last := s.now.Add(30 * time.Second)
			s.shown = s.now
			own, due := s.now.Add(time.Duration(phase)*time.Second), s.now
			for ; ; s.now = s.now.Add(time.Second) {
				silent := int(s.now.Sub(last) / time.Second)
				renews := silent <= 0 && silent%10 == 0
				if renews {
					s.renew("a")
				}
				if silent >= killed && silent < killed+5 {
					continue
				}
				beats := !s.now.Before(own)
				if silent == killed+5 {
					s.restart()
					beats = true
				}
				if beats {
					s.shown, own = s.now, s.now.Add(10*time.Second)
				}
				if renews || beats || !s.now.Before(due) {
					again, err := s.Reconcile(
						t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}},
					)
					if err != nil {
						t.Fatal(err)
					}
					due = s.now.Add(again.RequeueAfter)
				}
				if dead := len(s.expired(all)) > 0; dead && silent < 50 || dead != (silent > 65) && silent >= 65 {
					t.Fatalf(
						"own renewals %d s after a's, killed %d s into a's silence: dead is %v after %d s",
						phase,
						killed,
						dead,
						silent,
					)
				} else if dead {
					break
				}
			}
		}
	}
}

// TestT3AReturnIsTold, with how long it took; and where it is damped at once, and until when.
func TestT3AReturnIsTold(t *testing.T) {
	all := []string{"a", "b", "c"}
	s := newSet(t, hubv1alpha1.MostSilentHold, all...)
	s.pass(time.Minute, all, all...)
	for range 2 {
		s.pass(70*time.Second, all, "b", "c")
		s.pass(10*time.Second, all, all...)
	}
	s.pass(70*time.Second, all, "b", "c")
	s.pass(10*time.Second, all, all...)
	back := s.now
	s.restart()
	s.pass(time.Minute, all, all...)
	want := []string{
		"SourceExpired",
		"SourceLive",
		"SourceExpired",
		"SourceLive",
		"SourceExpired",
		"SourceDamped",
		"SourceLive",
	}
	if !slices.Equal(s.events, want) {
		t.Fatalf("Events %v, want %v", s.events, want)
	}
	for i, text := range map[int]string{1: "live again, after 20s", 5: "until " +
		back.Add(30*time.Second).UTC().Format(time.RFC3339), 6: "live again, after 50s"} {
		if !strings.Contains(s.notes[i], text) {
			t.Errorf("%s says %q, want %q", s.events[i], s.notes[i], text)
		}
	}
}

// TestF5AnExpiredMemberIsStated to others, although its agent never answered and its Lease alone decided.
func TestF5AnExpiredMemberIsStated(t *testing.T) {
	all := []string{"a", "b", "c"}
	s := newSet(t, hubv1alpha1.MostSilentHold, all...)
	s.pass(time.Minute, all, all...)
	last := s.now
	s.pass(10*time.Minute, all, "b", "c")
	got, err := Unreachable(t.Context(), s.local)
	if err != nil || len(got) != 1 || !got["a"].Equal(last) {
		t.Errorf("%v, %v; want a since %v", got, err, last)
	}
}
