package clusterset

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// MaxRevision is the limit in the CRDs. No clock reaches it, so no agent writes it.
const MaxRevision = 1 << 53

// NextRevision returns a revision after last: the time in milliseconds, so that a member that has lost its state
// continues above its earlier revisions, or last+1 if the clock is behind. After MaxRevision, which only a thief of the
// member's token writes, it stays: readers follow a change of an object with the same revision as well.
func NextRevision(last int64, now time.Time) int64 {
	return min(max(last+1, now.UnixMilli()), MaxRevision)
}

// Withdrawn returns the spec of a record that its owner withdraws now.
func Withdrawn(o hubv1alpha1.Origin, now time.Time) hubv1alpha1.ServiceExportRecordSpec {
	at := metav1.NewTime(now.Truncate(time.Second)) // as an API server keeps it
	o.Revision = NextRevision(o.Revision, now)
	return hubv1alpha1.ServiceExportRecordSpec{Origin: o, Withdrawn: true, WithdrawnAt: &at}
}
