// Package liveness decides what the Leases on the hub say about other members: whether a member is live or expired
// (SPEC T1, T3), and whether most members fell silent together (DESIGN §7). It is pure: it reads no clock and no API.
package liveness

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Limits are the Lease settings of a ClusterSet (T1).
type Limits struct {
	Renew  time.Duration // from one renewal to the next
	Expiry time.Duration // a member that is silent for longer has expired: the Lease's duration plus the grace period
}

// Renewal is one renewal of a Lease on the hub. The zero value means that there was none.
type Renewal struct {
	Created time.Time // creation of the Lease, by the hub's clock
	Time    time.Time // renewTime, by the owner's clock; compare it only with renewals of the same owner
}

// RenewalOf returns the last renewal of a Lease, which may be nil.
func RenewalOf(lease *coordinationv1.Lease) Renewal {
	if lease == nil || lease.Spec.RenewTime == nil {
		return Renewal{}
	}
	return Renewal{Created: lease.CreationTimestamp.Time, Time: lease.Spec.RenewTime.Time}
}

// After reports whether r proves a renewal after than. A renewTime that is not later may be that of a restored backup.
// A Lease that was created later always counts: its owner may have a slow clock.
func (r Renewal) After(than Renewal) bool {
	recreated := !than.Created.IsZero() && r.Created.After(than.Created)
	return recreated && !r.Time.IsZero() || r.Time.After(than.Time)
}

// HubView is how long this member has seen the hub, by its own clock.
type HubView struct {
	OwnRenewal time.Time // when the hub last showed a renewal of this member
	SeenUntil  time.Time // the time until which the next own renewal is not overdue; earlier than Now if it is
	Now        time.Time
}

// View returns the HubView at now if the last own renewal was shown at ownRenewal.
func (l Limits) View(ownRenewal, now time.Time) HubView {
	until := now
	if due := ownRenewal.Add(l.Renew + l.Renew/5); due.Before(now) {
		until = due
	}
	return HubView{OwnRenewal: ownRenewal, SeenUntil: until, Now: now}
}

func (h HubView) stoppedSince() time.Time {
	if h.SeenUntil.Before(h.Now) {
		return h.OwnRenewal
	}
	return time.Time{}
}

// Observation is what this member has seen of another member's Lease. All times are by this member's clock.
//
// Silence is measured only while this member sees the hub, that is, while the hub shows its own renewals. Gaps do not
// count: an unreachable hub, a paused agent or a changed clock expires nobody (DESIGN §7).
type Observation struct {
	Renewal       Renewal   // the latest renewal seen
	RenewedAt     time.Time // when it was first seen, moved forward by every gap since
	ObservedUntil time.Time // end of the time that counts as observed
	StoppedSince  time.Time // the last own renewal if silence was not measured at the last observation, else zero
	Expired       bool

	// Damping (T3) also runs while most members are silent together (CommonSilence), because a live member must be
	// able to return then.
	HubSeenUntil  time.Time
	Expirations   []time.Time // within FlapWindow, oldest first
	RenewingSince time.Time   // when an expired member began to renew again; zero if it does not
}

// Restored returns at now the observation that an earlier process stored. Its times get the monotonic reading of now,
// so that no time seems to pass when the clock is set later. An expiration after now, by a clock that was ahead, was
// now: it would count until that time, and keep all later ones.
func (o Observation) Restored(now time.Time) Observation {
	o.Expirations = slices.Clone(o.Expirations)
	times := []*time.Time{&o.RenewedAt, &o.ObservedUntil, &o.StoppedSince, &o.HubSeenUntil, &o.RenewingSince}
	for i, at := range o.Expirations {
		o.Expirations[i] = now.Add(min(0, at.Sub(now)))
	}
	for _, t := range times {
		if !t.IsZero() {
			*t = now.Add(t.Sub(now))
		}
	}
	return o
}

// Damping of a flapping member (T3). After two expirations within FlapWindow a member returns at once. Each further
// expiration doubles the time for which it must renew first, from firstDamping to MaxDamping.
const (
	FlapWindow   = 10 * time.Minute
	firstDamping = 30 * time.Second
	MaxDamping   = 5 * time.Minute
)

// Observe returns the observation after the hub showed renewal, which is zero if it shows no Lease. observedUntil is
// the end of the time for which silence counts.
func (o Observation) Observe(hub HubView, observedUntil time.Time, renewal Renewal, l Limits) Observation {
	if o.ObservedUntil.IsZero() {
		return Observation{
			Renewal:       renewal,
			RenewedAt:     hub.Now,
			ObservedUntil: observedUntil,
			StoppedSince:  hub.stoppedSince(),
			HubSeenUntil:  hub.SeenUntil,
		}
	}
	o.RenewedAt = l.skipGap(o.RenewedAt, o.ObservedUntil, observedUntil, o.StoppedSince, hub.OwnRenewal)
	if !o.RenewingSince.IsZero() {
		o.RenewingSince = l.skipGap(o.RenewingSince, o.HubSeenUntil, hub.SeenUntil, o.StoppedSince, hub.OwnRenewal)
	}
	o.ObservedUntil, o.StoppedSince, o.HubSeenUntil = observedUntil, hub.stoppedSince(), hub.SeenUntil
	renewed := renewal.After(o.Renewal)
	if renewed {
		o.Renewal, o.RenewedAt = renewal, hub.Now
		if o.Expired && o.RenewingSince.IsZero() {
			o.RenewingSince = hub.SeenUntil
		}
	}
	silent := observedUntil.Sub(o.RenewedAt) > l.Expiry
	switch {
	case silent && !o.Expired:
		o.Expired, o.RenewingSince = true, time.Time{}
		o.Expirations = append(Recent(o.Expirations, hub.SeenUntil), hub.SeenUntil)
	case silent:
		o.RenewingSince = time.Time{}
	case o.Expired && renewed && !hub.SeenUntil.Before(o.DampedUntil()):
		o.Expired, o.RenewingSince = false, time.Time{}
	}
	return o
}

// skipGap moves t, a time before two observations, forward by the gap between them. There is a gap if the
// observations are more than two renewals apart, or if the own renewals are and measuring had stopped in between. The
// result is not after the second observation.
func (l Limits) skipGap(t, previous, current, stoppedSince, ownRenewal time.Time) time.Time {
	passed := current.Sub(previous)
	if passed >= 0 && passed <= 2*l.Renew && (stoppedSince.IsZero() || ownRenewal.Sub(stoppedSince) <= 2*l.Renew) {
		return t
	}
	if t = t.Add(passed); t.After(current) {
		return current
	}
	return t
}

// refresh is how often the observation of a member whose agent answers is stored.
const refresh = time.Hour

// NeedsWrite reports whether current must replace the stored observation o: after each change of state, each renewal
// and each missed one, so that a restarted agent loses at most one renewal interval; for an expired member less often.
// While a member's agent answers, which a restarted agent asks again, only changes of state are; the rest each hour.
func (o Observation) NeedsWrite(current Observation, answers bool, l Limits) bool {
	if o.Expired != current.Expired || !o.RenewingSince.Equal(current.RenewingSince) {
		return true
	}
	if answers && !current.Expired {
		return current.ObservedUntil.Sub(o.ObservedUntil).Abs() >= refresh
	}
	if !current.RenewingSince.IsZero() && current.HubSeenUntil.Sub(o.HubSeenUntil) >= 2*l.Renew {
		return true // damping continues after a restart
	}
	passed := current.ObservedUntil.Sub(o.ObservedUntil)
	if current.Expired {
		return passed >= l.Expiry/2 || passed < 0
	}
	return !current.Renewal.Time.Equal(o.Renewal.Time) || passed >= l.Renew || passed < 0
}

// DampedUntil returns when an expired member that goes on renewing counts as live; zero if it does not renew (T3).
func (o Observation) DampedUntil() time.Time {
	if o.RenewingSince.IsZero() {
		return time.Time{}
	}
	return o.RenewingSince.Add(Damping(len(Recent(o.Expirations, o.HubSeenUntil))))
}

// SinceExpiration returns the time since the last expiration within FlapWindow, or zero.
func (o Observation) SinceExpiration() time.Duration {
	if len(o.Expirations) == 0 {
		return 0
	}
	return o.HubSeenUntil.Sub(o.Expirations[len(o.Expirations)-1])
}

// Damping returns how long a member must renew before it counts as live after this many recent expirations.
func Damping(expirations int) time.Duration {
	if expirations <= 2 {
		return 0
	}
	return min(firstDamping<<min(expirations-3, 8), MaxDamping)
}

// Recent returns the expirations within FlapWindow before now, oldest first.
func Recent(expirations []time.Time, now time.Time) []time.Time {
	for len(expirations) > 0 && now.Sub(expirations[0]) > FlapWindow {
		expirations = expirations[1:]
	}
	return expirations[:len(expirations):len(expirations)]
}
