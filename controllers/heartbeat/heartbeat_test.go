package heartbeat

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(start.Add(d)) }

// watcher is a Heartbeat with a manual clock.
type watcher struct {
	*Heartbeat
	now   time.Time
	lists int
}

// discard implements kube.Events and records none.
type discard struct{}

func (discard) Event(runtime.Object, string, string, string) {}

// reasons implements kube.Events and records the reasons.
type reasons []string

func (r *reasons) Event(_ runtime.Object, _, reason, _ string) { *r = append(*r, reason) }

func newWatcher() *watcher {
	w := &watcher{now: start.Add(-time.Hour)}
	w.Heartbeat = New(Config{
		Member: kube.Member{
			Cluster: "east", Now: func() time.Time { return w.now }, Events: discard{},
		},
		Holder:    "me",
		ListAgain: func() { w.lists++ },
	})
	w.now = start
	return w
}

// wrote notes a renewal by this process.
func (w *watcher) wrote(renewTime metav1.MicroTime) {
	w.written = append(w.recent(), renewal{renewTime, w.now})
}

func lease(holder string, renewed metav1.MicroTime) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	l.Spec.HolderIdentity, l.Spec.RenewTime = &holder, &renewed
	return l
}

// TestRenewTimeOnlyIncreases, because other members ignore a renewal that is not later than the last one.
func TestRenewTimeOnlyIncreases(t *testing.T) {
	last := after(0)
	for _, now := range []time.Duration{-time.Hour, 0, time.Nanosecond, time.Second} {
		got := laterThan(start.Add(now), &last)
		if !last.Before(&got) || now < time.Second && got.Sub(last.Time) != time.Microsecond {
			t.Errorf("%v: %v after %v", now, got, last)
		}
	}
	if got := laterThan(start, nil); !got.Equal(&last) {
		t.Errorf("the first renewTime is %v", got)
	}
}

// TestAnAgentPublishesOnceTheHubShowsItsRenewal: a renewal by another process does not count.
func TestAnAgentPublishesOnceTheHubShowsItsRenewal(t *testing.T) {
	w := newWatcher()
	w.wrote(after(0))
	w.observe(lease("who was before", after(-time.Minute)))
	if w.MayPublish() {
		t.Error("it publishes by the renewals of others")
	}
	if w.observe(lease("me", after(0))); !w.MayPublish() {
		t.Error("it does not publish after its own renewal")
	}
}

// TestFreshByRecentRenewals: a watch may lag by more than an interval, but by less than half of the Lease's duration.
func TestFreshByRecentRenewals(t *testing.T) {
	for _, c := range []struct {
		what  string
		lag   time.Duration
		fresh bool
	}{
		{"not", 0, true},
		{"by one renewal", 10 * time.Second, true},
		{"by less than half of the duration", 19 * time.Second, true},
		{"by half of it", 20 * time.Second, false},
		{"by far", time.Minute, false},
	} {
		w := newWatcher()
		for d := time.Duration(0); d < 5*time.Minute; d += 10 * time.Second {
			w.now = start.Add(d)
			w.wrote(after(d))
			for e := time.Duration(0); e < 10*time.Second; e += time.Second {
				w.now = start.Add(d + e)
				if shown := d + e - c.lag; shown >= 0 {
					w.observe(lease("me", after(shown.Truncate(10*time.Second))))
				}
			}
		}
		if w.Fresh() != c.fresh {
			t.Errorf("late %s: fresh %v", c.what, w.Fresh())
		}
	}
}

// TestHubIsNotSeenWithoutAnOwnRenewal: another agent's renewal, an own one from a backup, and none at all.
func TestHubIsNotSeenWithoutAnOwnRenewal(t *testing.T) {
	w := newWatcher()
	w.wrote(after(0))
	w.now = start.Add(10 * time.Second)
	w.wrote(after(10 * time.Second))
	w.observe(lease("me", after(10*time.Second)))
	seen := w.HubSeen()
	w.now = start.Add(12 * time.Second)
	for what, l := range map[string]*coordinationv1.Lease{
		"a clone's":    lease("clone", after(11*time.Second)),
		"a backup's":   lease("me", after(0)),
		"none":         nil,
		"an empty one": {},
		"the same":     lease("me", after(10*time.Second)),
	} {
		if w.observe(l); !w.HubSeen().Equal(seen) {
			t.Errorf("%s counts", what)
		}
	}
	w.now = seen.Add(40 * time.Second)
	if w.Fresh() {
		t.Error("fresh after a Lease's duration")
	}
}

// TestHubSilent: the hub accepts renewals and shows none for longer than a Lease's duration. The limit doubles with
// each list, until a renewal is shown.
func TestHubSilent(t *testing.T) {
	w := newWatcher()
	var at []time.Duration
	for d := time.Duration(0); d <= 150*time.Second; d += time.Second {
		w.now = start.Add(d)
		if w.checkWatches(); w.lists > len(at) {
			at = append(at, d)
		}
	}
	if want := []time.Duration{41 * time.Second, 123 * time.Second}; !slices.Equal(at, want) {
		t.Errorf("listed again after %v, want %v", at, want)
	}
	w.wrote(after(150 * time.Second))
	w.observe(lease("me", after(150*time.Second)))
	w.checkWatches()
	w.now = w.now.Add(41 * time.Second)
	if w.checkWatches(); w.lists != 3 {
		t.Errorf("listed again %d times, want 3: the limit is the first one after a renewal was shown", w.lists)
	}
}
