package clusterset

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// MaxRevision is the CRDs' bound: no clock comes near it. A record that bears it was not written by an agent.
const MaxRevision = 1 << 53

// NextRevision follows last. It goes by the clock, so that a member that has lost all memory of last still comes out above it; and
// always forward, whatever the clock does, up to the last one, which nothing follows (Spent).
func NextRevision(last int64, now time.Time) int64 {
	if Spent(last) {
		return last
	}
	return min(max(last+1, now.UnixMilli()), MaxRevision)
}

// Spent tells whether no revision is higher: only a record that is created anew can be followed then.
func Spent(revision int64) bool { return revision >= MaxRevision }

// Retention is how long a withdrawn record stays on the hub, for members that are away (DESIGN §2).
const Retention = 24 * time.Hour

// Withdrawn is the origin of a record whose owner takes it back at now; nothing else of the record stays.
func Withdrawn(o hubv1alpha1.Origin, now time.Time) hubv1alpha1.Origin {
	at := metav1.NewTime(now)
	o.Withdrawn, o.WithdrawnAt = true, &at
	o.Revision = NextRevision(o.Revision, now)
	return o
}
