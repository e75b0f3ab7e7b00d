package heartbeat

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(start.Add(d)) }

// watcher is a Heartbeat with a clock that is set by hand.
type watcher struct {
	*Heartbeat
	now     time.Time
	relists []string
}

// discard is kube.Events that nobody reads.
type discard struct{}

func (discard) Event(runtime.Object, string, string, string) {}

func newWatcher() *watcher {
	w := &watcher{now: start}
	w.Heartbeat = New(Config{
		Cluster: "east", Holder: "me", Now: func() time.Time { return w.now }, Events: discard{},
		Relist: func(reason, _ string) { w.relists = append(w.relists, reason) },
	})
	return w
}

func lease(holder string, renewed metav1.MicroTime) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	l.Spec.HolderIdentity, l.Spec.RenewTime = &holder, &renewed
	return l
}

// TestRenewalsOnlyGoForward: one that is not later than the last is none to others, whatever the clock does.
func TestRenewalsOnlyGoForward(t *testing.T) {
	last := after(0)
	for _, now := range []time.Duration{-time.Hour, 0, time.Nanosecond, time.Second} {
		if said := next(
			start.Add(now),
			&last,
		); !last.Before(&said) ||
			now < time.Second && said.Sub(last.Time) != time.Microsecond {
			t.Errorf("%v: %v after %v", now, said, last)
		}
	}
	if said := next(start, nil); !said.Equal(&last) {
		t.Errorf("the first one says %v", said)
	}
}

// TestAnAgentPublishesOnceTheHubShowsItsRenewal, and not for anybody else's.
func TestAnAgentPublishesOnceTheHubShowsItsRenewal(t *testing.T) {
	w := newWatcher()
	w.addWritten(after(0))
	w.observe("west", lease("them", after(0)))
	w.observe("east", lease("who was before", after(-time.Minute)))
	if w.MayPublish() {
		t.Error("it publishes by the renewals of others")
	}
	if w.observe("east", lease("me", after(0))); !w.MayPublish() {
		t.Error("it does not publish after its own renewal")
	}
}

// TestFreshByOwnRenewalsOfLate: a watch may be slower than renewals are, but not so slow that it shows the hub as it
// was.
func TestFreshByOwnRenewalsOfLate(t *testing.T) {
	for _, c := range []struct {
		what   string
		behind time.Duration
		fresh  bool
	}{{"at once", 0, true}, {"by one renewal", 10 * time.Second, true}, {"by less than half of the duration", 19 * time.Second, true}, {"by half of it", 20 * time.Second, false}, {"by far", time.Minute, false}} {
		w := newWatcher()
		for d := time.Duration(0); d < 5*time.Minute; d += 10 * time.Second {
			w.now = start.Add(d)
			w.addWritten(after(d))
			for e := time.Duration(0); e < 10*time.Second; e += time.Second {
				w.now = start.Add(d + e)
				if shown := d + e - c.behind; shown >= 0 {
					w.observe("east", lease("me", after(shown.Truncate(10*time.Second))))
				}
			}
		}
		if w.Fresh() != c.fresh {
			t.Errorf("late %s: fresh %v", c.what, w.Fresh())
		}
	}
}

// TestWhatIsNoSightOfTheHub: another's renewal, an own one that came back from a backup, and none at all.
func TestWhatIsNoSightOfTheHub(t *testing.T) {
	w := newWatcher()
	w.addWritten(after(0))
	w.now = start.Add(10 * time.Second)
	w.addWritten(after(10 * time.Second))
	w.observe("east", lease("me", after(10*time.Second)))
	seen := w.HubSeen()
	w.now = start.Add(12 * time.Second)
	for what, l := range map[string]*coordinationv1.Lease{
		"a clone's": lease("clone", after(11*time.Second)), "a backup's": lease("me", after(0)), "none": nil, "an empty one": {}, "the same": lease("me", after(10*time.Second)),
	} {
		if w.observe("east", l); !w.HubSeen().Equal(seen) {
			t.Errorf("%s counts", what)
		}
	}
	w.now = seen.Add(40 * time.Second)
	if w.Fresh() {
		t.Error("fresh after a Lease's duration")
	}
}

// TestHubSilent: the hub takes renewals and shows none for longer than a duration. Each further relist waits twice as
// long, until one is shown.
func TestHubSilent(t *testing.T) {
	w := newWatcher()
	var at []time.Duration
	for d := time.Duration(0); d <= 150*time.Second; d += time.Second {
		w.now = start.Add(d)
		if w.checkSilence(); len(w.relists) > len(at) {
			at = append(at, d)
		}
	}
	if want := []time.Duration{41 * time.Second, 123 * time.Second}; !slices.Equal(at, want) {
		t.Errorf("listed again after %v, want %v", at, want)
	}
	w.addWritten(after(150 * time.Second))
	w.observe("east", lease("me", after(150*time.Second)))
	w.checkSilence()
	if w.now = w.now.Add(41 * time.Second); w.silences != 0 {
		t.Error("a hub that shows renewals is still taken for a silent one")
	}
	if w.checkSilence(); len(w.relists) != 3 {
		t.Errorf("listed again %d times", len(w.relists))
	}
}

// TestMissed: since when, as long as it is asked for.
func TestMissed(t *testing.T) {
	w := newWatcher()
	for _, step := range []struct{ after, since time.Duration }{{0, 0}, {50 * time.Second, 0}, {60 * time.Second, 0}, {121 * time.Second, 121 * time.Second}} {
		w.now = start.Add(step.after)
		if got := w.missed("web.shop.west").Sub(start); got != step.since {
			t.Errorf("after %v: missed since %v, want %v", step.after, got, step.since)
		}
	}
	w = newWatcher()
	for _, step := range []struct {
		record string
		after  time.Duration
	}{{"x", 0}, {"web", 10 * time.Second}, {"x", 61 * time.Second}, {"web", 75 * time.Second}} { // what was dropped last is no matter
		w.now = start.Add(step.after)
		if got := w.missed(step.record).Sub(start); got != step.after {
			t.Errorf("%s after %v: missed since %v", step.record, step.after, got)
		}
	}
}

// TestT1ALeaseThatIsMadeAnewIsAFirstSight, also by a clock that is behind the one before: a backup of the hub's objects
// makes them anew, and what it states is none of its owner's word before that renews. One that is older is a backup's
// in any case.
func TestT1ALeaseThatIsMadeAnewIsAFirstSight(t *testing.T) {
	for made, taken := range map[time.Duration]bool{time.Minute: true, -time.Minute: false, 0: false} {
		w := newWatcher()
		first := lease("them", after(time.Hour))
		first.CreationTimestamp = metav1.NewTime(start)
		w.observe("west", first)
		first.Spec.RenewTime.Time = first.Spec.RenewTime.Add(10 * time.Second)
		if w.observe("west", first); !w.seen["west"].changed {
			t.Fatal("a renewal is no change")
		}
		again := lease("others", after(0))
		again.CreationTimestamp = metav1.NewTime(start.Add(made))
		again.Annotations = map[string]string{liveness.AnnotationRecords: "what they state"}
		w.now = start.Add(time.Minute)
		w.observe("west", again)
		if s := w.seen["west"]; s.changed == taken || (s.states != "") != taken || s.at.Equal(w.now) != taken {
			t.Errorf("made %v later: seen to change %v, states %q", made, s.changed, s.states)
		}
		again.Spec.RenewTime = ptr.To(after(10 * time.Second))
		w.observe("west", again)
		if s := w.seen["west"]; !s.changed || (s.states != "") != taken {
			t.Errorf("made %v later, and renewed: seen to change %v, states %q", made, s.changed, s.states)
		}
	}
}
