package grants

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Listening are the members that were not heard since a start, by id, and when they had last renewed their Leases
// before it; zero where one
// had none. Times of a member are compared with others of the same member only.
type Listening map[string]time.Time

// lost is the reason for which the inventory calls a member silent (P3).
const lost = "HeartbeatLost"

// Listen is for all that use their claims, whether blocks of theirs are known or not: those that were forgotten are
// not. One that was silent
// before the start says nothing of it.
func Listen(profiles []inventoryv1alpha1.ClusterProfile, leases []coordinationv1.Lease) Listening {
	out := Listening{}
	for i := range profiles {
		p := &profiles[i]
		healthy := meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy)
		switch {
		case p.Spec.ClusterManager.Name != clusterset.ClusterManager ||
			p.Annotations[clusterset.AnnotationClusterUID] == "":
		case p.DeletionTimestamp != nil || p.Annotations[clusterset.AnnotationLeft] != "":
		case healthy != nil && healthy.Status != metav1.ConditionTrue && healthy.Reason == lost:
		default:
			out[p.Name] = time.Time{}
		}
	}
	for i := range leases {
		if _, waits := out[leases[i].Name]; waits && leases[i].Spec.RenewTime != nil {
			out[leases[i].Name] = leases[i].Spec.RenewTime.Time
		}
	}
	return out
}

// Hear takes out who has renewed its Lease in the time that has passed since the start. missed tells that
// somebody's earlier renewals are not there: more of his time lies between the two than he may take for one, or he
// had no Lease. So it is on a hub that was just restored, where
// Leases are as old as the backup.
func (l Listening) Hear(leases []coordinationv1.Lease, passed time.Duration) (missed bool) {
	for i := range leases {
		spec := &leases[i].Spec
		before, waits := l[leases[i].Name]
		if !waits || spec.RenewTime == nil || spec.RenewTime.Time.Equal(before) {
			continue
		}
		usual := time.Minute
		if spec.LeaseDurationSeconds != nil {
			usual = max(usual, time.Duration(*spec.LeaseDurationSeconds)*time.Second)
		}
		missed = missed || before.IsZero() || spec.RenewTime.Sub(before) > passed+usual
		delete(l, leases[i].Name)
	}
	return missed
}
