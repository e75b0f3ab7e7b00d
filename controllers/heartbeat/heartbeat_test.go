package heartbeat

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(start.Add(d)) }

// watcher is a Heartbeat with a clock that is set by hand.
type watcher struct {
	*Heartbeat
	now     time.Time
	relists []string
	events  int
}

func (w *watcher) Event(runtime.Object, string, string, string) { w.events++ }

func newWatcher() *watcher {
	w := &watcher{now: start}
	env := &kube.Env{Cluster: "east", Now: func() time.Time { return w.now }, Events: w}
	env.Relist = func(reason, _ string) { w.relists = append(w.relists, reason) }
	w.Heartbeat = New(env, "me")
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
		if said := next(start.Add(now), &last); !last.Before(&said) || now < time.Second && said.Sub(last.Time) != time.Microsecond {
			t.Errorf("%v: %v after %v", now, said, last)
		}
	}
	if said := next(start, nil); !said.Equal(&last) {
		t.Errorf("the first one says %v", said)
	}
}

// TestShownOnceAnOwnRenewalWasSeen, and by nobody else's.
func TestShownOnceAnOwnRenewalWasSeen(t *testing.T) {
	w := newWatcher()
	shown := func() bool {
		select {
		case <-w.Shown():
			return true
		default:
			return false
		}
	}
	w.remember(after(0))
	w.note("west", lease("them", after(0)))
	w.note("east", lease("who was before", after(-time.Minute)))
	if shown() {
		t.Error("shown by the renewals of others")
	}
	for _, renewed := range []metav1.MicroTime{after(0), after(time.Second)} {
		w.remember(renewed)
		if w.note("east", lease("me", renewed)); !shown() {
			t.Error("not shown by an own renewal")
		}
	}
}

// TestFreshByOwnRenewalsOfLate: a watch may be slower than renewals are, but not so slow that it shows the hub as it was.
func TestFreshByOwnRenewalsOfLate(t *testing.T) {
	for _, c := range []struct {
		what   string
		behind time.Duration
		fresh  bool
	}{{"at once", 0, true}, {"by one renewal", 10 * time.Second, true}, {"by less than half of the duration", 19 * time.Second, true}, {"by half of it", 20 * time.Second, false}, {"by far", time.Minute, false}} {
		w := newWatcher()
		for d := time.Duration(0); d < 5*time.Minute; d += 10 * time.Second {
			w.now = start.Add(d)
			w.remember(after(d))
			for e := time.Duration(0); e < 10*time.Second; e += time.Second {
				w.now = start.Add(d + e)
				if shown := d + e - c.behind; shown >= 0 {
					w.note("east", lease("me", after(shown.Truncate(10*time.Second))))
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
	w.remember(after(0))
	w.now = start.Add(10 * time.Second)
	w.remember(after(10 * time.Second))
	w.note("east", lease("me", after(10*time.Second)))
	seen := w.HubSeen()
	w.now = start.Add(12 * time.Second)
	for what, l := range map[string]*coordinationv1.Lease{
		"a clone's": lease("clone", after(11*time.Second)), "a backup's": lease("me", after(0)), "none": nil, "an empty one": {}, "the same": lease("me", after(10*time.Second)),
	} {
		if w.note("east", l); !w.HubSeen().Equal(seen) {
			t.Errorf("%s counts", what)
		}
	}
	w.now = seen.Add(40 * time.Second)
	if w.Fresh() {
		t.Error("fresh after a Lease's duration")
	}
}

// TestHubSilent: only renewals that were taken and not shown count, for longer than a duration; a hub that was away was not silent.
func TestHubSilent(t *testing.T) {
	w := newWatcher()
	w.now = start.Add(time.Hour) // it was away
	w.remember(after(time.Hour))
	for range 4 { // taken at 0, 10, 20 and 30 s
		w.suspect()
		w.now = w.now.Add(10 * time.Second)
	}
	w.suspect()
	if len(w.relists) > 0 {
		t.Fatalf("relisted after %v", 40*time.Second)
	}
	w.now = w.now.Add(time.Second)
	if w.suspect(); len(w.relists) != 1 {
		t.Fatal("not relisted after 41 s")
	}
	if w.suspect(); len(w.relists) != 1 {
		t.Error("relisted again at once: what is opened now has as long again")
	}
	w.remember(after(2 * time.Hour))
	w.note("east", lease("me", after(2*time.Hour)))
	if w.suspect(); len(w.relists) != 1 {
		t.Error("relisted though the hub shows renewals again")
	}
}

// TestRenewalsThatFailNowAndThenHideNoSilence: only what the hub was away for is taken out.
func TestRenewalsThatFailNowAndThenHideNoSilence(t *testing.T) {
	w := newWatcher()
	w.remember(after(0))
	for range 20 { // every other one fails, and is tried again after two seconds
		w.suspect()
		w.now = w.now.Add(12 * time.Second)
	}
	if len(w.relists) == 0 {
		t.Error("four minutes without a sight of what the hub took, and no new start")
	}
}

// TestWhichOfTwoClonesKeepsStill: the one that found the other when it began, once that has renewed twice; also after the other's restart.
func TestWhichOfTwoClonesKeepsStill(t *testing.T) {
	const duration = 40 * time.Second
	for _, c := range []struct {
		what        string
		predecessor string
		holders     []string // ten seconds apart; "" for nobody
		still       bool
	}{
		{"one renewal of a leader that has just lost", "old", []string{"old"}, false},
		{"an elder one", "old", []string{"old", "old"}, true},
		{"a younger one", "", []string{"new", "new", "new"}, false},
		{"an elder one that restarts", "old", []string{"old", "old", "old2"}, true},
		{"an elder one that has stopped", "old", []string{"old", "old", "", "", "", ""}, false},
		{"a younger one after an elder one has stopped", "old", []string{"old", "old", "", "", "", "", "new", "new"}, false},
	} {
		r, now := rival{}, start
		for _, holder := range c.holders {
			now = now.Add(10 * time.Second)
			if holder != "" {
				r = r.saw(holder, now, now, duration, c.predecessor)
				r = r.saw(holder, now, now, duration, c.predecessor) // the same, shown twice
			}
		}
		if got := r.rules(now, duration); got != c.still {
			t.Errorf("%s: keeps still %v", c.what, got)
		}
	}
}

// TestANewcomerKeepsStill until its predecessor would have renewed twice, were it an elder one that lives.
func TestANewcomerKeepsStill(t *testing.T) {
	const every = 10 * time.Second
	for _, c := range []struct {
		what        string
		predecessor string
		succeeded   bool
		renews      []time.Duration // the predecessor, after the first sight of an own renewal
		at          time.Duration
		still       bool
	}{
		{"nobody held the Lease", "", false, nil, 0, false},
		{"its own one that has ended, at first", "old", false, nil, 11 * time.Second, true},
		{"and then", "old", false, nil, 12 * time.Second, false},
		{"it renewed once", "old", false, []time.Duration{9 * time.Second}, 20 * time.Second, true},
		{"a leader's last one", "old", false, []time.Duration{9 * time.Second}, 21 * time.Second, false},
		{"it lives", "old", false, []time.Duration{9 * time.Second, 19 * time.Second}, 50 * time.Second, true},
		{"its own last renewal stands", "old", true, nil, 0, false},
		{"and yet somebody renews in its place", "old", true, []time.Duration{9 * time.Second}, 20 * time.Second, true},
	} {
		r := rival{}
		for _, d := range c.renews {
			r = r.saw("old", start.Add(d), start.Add(d), 40*time.Second, c.predecessor)
		}
		now := start.Add(c.at)
		if got := r.rules(now, 40*time.Second) || r.mayCome(start, now, every, c.predecessor, c.succeeded); got != c.still {
			t.Errorf("%s: keeps still %v", c.what, got)
		}
	}
	if w := newWatcher(); !w.Still() {
		t.Error("it publishes before it has been seen to renew")
	}
}

// TestRivalIsToldOnce, and nobody's renewals before the own first one are a rival's.
func TestRivalIsToldOnce(t *testing.T) {
	w := newWatcher()
	w.predecessor = "other"
	w.watchRival(lease("other", after(0)))
	if w.rival.renewals != 0 {
		t.Error("a predecessor is a rival")
	}
	w.remember(after(0))
	w.note("east", lease("me", after(0)))
	for i := range 5 {
		w.now = start.Add(time.Duration(i+1) * time.Second)
		w.watchRival(lease("other", metav1.NewMicroTime(w.now)))
		w.watchRival(lease("me", metav1.NewMicroTime(w.now)))
	}
	if !w.Rival() || w.events != 1 {
		t.Errorf("keeps still %v, told %d times", w.Rival(), w.events)
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

// TestT1ALeaseThatIsMadeAnewIsAFirstSight, also by a clock that is behind the one before: a backup of the hub's objects makes them anew, and
// what it states is none of its owner's word before that renews. One that is older is a backup's in any case.
func TestT1ALeaseThatIsMadeAnewIsAFirstSight(t *testing.T) {
	for made, taken := range map[time.Duration]bool{time.Minute: true, -time.Minute: false, 0: false} {
		w := newWatcher()
		first := lease("them", after(time.Hour))
		first.CreationTimestamp = metav1.NewTime(start)
		w.note("west", first)
		first.Spec.RenewTime.Time = first.Spec.RenewTime.Add(10 * time.Second)
		if w.note("west", first); !w.seen["west"].changed {
			t.Fatal("a renewal is no change")
		}
		again := lease("others", after(0))
		again.CreationTimestamp = metav1.NewTime(start.Add(made))
		again.Annotations = map[string]string{liveness.AnnotationRecords: "what they state"}
		w.now = start.Add(time.Minute)
		w.note("west", again)
		if s := w.seen["west"]; s.changed == taken || (s.states != "") != taken || s.at.Equal(w.now) != taken {
			t.Errorf("made %v later: seen to change %v, states %q", made, s.changed, s.states)
		}
		again.Spec.RenewTime = ptr.To(after(10 * time.Second))
		w.note("west", again)
		if s := w.seen["west"]; !s.changed || (s.states != "") != taken {
			t.Errorf("made %v later, and renewed: seen to change %v, states %q", made, s.changed, s.states)
		}
	}
}
