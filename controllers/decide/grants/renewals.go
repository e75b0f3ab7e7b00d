package grants

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Awaited maps the IDs of members that have not renewed their Lease since a start to the last renewal before it. The
// value is zero for a member without a Lease. Clocks differ: a renewal is compared only with others of the same member.
type Awaited map[string]time.Time

// reasonHeartbeatLost is the reason that the inventory controller sets for an expired Lease (SPEC P3).
const reasonHeartbeatLost = "HeartbeatLost"

// Await returns the members to wait for: those that a cluster has joined as, except departing members and members that
// had expired before the start. Members without a block count too, because the hub may have lost it.
func Await(profiles []inventoryv1alpha1.ClusterProfile, leases []coordinationv1.Lease) Awaited {
	awaited := Awaited{}
	for i := range profiles {
		p := &profiles[i]
		healthy := meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy)
		switch {
		case p.Spec.ClusterManager.Name != clusterset.ClusterManager ||
			p.Annotations[clusterset.AnnotationClusterUID] == "":
		case p.DeletionTimestamp != nil || p.Annotations[clusterset.AnnotationLeft] != "":
		case healthy != nil && healthy.Status != metav1.ConditionTrue && healthy.Reason == reasonHeartbeatLost:
		default:
			awaited[p.Name] = time.Time{}
		}
	}
	for i := range leases {
		if _, ok := awaited[leases[i].Name]; ok && leases[i].Spec.RenewTime != nil {
			awaited[leases[i].Name] = leases[i].Spec.RenewTime.Time
		}
	}
	return awaited
}

// Observe removes the members that renewed their Lease since the start, which was elapsed ago. It reports whether the
// hub appears to be restored: a member had no Lease at the start, or by its own clock more time lies between its two
// renewals than elapsed and one Lease duration. The Leases of a restored hub are as old as the backup.
func (a Awaited) Observe(leases []coordinationv1.Lease, elapsed time.Duration) (restored bool) {
	for i := range leases {
		spec := &leases[i].Spec
		before, ok := a[leases[i].Name]
		if !ok || spec.RenewTime == nil || spec.RenewTime.Time.Equal(before) {
			continue
		}
		duration := time.Minute
		if spec.LeaseDurationSeconds != nil {
			duration = max(duration, time.Duration(*spec.LeaseDurationSeconds)*time.Second)
		}
		restored = restored || before.IsZero() || spec.RenewTime.Sub(before) > elapsed+duration
		delete(a, leases[i].Name)
	}
	return restored
}
