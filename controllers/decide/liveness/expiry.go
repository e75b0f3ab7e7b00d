package liveness

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Limits are a clusterset's (T1).
type Limits struct {
	Renew time.Duration // from one renewal to the next
	Dead  time.Duration // a silence longer than this is a death: a Lease's duration and the grace
}

// Renewal is one of a Lease. Its zero value is none.
type Renewal struct {
	Lease time.Time // when the Lease was created, by the hub's clock; zero where that was not kept
	At    time.Time // as its owner wrote it: compared with others of its own only
}

// RenewalOf is the one that a Lease shows.
func RenewalOf(lease *coordinationv1.Lease) Renewal {
	if lease == nil || lease.Spec.RenewTime == nil {
		return Renewal{}
	}
	return Renewal{Lease: lease.CreationTimestamp.Time, At: lease.Spec.RenewTime.Time}
}

// After tells whether r shows that somebody renewed after than was: by what the owner wrote, since one that is not later may have come back
// from a backup; of a Lease that was made anew whatever that is, as by a cluster that has taken over an id with a clock that is behind. That
// gives its member time, as any first sight does. It is nobody's word: objects may be made anew from a backup, too.
func (r Renewal) After(than Renewal) bool {
	anew := !than.Lease.IsZero() && r.Lease.After(than.Lease)
	return anew && !r.At.IsZero() || r.At.After(than.At)
}

// Sight is what one member knows of another's heartbeat. All times are its own clock's.
//
// Time passes only while the hub is seen: until shortly after each of the own renewals that the hub shows (Hub). What lies between two of
// these, or two looks, that are further apart than they should be was blindness, or a clock that was set, and counts for nothing. So neither a
// hub that is away, nor a broken link to it, nor an agent that stands still, nor anybody's clock makes a member look dead (DESIGN §7).
type Sight struct {
	Renewal Renewal   // the latest seen
	At      time.Time // when it was first seen, moved on by all blindness since
	Checked time.Time // until when it was watched
	Stood   time.Time // when the last own renewal was shown, where the clock stood then already; else zero
	Dead    bool

	// Damping goes by a clock that runs in doubt too (Crowd): by that of the rest, nobody would come back while others are silent together.
	Seen   time.Time   // until when the hub was seen, believed or not
	Deaths []time.Time // the latest, oldest first
	Back   time.Time   // since when it has been renewing again, while it is still counted as dead
}

// How a flapping member is damped (T3): of two deaths in Memory it comes back at once; each further one makes it wait twice as long.
const (
	Memory      = 10 * time.Minute
	firstWait   = 30 * time.Second
	LongestWait = 5 * time.Minute
)

// Hub is how long the hub was seen, by the own clock.
type Hub struct {
	Own   time.Time // when the last own renewal was shown
	Until time.Time // until when the hub was seen: the next renewal may still come. Before Now the clock of all silences stands
	Now   time.Time
}

// Seen is what is known at a time of a hub whose last own renewal was shown at another.
func (l Limits) Seen(own, now time.Time) Hub {
	if next := own.Add(l.Renew + l.Renew/5); next.Before(now) {
		return Hub{own, next, now}
	}
	return Hub{own, now, now}
}

// stands is Sight.Stood.
func (h Hub) stands() time.Time {
	if h.Until.Before(h.Now) {
		return h.Own
	}
	return time.Time{}
}

// Look is the Sight at a hub that is believed until checked, with the renewal that it shows then; zero where it shows none. One that is older
// than what was seen came back from a backup.
func (s Sight) Look(hub Hub, checked time.Time, renewal Renewal, l Limits) Sight {
	if s.Checked.IsZero() {
		return Sight{Renewal: renewal, At: hub.Now, Checked: checked, Stood: hub.stands(), Seen: hub.Until}
	}
	s.At = l.after(s.At, s.Checked, checked, s.Stood, hub.Own)
	if !s.Back.IsZero() {
		s.Back = l.after(s.Back, s.Seen, hub.Until, s.Stood, hub.Own)
	}
	s.Checked, s.Stood, s.Seen = checked, hub.stands(), hub.Until
	renewed := renewal.After(s.Renewal)
	if renewed {
		s.Renewal, s.At = renewal, hub.Now // and not the time at which the clock stands
		if s.Dead && s.Back.IsZero() {
			s.Back = hub.Until
		}
	} else if s.Renewal.Lease.IsZero() {
		s.Renewal.Lease = renewal.Lease // an earlier version of the agent did not keep it
	}
	silent := checked.Sub(s.At) > l.Dead
	switch {
	case silent && !s.Dead:
		s.Dead, s.Back = true, time.Time{}
		s.Deaths = append(recent(s.Deaths, hub.Until), hub.Until)
	case silent:
		s.Back = time.Time{}
	case s.Dead && renewed && hub.Until.Sub(s.Back) >= wait(len(recent(s.Deaths, hub.Until))):
		s.Dead, s.Back = false, time.Time{}
	}
	return s
}

// after is a time before two looks, moved on by what was blindness between them: all, if they are further apart than two renewals, or the own
// renewals are, between which the clock stood. It is no later than the second look: a renewal that was shown while the clock stood was none
// of before.
func (l Limits) after(at, was, is, stood, own time.Time) time.Time {
	passed := is.Sub(was)
	if passed >= 0 && passed <= 2*l.Renew && (stood.IsZero() || own.Sub(stood) <= 2*l.Renew) {
		return at
	}
	if at = at.Add(passed); at.After(is) {
		return is
	}
	return at
}

// Worth tells whether now, seen after s was kept, is worth another write: with every turn; every renewal; and every renewal that is missed,
// so that what a restart goes by is a renewal old at most. Of the dead, less often.
func (s Sight) Worth(now Sight, l Limits) bool {
	if s.Dead != now.Dead || !s.Back.Equal(now.Back) {
		return true
	}
	if !now.Back.IsZero() && now.Seen.Sub(s.Seen) >= 2*l.Renew {
		return true // a restart goes on with the damping
	}
	passed := now.Checked.Sub(s.Checked)
	if now.Dead {
		return passed >= l.Dead/2 || passed < 0
	}
	return !now.Renewal.At.Equal(s.Renewal.At) || passed >= l.Renew || passed < 0
}

// Until is when a member that renews again, and goes on doing so, counts as live; zero for one that is not damped (T3).
func (s Sight) Until() time.Time {
	if s.Back.IsZero() {
		return time.Time{}
	}
	return s.Back.Add(wait(len(recent(s.Deaths, s.Seen))))
}

// Away is how long ago it died last, as far as that is remembered.
func (s Sight) Away() time.Duration {
	if len(s.Deaths) == 0 {
		return 0
	}
	return s.Seen.Sub(s.Deaths[len(s.Deaths)-1])
}

// wait is how long a member must have been renewing again after its latest of so many deaths.
func wait(deaths int) time.Duration {
	if deaths <= 2 {
		return 0
	}
	return min(firstWait<<min(deaths-3, 8), LongestWait)
}

func recent(deaths []time.Time, now time.Time) []time.Time {
	for len(deaths) > 0 && now.Sub(deaths[0]) > Memory {
		deaths = deaths[1:]
	}
	return deaths[:len(deaths):len(deaths)]
}
