package membership

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// renew writes the member's Lease on the hub, as this cluster's agent does, which keeps here which version that
// was, or as another's.
func (w *world) renew(t *testing.T, own bool) {
	t.Helper()
	lease := get[*coordinationv1.Lease](t, w.hub, "blue", "east")
	write := func(o client.Object) error { return w.hub.Update(t.Context(), o) }
	if lease == nil {
		lease, write = &coordinationv1.Lease{
			ObjectMeta: named("blue", "east"),
		}, func(o client.Object) error { return w.hub.Create(t.Context(), o) }
		lease.Spec.LeaseDurationSeconds = new(int32(40))
	}
	if err := write(lease); err != nil {
		t.Fatal(err)
	}
	if !own {
		return
	}
	kept := &coordinationv1.Lease{ObjectMeta: named(kube.SystemNamespace, clusterset.LeaseRenewed)}
	kept.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	kept.Annotations = map[string]string{clusterset.AnnotationRenewed: kube.Version(lease)}
	if err := w.local.Create(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
}

// told reports whether the hub knows that this member left.
func (w *world) told(t *testing.T) bool {
	return get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east").Annotations[clusterset.AnnotationLeft] != ""
}

// TestID2ACloneTakesNothingFromItsOriginal: it does not leave on the hub, where all is the other's; forced, it
// leaves its own cluster only.
func TestID2ACloneTakesNothingFromItsOriginal(t *testing.T) {
	for what, c := range map[string]struct {
		clone func(t *testing.T, w *world)
		says  string
	}{
		"of another UID": {func(t *testing.T, w *world) {
			p := get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east")
			p.Annotations[clusterset.AnnotationClusterUID] = "uid-of-the-original"
			if err := w.hub.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}, "held by another cluster"},
		"of the same UID": {func(t *testing.T, w *world) {
			w.renew(t, true)
			w.renew(t, false)
		}, "this cluster may be a clone"},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			w := newWorld(t)
			w.settled(t)
			c.clone(t, w)
			w.wish(t, "true")
			g, now := w.gate(), at
			g.Now = func() time.Time { return now }
			for range 20 { // the original renews on
				err := g.Enter(t.Context())
				if err == nil || !strings.Contains(err.Error(), c.says) ||
					!strings.Contains(err.Error(), "leave --force") {
					t.Fatalf("%v, want %q and the way out", err, c.says)
				}
				if now = now.Add(10 * time.Second); what == "of the same UID" {
					w.renew(t, false)
				}
			}
			if w.withdrawn(t) || w.told(t) || w.property(t, clusterset.PropertySet) == "" {
				t.Error("it left all the same")
			}
			w.wish(t, clusterset.LeavingForced)
			if err := w.gate().Enter(t.Context()); !errors.Is(err, ErrLeft) {
				t.Fatal(err)
			}
			if wrong := w.gone(t); len(wrong) > 0 || w.property(t, clusterset.PropertySet) != "" {
				t.Errorf("forced, it has left %v", wrong)
			}
			if w.withdrawn(t) || w.told(t) {
				t.Error("forced, it took the original out")
			}
		})
	}
}

// TestAForcedLeaveThatFailsOnceTellsTheHub in the next attempt, which the same process makes or another: what shows
// that this is no clone stays till then.
func TestAForcedLeaveThatFailsOnceTellsTheHub(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		each(t, func(t *testing.T, w *world) { forcedOut(t, w, restarts) })
	}
}

func forcedOut(t *testing.T, w *world, restarts bool) {
	broken := w.broken
	w.broken = 0
	w.settled(t)
	w.renew(t, true)
	w.wish(t, clusterset.LeavingForced)
	w.broken = broken
	g := w.gate()
	err := g.Enter(t.Context())
	if again := errors.Is(err, errBroken); again { // else nothing is, or the telling, and it does not wait for that
		if restarts && w.property(t, clusterset.PropertySet) != "" { // without it, whoever begins asks the hub
			g = w.gate()
		}
		if err = g.Enter(t.Context()); !w.told(t) {
			t.Error("the hub is not told")
		}
	}
	if !errors.Is(err, ErrLeft) || w.property(t, clusterset.PropertySet) != "" {
		t.Errorf("it has not left: %v", err)
	}
	if wrong := w.gone(t); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// TestARenewalThatWasNotKeptHoldsLeavingUpNotForLong: until the Lease has run out. One that was kept does not at
// all.
func TestARenewalThatWasNotKeptHoldsLeavingUpNotForLong(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for _, how := range []string{"true", clusterset.LeavingForced} {
			w := newWorld(t)
			w.settled(t)
			w.renew(t, true)
			if lost {
				w.renew(t, false)
			}
			w.wish(t, how)
			g, now := w.gate(), at
			g.Now = func() time.Time { return now }
			err := g.Enter(t.Context())
			if wait := lost && how == "true"; errors.Is(err, ErrLeft) == wait {
				t.Errorf("lost %v, %s: %v at first", lost, how, err)
			}
			if now = now.Add(40 * time.Second); lost && how == "true" {
				err = g.Enter(t.Context())
			}
			if !errors.Is(err, ErrLeft) {
				t.Errorf("lost %v, %s: %v", lost, how, err)
			}
			if want := !lost || how == "true"; w.told(t) != want {
				t.Errorf("lost %v, %s: the hub is told: %v", lost, how, w.told(t))
			}
		}
	}
}
