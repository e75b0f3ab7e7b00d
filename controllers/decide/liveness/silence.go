package liveness

import (
	"slices"
	"time"
)

// CommonSilence detects that most other members stopped renewing together, which looks the same as a hub that shows
// stale Leases (ClusterSet, spec.lease.mostSilent: Hold). It keeps its own times, which move on while the hub is seen;
// those of Observations stand still during a common silence. The zero value has seen nobody.
type CommonSilence struct {
	seenUntil    time.Time
	stoppedSince time.Time // as Observation.StoppedSince
	last         map[string]lastRenewal
}

type lastRenewal struct {
	renewal Renewal
	seenAt  time.Time
}

// ObservedUntil returns the end of the time for which silence counts: hub.SeenUntil, except in a common silence. That
// begins when more than half of the members that are not expired, and at least two, have missed two renewals. Then it
// returns this beginning. For Observe, the time after it is a gap, so the rest do not expire when the first member
// returns. observations holds what was seen of each other member so far, renewals what the hub shows now.
func (c *CommonSilence) ObservedUntil(
	hub HubView, observations map[string]Observation, renewals map[string]Renewal, l Limits,
) time.Time {
	until := hub.SeenUntil
	last, live := make(map[string]lastRenewal, len(observations)), make([]time.Time, 0, len(observations))
	for id, o := range observations {
		r, known := c.last[id]
		switch {
		case known:
			r.seenAt = l.skipGap(r.seenAt, c.seenUntil, until, c.stoppedSince, hub.OwnRenewal)
		case o.ObservedUntil.IsZero():
			r = lastRenewal{seenAt: until}
		default: // new here, but observed before: as long silent as that observation counts
			r = lastRenewal{o.Renewal, until.Add(min(0, o.RenewedAt.Sub(o.ObservedUntil)))}
		}
		if renewals[id].After(r.renewal) {
			r = lastRenewal{renewals[id], hub.Now}
		}
		last[id] = r
		if !o.Expired {
			live = append(live, r.seenAt)
		}
	}
	c.seenUntil, c.stoppedSince, c.last = until, hub.stoppedSince(), last
	most := max(2, len(live)/2+1)
	if len(live) < most {
		return until
	}
	slices.SortFunc(live, time.Time.Compare) // most of them were last seen at live[most-1] or before
	if since := live[most-1].Add(2 * l.Renew); since.Before(until) {
		return since
	}
	return until
}
