package liveness

import (
	"math/rand/v2"
	"testing"
	"time"
)

var limits = Limits{Renew: 10 * time.Second, Dead: 50 * time.Second}

// watcher plays the own side: a renewal of its own every ten seconds.
type watcher struct {
	now   time.Time
	sight Sight
	n     int
}

// written is the n-th renewal, by a clock of the other one's own.
func written(n int) Renewal {
	return Renewal{Lease: time.Unix(100, 0), At: time.Unix(int64(1000+n), 0)}
}

// at is a hub that shows an own renewal now.
func at(now time.Time) Hub { return limits.Seen(now, now) }

func newWatcher() *watcher {
	return &watcher{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// see shows own renewals for d, with a renewal of the other one each time where it lives.
func (w *watcher) see(d time.Duration, lives bool) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(limits.Renew)
		if lives {
			w.n++
		}
		w.sight = w.sight.Look(at(w.now), w.now, written(w.n), limits)
	}
}

// TestT1DeadWithinSixtySeconds of its last renewal, whatever the two clocks' phases, and not before the duration and the grace are over.
func TestT1DeadWithinSixtySeconds(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	w.see(50*time.Second, false)
	if w.sight.Dead {
		t.Fatal("dead after 50 s")
	}
	w.see(10*time.Second, false)
	if !w.sight.Dead {
		t.Fatal("alive after 60 s of silence")
	}
	w.see(10*time.Second, true)
	if w.sight.Dead {
		t.Fatal("dead though it renews again")
	}
}

// TestS3BlindnessIsNobodysDeath: no own renewal is shown, so no time passes, for however long and however often.
func TestS3BlindnessIsNobodysDeath(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	for _, away := range []time.Duration{30 * time.Second, 5 * time.Minute, time.Hour} {
		w.now = w.now.Add(away)      // the hub is away, or this agent is
		w.see(10*time.Second, false) // and the other one takes a little longer to come back
		if w.sight.Dead {
			t.Fatal("dead by blindness")
		}
		w.see(20*time.Second, true)
	}
}

// TestS3AHubThatIsAwayIsBlindness, for however long, and though it is looked at meanwhile: the other one had renewed up to one renewal before,
// and takes another one when the hub is back.
func TestS3AHubThatIsAwayIsBlindness(t *testing.T) {
	for away := time.Second; away < time.Minute; away += time.Second {
		w := newWatcher()
		w.see(time.Minute, true)
		own := w.now.Add(9 * time.Second)
		w.sight = w.sight.Look(at(own), own, written(w.n), limits)
		for w.now = own; w.now.Before(own.Add(away)); w.now = w.now.Add(time.Second) {
			hub := limits.Seen(own, w.now)
			w.sight = w.sight.Look(hub, hub.Until, written(w.n), limits)
		}
		w.sight = w.sight.Look(at(w.now), w.now, written(w.n), limits)
		if w.see(limits.Renew, false); w.sight.Dead {
			t.Errorf("away for %v: dead", away)
		}
	}
}

// TestClocksThatAreSet: the own clock jumps forward or back.
func TestClocksThatAreSet(t *testing.T) {
	for _, jump := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		w := newWatcher()
		w.see(time.Minute, true)
		w.now = w.now.Add(jump)
		w.see(40*time.Second, false)
		if w.sight.Dead {
			t.Errorf("%v: dead", jump)
		}
		w.see(30*time.Second, false)
		if !w.sight.Dead {
			t.Errorf("%v: alive after 70 s of silence", jump)
		}
	}
}

// TestARestartWithinTwoRenewalsCounts: verdicts and silence survive it.
func TestARestartWithinTwoRenewalsCounts(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	w.see(30*time.Second, false)
	w.now = w.now.Add(5 * time.Second)
	w.see(10*time.Second, false)
	if w.sight.Dead {
		t.Fatal("dead after 45 s")
	}
	w.see(10*time.Second, false)
	if !w.sight.Dead {
		t.Fatal("alive after 55 s")
	}
}

// TestWhatIsWorthAWrite: each renewal, and each that is missed, once; what is kept is a renewal old at most. Of the dead, less often.
func TestWhatIsWorthAWrite(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	writes := func(d time.Duration, lives bool) (n int) {
		kept := w.sight
		for end := w.now.Add(d); w.now.Before(end); {
			for range 4 { // looks between the renewals change nothing
				if now := w.sight.Look(at(w.now), w.now, written(w.n), limits); kept.Worth(now, limits) {
					t.Errorf("lives %v: a look is worth a write though nothing passed", lives)
				}
			}
			if w.see(limits.Renew, lives); kept.Worth(w.sight, limits) {
				kept, n = w.sight, n+1
			}
			away := w.sight.Checked.Sub(kept.Checked)
			if away > 0 && !w.sight.Dead || away > limits.Dead/2 {
				t.Errorf("lives %v: what is kept is %v old", lives, away)
			}
		}
		return n
	}
	for _, c := range []struct {
		what  string
		lives bool
		d     time.Duration
		want  int
	}{{"an hour of life", true, time.Hour, 360}, {"a death", false, time.Minute, 6}, {"an hour of it", false, time.Hour, 120}, {"the return", true, limits.Renew, 1}} {
		if n := writes(c.d, c.lives); n > c.want || n == 0 {
			t.Errorf("%s: %d writes, want at most %d", c.what, n, c.want)
		}
	}
}

// TestT3FlappingIsDamped: in an hour of dying every 70 s a member is brought back a bounded number of times.
func TestT3FlappingIsDamped(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	back, was := 0, false
	for began := w.now; w.now.Sub(began) < time.Hour; {
		w.see(60*time.Second, false)
		w.see(10*time.Second, true)
		if was && !w.sight.Dead {
			back++
		}
		was = w.sight.Dead
	}
	if back > 12 {
		t.Errorf("brought back %d times", back)
	}
	w.see(LongestWait+time.Minute, true)
	if w.sight.Dead {
		t.Error("dead though it has renewed for six minutes")
	}
	w.see(Memory, true)
	w.see(time.Minute, false)
	w.see(10*time.Second, true)
	if w.sight.Dead {
		t.Error("damped for what was forgotten")
	}
}

// TestNeverDeadWhileItRenews, for any sequence of looks at it.
func TestNeverDeadWhileItRenews(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWatcher()
		for i := range 300 {
			w.now = w.now.Add(time.Duration(r.Int64N(int64(45 * time.Second))))
			w.sight = w.sight.Look(at(w.now), w.now, written(i/2), limits)
			if w.sight.Dead {
				t.Fatalf("seed %d, look %d: dead", seed, i)
			}
		}
	}
}

// TestSeenEndsShortlyAfterTheLastOwnRenewal: so a cut link stops the clock at once, and not after a Lease's duration.
func TestSeenEndsShortlyAfterTheLastOwnRenewal(t *testing.T) {
	shown := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]time.Duration{0: 0, 9 * time.Second: 9 * time.Second, time.Minute: 12 * time.Second} {
		if got := limits.Seen(shown, shown.Add(after)).Until.Sub(shown); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
}

// TestT2AnAgentThatStandsStillIsBlind: it goes on, with a look at what came meanwhile, before its next renewal is shown. No silence counts
// that is not from one own renewal to the next, and what was renewed while it stood still was renewed when it is seen.
func TestT2AnAgentThatStandsStillIsBlind(t *testing.T) {
	for still := 2 * time.Second; still < 3*time.Minute; still += time.Second {
		for ago := time.Duration(0); ago <= still && ago < limits.Dead; ago += time.Second {
			w := newWatcher()
			w.see(time.Minute, true)
			own := w.now
			w.now = w.now.Add(still)
			w.n++ // this long ago, and never again
			last := w.now.Add(-ago)
			w.sight = w.sight.Look(limits.Seen(own, w.now), limits.Seen(own, w.now).Until, written(w.n), limits)
			w.now = w.now.Add(100 * time.Millisecond)
			w.sight = w.sight.Look(at(w.now), w.now, written(w.n), limits)
			for own := w.now; !w.sight.Dead; w.now = w.now.Add(time.Second) {
				if w.now.Sub(last) > 2*limits.Dead+limits.Renew {
					t.Fatalf("still for %v, renewed %v before its end: never dead", still, ago)
				}
				if w.now.Sub(own) >= limits.Renew {
					own = w.now
				}
				w.sight = w.sight.Look(limits.Seen(own, w.now), w.now, written(w.n), limits)
				if w.sight.Dead {
					break
				}
			}
			if silent := w.now.Sub(last); silent <= limits.Dead {
				t.Fatalf("still for %v, renewed %v before its end: dead after %v", still, ago, silent)
			}
		}
	}
}

// TestABackupRaisesNobody: the hub shows an older renewal of a dead member again, and its last one after that.
func TestABackupRaisesNobody(t *testing.T) {
	w := newWatcher()
	w.see(time.Minute, true)
	w.see(70*time.Second, false)
	for _, n := range []int{w.n - 3, w.n} {
		w.now = w.now.Add(limits.Renew)
		if w.sight = w.sight.Look(at(w.now), w.now, written(n), limits); !w.sight.Dead {
			t.Fatalf("renewal %d of %d raises it", n, w.n)
		}
	}
}

// TestT1ALeaseThatIsMadeAnewIsARenewal whatever its time, as that of a cluster that takes over an id with a clock that is behind; one that is
// older came back from a backup, and one of which an earlier version of the agent kept no more than the time goes by that.
func TestT1ALeaseThatIsMadeAnewIsARenewal(t *testing.T) {
	by := func(lease, n int64) (r Renewal) {
		if r.At = time.Unix(n, 0); lease > 0 {
			r.Lease = time.Unix(lease, 0)
		}
		return r
	}
	for _, c := range []struct {
		what    string
		was, is Renewal
		after   bool
	}{
		{"the same", by(100, 1000), by(100, 1000), false},
		{"the next", by(100, 1000), by(100, 1010), true},
		{"an earlier one of the same Lease", by(100, 1000), by(100, 990), false},
		{"another Lease, by a clock that is behind", by(100, 1000), by(200, 300), true},
		{"an older Lease", by(100, 1000), by(50, 990), false},
		{"a Lease made anew by a hub whose clock is behind", by(100, 1000), by(50, 1010), true},
		{"none", by(100, 1000), Renewal{}, false},
		{"the first", Renewal{}, by(100, 1000), true},
		{"the same, kept by an earlier version", by(0, 1000), by(100, 1000), false},
		{"the next, after one that an earlier version kept", by(0, 1000), by(100, 1010), true},
	} {
		w := newWatcher()
		w.sight = Sight{}.Look(at(w.now), w.now, c.was, limits)
		for range 7 {
			w.now = w.now.Add(limits.Renew)
			w.sight = w.sight.Look(at(w.now), w.now, c.was, limits)
		}
		if !w.sight.Dead {
			t.Fatal("it is not dead")
		}
		w.now = w.now.Add(limits.Renew)
		if w.sight = w.sight.Look(at(w.now), w.now, c.is, limits); w.sight.Dead == c.after {
			t.Errorf("%s: dead %v", c.what, w.sight.Dead)
		}
		if want := c.is.Lease; (c.after || c.was.Lease.IsZero()) && !w.sight.Renewal.Lease.Equal(want) {
			t.Errorf("%s: of %v is kept, want %v", c.what, w.sight.Renewal.Lease, want)
		}
	}
}
