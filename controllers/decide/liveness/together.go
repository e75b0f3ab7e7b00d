package liveness

import (
	"slices"
	"time"
)

// Believed is until when the hub is believed, where it is to be doubted if most other members fall silent together (ClusterSet,
// spec.lease.mostSilent): until more than half of them, and two at least, have missed two renewals. heard is when each of them that is not
// dead was last heard of, up to seen. Time that is not believed is blindness like any other, so that whoever comes back first leaves the
// rest the time that they had.
func (l Limits) Believed(seen time.Time, heard []time.Time) time.Time {
	most := max(2, len(heard)/2+1)
	if len(heard) < most {
		return seen
	}
	if since := slices.SortedFunc(slices.Values(heard), time.Time.Compare)[most-1].Add(2 * l.Renew); since.Before(seen) {
		return since
	}
	return seen
}
