package liveness

import (
	"slices"
	"time"
)

// Crowd is when the other members were last heard of, by a clock that runs while the hub is seen, whether it is believed or not: by the
// clock of their Sights, which stands still in doubt, doubt would prolong itself. A Crowd that is zero has heard of nobody.
type Crowd struct {
	until time.Time // of the last look
	stood time.Time // as Sight.Stood
	heard map[string]heard
}

type heard struct {
	renewal Renewal
	at      time.Time
}

// Believed is until when the hub is believed, where it is to be doubted if most other members fall silent together
// (ClusterSet, spec.lease.mostSilent): until more than half of those that are not dead, and two at least, have missed two renewals. Of each of
// them sights has what was seen so far, and renewals the one that the hub shows now. Time that is not believed is blindness like any other, so
// that whoever comes back first leaves the rest the time that they had.
func (c *Crowd) Believed(hub Hub, sights map[string]Sight, renewals map[string]Renewal, l Limits) time.Time {
	until := hub.Until
	now, living := make(map[string]heard, len(sights)), make([]time.Time, 0, len(sights))
	for id, s := range sights {
		h, known := c.heard[id]
		switch {
		case known:
			h.at = l.after(h.at, c.until, until, c.stood, hub.Own)
		case s.Checked.IsZero():
			h = heard{at: until}
		default: // of an earlier process, which had looked until then
			h = heard{s.Renewal, until.Add(min(0, s.At.Sub(s.Checked)))} // in doubt it was heard after that
		}
		if renewals[id].After(h.renewal) {
			h = heard{renewals[id], hub.Now}
		}
		if now[id] = h; !s.Dead {
			living = append(living, h.at)
		}
	}
	c.until, c.stood, c.heard = until, hub.stands(), now
	most := max(2, len(living)/2+1)
	if len(living) < most {
		return until
	}
	slices.SortFunc(living, time.Time.Compare)
	if since := living[most-1].Add(2 * l.Renew); since.Before(until) {
		return since
	}
	return until
}
