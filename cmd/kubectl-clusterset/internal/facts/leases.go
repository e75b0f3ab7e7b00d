package facts

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Renewed returns when a Lease was last written, by its API server's clock, and how far its holder's clock is ahead
// of that one, to the second. ok is false if the Lease does not show it.
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

// Expired reports whether a Lease was not renewed for its duration, at now of its API server's clock. A Lease that does
// not show when it was renewed, or for how long, has expired.
func Expired(lease *coordinationv1.Lease, now time.Time) bool {
	at, _, ok := Renewed(lease)
	if !ok || lease.Spec.LeaseDurationSeconds == nil {
		return true
	}
	return now.Sub(at) > time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second
}

// HubSeen returns when a member's agent last renewed its Lease on the hub, by the Lease clusterset.LeaseRenewed among
// the member's leases, and whether that Lease has expired at now of the member's API server. ok is false if that is
// not known.
func HubSeen(leases []coordinationv1.Lease, now time.Time) (at time.Time, expired, ok bool) {
	lease := Named(leases, clusterset.LeaseRenewed)
	if lease == nil {
		return at, false, false
	}
	at, _, ok = Renewed(lease)
	return at, ok && Expired(lease, now), ok
}

// AgentLease is the Lease in clusterset-system that the leading agent of a member renews.
const AgentLease = "clusterset-controller"

// Named returns the Lease with that name, or nil.
func Named(leases []coordinationv1.Lease, name string) *coordinationv1.Lease {
	i := slices.IndexFunc(leases, func(l coordinationv1.Lease) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return &leases[i]
}

// RenewsElsewhere reports whether a member's agent renews its Lease on another hub. By the member's leases, at now, the
// agent renews it; by lease, the one on this hub at hubNow, it does not. lease is nil if this hub has none.
func RenewsElsewhere(leases []coordinationv1.Lease, now time.Time, lease *coordinationv1.Lease, hubNow time.Time) bool {
	_, expired, ok := HubSeen(leases, now)
	return ok && !expired && (lease == nil || Expired(lease, hubNow))
}
