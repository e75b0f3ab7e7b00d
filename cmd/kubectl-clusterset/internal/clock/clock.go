// Package clock compares the clocks of a clusterset's machines by what they have written. Pure.
package clock

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
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

// OrWas is what else it may be that a holder's clock looks ahead: renewals never go back, so that one which was set goes on from the last
// that it wrote, until the time has come that this says.
func OrWas(lease *coordinationv1.Lease, ahead time.Duration) string {
	if ahead < 0 {
		return ""
	}
	return ", or was until it was set: then this ends by itself at " + lease.Spec.RenewTime.UTC().Format(time.RFC3339)
}

// Expired tells whether a Lease has not been renewed for its duration, at now of its API server's clock.
func Expired(lease *coordinationv1.Lease, now time.Time) bool {
	at, _, ok := Renewed(lease)
	if !ok || lease.Spec.LeaseDurationSeconds == nil {
		return true
	}
	return now.Sub(at) > time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second
}

// Seen is when a member's agent last renewed its Lease on the hub, by what each renewal leaves in that member (clusterset.LeaseRenewed,
// among its leases), and whether that has run out, at now of the member's API server's clock. ok is false where it is not known.
func Seen(leases []coordinationv1.Lease, now time.Time) (at time.Time, old, ok bool) {
	i := slices.IndexFunc(leases, func(l coordinationv1.Lease) bool { return l.Name == clusterset.LeaseRenewed })
	if i < 0 {
		return at, false, false
	}
	at, _, ok = Renewed(&leases[i])
	lives := time.Duration(ptr.Deref(leases[i].Spec.LeaseDurationSeconds, 40)) * time.Second // an older agent does not say
	return at, ok && now.Sub(at) > lives, ok
}

// Elsewhere tells whether a member's agent renews its Lease on another hub than the one that shows lease of it, nil for none: by what it keeps
// (Seen, at now of the member's API server's clock) it has renewed it a moment ago, and there, at hubNow of that one's, it has not.
func Elsewhere(kept []coordinationv1.Lease, now time.Time, lease *coordinationv1.Lease, hubNow time.Time) bool {
	_, old, ok := Seen(kept, now)
	return ok && !old && (lease == nil || Expired(lease, hubNow))
}

// Said is when an Event was said last.
func Said(e *eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
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
