package liveness

import (
	"math/rand/v2"
	"testing"
	"time"
)

var limits = Limits{Renew: 10 * time.Second, Expiry: 50 * time.Second}

// watcher is this member, which renews its own Lease every ten seconds.
type watcher struct {
	now         time.Time
	observation Observation
	n           int
}

// written is the n-th renewal of the other member, by that member's clock.
func written(n int) Renewal {
	return Renewal{Created: time.Unix(100, 0), Time: time.Unix(int64(1000+n), 0)}
}

// at is a hub that shows a renewal of this member now.
func at(now time.Time) HubView { return limits.View(now, now) }

func newWatcher() *watcher {
	return &watcher{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// see lets the hub show own renewals for d, each with a renewal of the other member if that is live.
func (w *watcher) see(d time.Duration, live bool) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(limits.Renew)
		if live {
			w.n++
		}
		w.observation = w.observation.Observe(at(w.now), w.now, written(w.n), limits)
	}
}

// TestT1ExpiresWithinSixtySeconds of the last renewal, but not before the duration and the grace period are over.
func TestT1ExpiresWithinSixtySeconds(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	w.see(50*time.Second, false)
	if w.observation.Expired {
		t.Fatal("expired after 50 s")
	}
	w.see(10*time.Second, false)
	if !w.observation.Expired {
		t.Fatal("live after 60 s of silence")
	}
	w.see(10*time.Second, true)
	if w.observation.Expired {
		t.Fatal("expired, though it renews again")
	}
}

// TestS3BlindnessExpiresNobody: while the hub shows no own renewal, silence is not measured, for any time and any
// number of times.
func TestS3BlindnessExpiresNobody(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	for _, away := range []time.Duration{30 * time.Second, 5 * time.Minute, time.Hour} {
		w.now = w.now.Add(away)      // the hub is away, or this agent is
		w.see(10*time.Second, false) // and the other one takes a little longer to come back
		if w.observation.Expired {
			t.Fatal("expired while this member did not see the hub")
		}
		w.see(20*time.Second, true)
	}
}

// TestS3AnUnreachableHubExpiresNobody: the other member last renewed up to one interval before the outage, and renews
// again up to one interval after it. This member observes during the outage, too.
func TestS3AnUnreachableHubExpiresNobody(t *testing.T) {
	for away := time.Second; away < time.Minute; away += time.Second {
		w := newWatcher()
		w.see(time.Minute, true)
		own := w.now.Add(9 * time.Second)
		w.observation = w.observation.Observe(at(own), own, written(w.n), limits)
		for w.now = own; w.now.Before(own.Add(away)); w.now = w.now.Add(time.Second) {
			hub := limits.View(own, w.now)
			w.observation = w.observation.Observe(hub, hub.SeenUntil, written(w.n), limits)
		}
		w.observation = w.observation.Observe(at(w.now), w.now, written(w.n), limits)
		if w.see(limits.Renew, false); w.observation.Expired {
			t.Errorf("unreachable for %v: expired", away)
		}
	}
}

// TestOwnClockJumps forward or back: nobody expires early, and silence is measured again afterwards.
func TestOwnClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		w := newWatcher()
		w.see(time.Minute, true)
		w.now = w.now.Add(jump)
		w.see(40*time.Second, false)
		if w.observation.Expired {
			t.Errorf("%v: expired", jump)
		}
		w.see(30*time.Second, false)
		if !w.observation.Expired {
			t.Errorf("%v: live after 70 s of silence", jump)
		}
	}
}

// TestARestoredObservationGoesByTheMonotonicClock, so that a clock that is set after the restart expires nobody.
func TestARestoredObservationGoesByTheMonotonicClock(t *testing.T) {
	now := time.Now()
	stored := now.Add(-5 * time.Second).Round(0) // which strips the monotonic reading
	o := Observation{
		Renewal: written(1), RenewedAt: stored, ObservedUntil: stored, HubSeenUntil: stored, Expired: true,
		Expirations: []time.Time{stored}, RenewingSince: stored,
	}.Restored(now)
	if !o.StoppedSince.IsZero() {
		t.Errorf("zero became %v", o.StoppedSince)
	}
	o = o.Observe(at(now), now, written(1), limits)
	for _, at := range []time.Time{o.RenewedAt, o.RenewingSince, o.Expirations[0]} {
		if at == at.Round(0) || !at.Equal(stored) {
			t.Errorf("%v, want %v with a monotonic reading", at, stored)
		}
	}
}

// TestSilenceSurvivesAShortRestart of this agent, of less than two renewals.
func TestSilenceSurvivesAShortRestart(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	w.see(30*time.Second, false)
	w.now = w.now.Add(5 * time.Second)
	w.see(10*time.Second, false)
	if w.observation.Expired {
		t.Fatal("expired after 45 s")
	}
	w.see(10*time.Second, false)
	if !w.observation.Expired {
		t.Fatal("live after 55 s")
	}
}

// TestNeedsWrite once for each renewal and each missed renewal, so that the stored observation is one interval old at
// most. For an expired member it is less often.
func TestNeedsWrite(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	writes := func(d time.Duration, live bool) (n int) {
		kept := w.observation
		for end := w.now.Add(d); w.now.Before(end); {
			for range 4 { // looks between the renewals change nothing
				now := w.observation.Observe(at(w.now), w.now, written(w.n), limits)
				if kept.NeedsWrite(now, false, limits) {
					t.Errorf("live %v: an observation needs a write, though no time passed", live)
				}
			}
			if w.see(limits.Renew, live); kept.NeedsWrite(w.observation, false, limits) {
				kept, n = w.observation, n+1
			}
			away := w.observation.ObservedUntil.Sub(kept.ObservedUntil)
			if away > 0 && !w.observation.Expired || away > limits.Expiry/2 {
				t.Errorf("live %v: the stored observation is %v old", live, away)
			}
		}
		return n
	}
	for _, c := range []struct {
		what string
		live bool
		d    time.Duration
		want int
	}{
		{"an hour of life", true, time.Hour, 360},
		{"an expiration", false, time.Minute, 6},
		{"an hour of silence", false, time.Hour, 120},
		{"the return", true, limits.Renew, 1},
	} {
		if n := writes(c.d, c.live); n > c.want || n == 0 {
			t.Errorf("%s: %d writes, want at most %d", c.what, n, c.want)
		}
	}
}

// TestT3FlappingIsDamped: a member that expires every 70 s for an hour returns a bounded number of times.
func TestT3FlappingIsDamped(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	back, was := 0, false
	for began := w.now; w.now.Sub(began) < time.Hour; {
		w.see(60*time.Second, false)
		w.see(10*time.Second, true)
		if was && !w.observation.Expired {
			back++
		}
		was = w.observation.Expired
	}
	if back > 12 {
		t.Errorf("returned %d times", back)
	}
	w.see(MaxDamping+time.Minute, true)
	if w.observation.Expired {
		t.Error("expired, though it has renewed for six minutes")
	}
	w.see(FlapWindow, true)
	w.see(time.Minute, false)
	w.see(10*time.Second, true)
	if w.observation.Expired {
		t.Error("damped for expirations before FlapWindow")
	}
}

// TestNeverExpiresWhileItRenews, for any sequence of observations.
func TestNeverExpiresWhileItRenews(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWatcher()
		for i := range 300 {
			w.now = w.now.Add(time.Duration(r.Int64N(int64(45 * time.Second))))
			w.observation = w.observation.Observe(at(w.now), w.now, written(i/2), limits)
			if w.observation.Expired {
				t.Fatalf("seed %d, observation %d: expired", seed, i)
			}
		}
	}
}

// TestViewEndsShortlyAfterTheLastOwnRenewal, so that a cut link stops the measuring at once and not after a Lease's
// duration.
func TestViewEndsShortlyAfterTheLastOwnRenewal(t *testing.T) {
	shown := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]time.Duration{
		0: 0, 9 * time.Second: 9 * time.Second, time.Minute: 12 * time.Second,
	} {
		if got := limits.View(shown, shown.Add(after)).SeenUntil.Sub(shown); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
}

// TestT2APausedAgentExpiresNobody: it resumes with an observation of what came meanwhile, before the hub shows its
// next renewal. Only silence between two own renewals counts, and a renewal during the pause counts from when it is
// seen.
func TestT2APausedAgentExpiresNobody(t *testing.T) {
	for still := 2 * time.Second; still < 3*time.Minute; still += time.Second {
		for ago := time.Duration(0); ago <= still && ago < limits.Expiry; ago += time.Second {
			w := newWatcher()
			w.see(time.Minute, true)
			own := w.now
			w.now = w.now.Add(still)
			w.n++ // this long ago, and never again
			last := w.now.Add(-ago)
			w.observation = w.observation.Observe(
				limits.View(own, w.now), limits.View(own, w.now).SeenUntil, written(w.n), limits,
			)
			w.now = w.now.Add(100 * time.Millisecond)
			w.observation = w.observation.Observe(at(w.now), w.now, written(w.n), limits)
			for own := w.now; !w.observation.Expired; w.now = w.now.Add(time.Second) {
				if w.now.Sub(last) > 2*limits.Expiry+limits.Renew {
					t.Fatalf("paused for %v, renewed %v before its end: never expired", still, ago)
				}
				if w.now.Sub(own) >= limits.Renew {
					own = w.now
				}
				w.observation = w.observation.Observe(limits.View(own, w.now), w.now, written(w.n), limits)
				if w.observation.Expired {
					break
				}
			}
			if silent := w.now.Sub(last); silent <= limits.Expiry {
				t.Fatalf("paused for %v, renewed %v before its end: expired after %v", still, ago, silent)
			}
		}
	}
}

// TestT3ExpirationsOfAClockThatWasAheadCountForTenMinutes after a restart with the clock set right, and they keep no
// later ones.
func TestT3ExpirationsOfAClockThatWasAheadCountForTenMinutes(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	ahead := w.now.Add(24 * time.Hour)
	w.observation.Expirations = []time.Time{ahead, ahead, ahead}
	w.observation = w.observation.Restored(w.now)
	w.see(20*time.Minute, true)
	w.see(time.Minute, false)
	recent := Recent(w.observation.Expirations, w.now)
	if damping := Damping(len(recent)); !w.observation.Expired || damping > 0 {
		t.Errorf("expired %v; damped for %v by %v", w.observation.Expired, damping, recent)
	}
}

// TestARestoredLeaseRevivesNobody: the hub shows an older renewal of an expired member again, and then its last one.
func TestARestoredLeaseRevivesNobody(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	w.see(70*time.Second, false)
	for _, n := range []int{w.n - 3, w.n} {
		w.now = w.now.Add(limits.Renew)
		if w.observation = w.observation.Observe(at(w.now), w.now, written(n), limits); !w.observation.Expired {
			t.Fatalf("renewal %d of %d revives it", n, w.n)
		}
	}
}

// TestT1ARecreatedLeaseIsARenewal whatever its renewTime: another cluster may take over the ID with a slow clock. An
// older Lease comes from a backup.
func TestT1ARecreatedLeaseIsARenewal(t *testing.T) {
	by := func(lease, n int64) Renewal {
		return Renewal{Created: time.Unix(lease, 0), Time: time.Unix(n, 0)}
	}
	for _, c := range []struct {
		what    string
		was, is Renewal
		after   bool
	}{
		{"the same", by(100, 1000), by(100, 1000), false},
		{"the next", by(100, 1000), by(100, 1010), true},
		{"an earlier one of the same Lease", by(100, 1000), by(100, 990), false},
		{"another Lease, by a slow clock", by(100, 1000), by(200, 300), true},
		{"an older Lease", by(100, 1000), by(50, 990), false},
		{"a Lease recreated by a hub with a slow clock", by(100, 1000), by(50, 1010), true},
		{"none", by(100, 1000), Renewal{}, false},
		{"the first", Renewal{}, by(100, 1000), true},
	} {
		w := newWatcher()
		w.observation = Observation{}.Observe(at(w.now), w.now, c.was, limits)
		for range 7 {
			w.now = w.now.Add(limits.Renew)
			w.observation = w.observation.Observe(at(w.now), w.now, c.was, limits)
		}
		if !w.observation.Expired {
			t.Fatal("it has not expired")
		}
		w.now = w.now.Add(limits.Renew)
		if w.observation = w.observation.Observe(at(w.now), w.now, c.is, limits); w.observation.Expired == c.after {
			t.Errorf("%s: expired %v", c.what, w.observation.Expired)
		}
		if want := c.is.Created; c.after && !w.observation.Renewal.Created.Equal(want) {
			t.Errorf("%s: the kept creation time is %v, want %v", c.what, w.observation.Renewal.Created, want)
		}
	}
}

// TestAMemberThatAnswersIsStoredOnceAnHour, until it is silent; that it has expired is stored all the same.
func TestAMemberThatAnswersIsStoredOnceAnHour(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	kept := w.observation
	w.see(59*time.Minute, true)
	if kept.NeedsWrite(w.observation, true, limits) || !kept.NeedsWrite(w.observation, false, limits) {
		t.Error("59 minutes of renewals: stored if its agent answers, or not stored if it does not")
	}
	w.see(time.Minute, true)
	if !kept.NeedsWrite(w.observation, true, limits) {
		t.Error("an hour of renewals is not stored")
	}
	kept = w.observation
	w.see(2*time.Minute, false)
	if !kept.NeedsWrite(w.observation, true, limits) {
		t.Error("that it has expired is not stored")
	}
}
