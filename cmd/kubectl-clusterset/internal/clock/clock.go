// Package clock compares the clocks of a clusterset's machines by what they have written. Pure.
package clock

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Renewed is when a Lease was last written, by its API server's clock, and how far its holder's clock is ahead of that one, to the
// second. ok is false where the Lease does not tell.
func Renewed(lease *coordinationv1.Lease) (at time.Time, ahead time.Duration, ok bool) {
	if lease.Spec.RenewTime == nil {
		return at, 0, false
	}
	for _, f := range lease.ManagedFields {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	if at.IsZero() {
		return at, 0, false
	}
	return at, lease.Spec.RenewTime.Truncate(time.Second).Sub(at), true
}

// Expired tells whether a Lease has not been renewed for its duration, at now of its API server's clock.
func Expired(lease *coordinationv1.Lease, now time.Time) bool {
	at, _, ok := Renewed(lease)
	if !ok || lease.Spec.LeaseDurationSeconds == nil {
		return true
	}
	return now.Sub(at) > time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second
}

// leaderless is how long replicas may be without a leader: when one of them goes, another leads within half a minute.
const leaderless = time.Minute

// Leaderless tells whether a program does not run, by the Lease that its replicas elect their leader by, and for how long nobody has
// renewed it, at now of its API server's clock. Where nobody ever has, that counts from when it could have begun.
func Leaderless(lease *coordinationv1.Lease, began, now time.Time) (time.Duration, bool) {
	if at, _, ok := Renewed(lease); ok {
		began = at
	}
	return now.Sub(began), now.Sub(began) > leaderless
}
