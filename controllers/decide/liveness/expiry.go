package liveness

import "time"

// Limits are a clusterset's (T1).
type Limits struct {
	Renew time.Duration // from one renewal to the next
	Dead  time.Duration // a silence longer than this is a death: a Lease's duration and the grace
}

// Sight is what one member knows of another's heartbeat. All times are its own clock's.
//
// Time passes only while the hub is seen: until shortly after each of the own renewals that the hub shows (Seen). What lies between two
// looks that are further apart than they should be was blindness, or a clock that was set, and counts for nothing. So neither a hub that is
// away, nor a broken link to it, nor anybody's clock makes a member look dead (DESIGN §7).
type Sight struct {
	Renewal time.Time // the latest renewal seen, as its owner wrote it: compared with others of its own only
	At      time.Time // when it was first seen, moved on by all blindness since
	Checked time.Time // when it was looked at last
	Dead    bool
	Deaths  []time.Time // the latest, oldest first
	Back    time.Time   // since when it has been renewing again, while it is still counted as dead
}

// How a flapping member is damped (T3): of two deaths in Memory it comes back at once; each further one makes it wait twice as long.
const (
	Memory    = 10 * time.Minute
	firstWait = 30 * time.Second
	longest   = 5 * time.Minute
)

// Seen is until when the hub is known to have been seen, if its last own renewal was shown at shown: the next one may still come.
func (l Limits) Seen(shown, now time.Time) time.Time {
	if next := shown.Add(l.Renew + l.Renew/5); next.Before(now) {
		return next
	}
	return now
}

// Look is the Sight at the time checked, of which the hub was seen, with the renewal that it shows then; zero where it shows none. One
// that is older than what was seen came back from a backup.
func (s Sight) Look(checked, renewal time.Time, l Limits) Sight {
	if s.Checked.IsZero() {
		return Sight{Renewal: renewal, At: checked, Checked: checked}
	}
	if passed := checked.Sub(s.Checked); passed > 2*l.Renew || passed < 0 {
		s.At = s.At.Add(passed)
		if !s.Back.IsZero() {
			s.Back = s.Back.Add(passed)
		}
	}
	s.Checked = checked
	if renewal.After(s.Renewal) {
		s.Renewal, s.At = renewal, checked
		if s.Dead && s.Back.IsZero() {
			s.Back = checked
		}
	}
	silent := checked.Sub(s.At) > l.Dead
	switch {
	case silent && !s.Dead:
		s.Dead, s.Back = true, time.Time{}
		s.Deaths = append(recent(s.Deaths, checked), checked)
	case silent:
		s.Back = time.Time{}
	case s.Dead && !s.Back.IsZero() && checked.Sub(s.Back) >= wait(len(recent(s.Deaths, checked))):
		s.Dead, s.Back = false, time.Time{}
	}
	return s
}

// Worth tells whether now, seen after s was kept, is worth another write: with every turn; at every look into a silence, so that a restart
// goes on counting; and else often enough that a restart takes a member's next renewal for one.
func (s Sight) Worth(now Sight, l Limits) bool {
	if s.Dead != now.Dead || !s.Back.Equal(now.Back) {
		return true
	}
	passed := now.Checked.Sub(s.Checked)
	if silence := now.Checked.Sub(now.At); !now.Dead && silence > l.Renew+l.Renew/2 {
		return passed >= l.Renew || passed < 0
	}
	return passed >= l.Dead/2 || passed < 0
}

// wait is how long a member must have been renewing again after its latest of so many deaths.
func wait(deaths int) time.Duration {
	if deaths <= 2 {
		return 0
	}
	return min(firstWait<<min(deaths-3, 8), longest)
}

func recent(deaths []time.Time, now time.Time) []time.Time {
	for len(deaths) > 0 && now.Sub(deaths[0]) > Memory {
		deaths = deaths[1:]
	}
	return deaths[:len(deaths):len(deaths)]
}
