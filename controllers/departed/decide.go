// Package departed cleans up on the hub after a member that has left or was evicted: its ClusterProfile is being
// deleted. It records the departure in the ClusterSet, so that members that are offline now drop its records later.
// Then it revokes the member's credentials, deletes its records and its Lease, and releases the ClusterProfile,
// which makes the ID free again.
//
// A missing ClusterProfile does not mean that its member departed, since an emptied or restored hub has none either.
// Nothing is deleted for it.
package departed

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// newest returns the creation time of the newest record, or zero if there is none. It is a time of the hub's clock,
// like the deletionTimestamp of a ClusterProfile, so the two can be compared. A departure that covers this record is a
// second later.
func newest(records []metav1.PartialObjectMetadata) (last metav1.Time) {
	for i := range records {
		if at := records[i].CreationTimestamp; last.Before(&at) {
			last = at
		}
	}
	return last
}

// recordDeparture adds a departure to the status, or sets a later time in the existing one, and returns whether it
// changed anything. Members drop every record that the departed member created before that time. Above MaxDeparted,
// the oldest departures are dropped.
func recordDeparture(s *hubv1alpha1.ClusterSetStatus, id string, at metav1.Time) bool {
	same := func(d hubv1alpha1.Departure) bool { return d.ClusterID == id }
	if i := slices.IndexFunc(s.Departed, same); i >= 0 {
		if !s.Departed[i].At.Before(&at) {
			return false
		}
		s.Departed = slices.Delete(s.Departed, i, i+1)
	}
	s.Departed = append(s.Departed, hubv1alpha1.Departure{ClusterID: id, At: at})
	slices.SortStableFunc(s.Departed, func(a, b hubv1alpha1.Departure) int { return a.At.Compare(b.At.Time) })
	if surplus := len(s.Departed) - hubv1alpha1.MaxDeparted; surplus > 0 {
		s.Departed = slices.Delete(s.Departed, 0, surplus)
	}
	return true
}
