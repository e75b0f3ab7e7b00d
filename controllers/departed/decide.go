// Package departed cleans up on the hub after a member that has left, or was evicted: that is, whose ClusterProfile is being deleted
// (DESIGN §6). Its departure is written into the ClusterSet, so that members that are away now drop its records later; its credentials
// are taken away; then its records and its Lease are deleted; and only then may the ClusterProfile go, and with it the id be used again.
//
// The absence of a ClusterProfile says nothing, and nothing is deleted for it: an emptied or restored hub lacks them, too.
package departed

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// newest is when the last of a member's records was created; zero where it has none. Like a ClusterProfile's deletionTimestamp that is a time
// by the hub's clock, with which members compare it: this machine's may be another.
func newest(records []metav1.PartialObjectMetadata) (last metav1.Time) {
	for i := range records {
		if at := records[i].CreationTimestamp; last.Before(&at) {
			last = at
		}
	}
	return last
}

// depart notes that a member left, and tells whether that was a change. What it created before at is its past: when its
// ClusterProfile was to be deleted, and, once it may write nothing any more, the second after it created the last of its records.
func depart(s *hubv1alpha1.ClusterSetStatus, id string, at metav1.Time) bool {
	if i := slices.IndexFunc(s.Departed, of(id)); i >= 0 {
		if !s.Departed[i].At.Before(&at) {
			return false
		}
		s.Departed = slices.Delete(s.Departed, i, i+1)
	}
	s.Departed = append(s.Departed, hubv1alpha1.Departure{ClusterID: id, At: at})
	slices.SortStableFunc(s.Departed, func(a, b hubv1alpha1.Departure) int { return a.At.Compare(b.At.Time) })
	if over := len(s.Departed) - hubv1alpha1.MaxDeparted; over > 0 {
		s.Departed = slices.Delete(s.Departed, 0, over)
	}
	return true
}

func of(id string) func(hubv1alpha1.Departure) bool {
	return func(d hubv1alpha1.Departure) bool { return d.ClusterID == id }
}
