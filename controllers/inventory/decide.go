// Package inventory maintains the ClusterProfiles of a clusterset on the hub (K4322): the label and the finalizer,
// and the conditions Joined and ControlPlaneHealthy. It also cleans up after a member that departed. It does not touch
// what a member writes there (version, properties), what an admin writes there (displayName, accessProviders), or the
// profiles of other cluster managers.
//
// A member is live if it renews its Lease. Only times of this program's clock are compared: when it saw a renewal,
// never what the member's clock wrote.
package inventory

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
)

const (
	ReasonNotClaimed       = "NotClaimed"       // Joined is False: no cluster has used the claim yet
	ReasonHeartbeatPending = "HeartbeatPending" // Joined False, ControlPlaneHealthy Unknown: no renewal yet
	ReasonMember           = "Member"           // Joined is True
	ReasonHeartbeat        = "Heartbeat"        // ControlPlaneHealthy is True: the Lease is being renewed
	ReasonHeartbeatLost    = "HeartbeatLost"    // ControlPlaneHealthy is Unknown: the Lease is no longer renewed
)

// observation is what this program has seen of a member's Lease. The zero value means that it has seen none.
type observation struct {
	renewed metav1.MicroTime // as the Lease has it; only compared with another one
	at      time.Time        // when this program first saw that, by its own clock
	changed bool             // whether it has seen a renewal, and not just the Lease
}

// mark sets the label of this cluster manager, and the finalizer that cleanUp removes, and returns whether
// it changed anything.
func mark(p *inventoryv1alpha1.ClusterProfile) bool {
	labelled := p.Labels[inventoryv1alpha1.LabelClusterManager] == clusterset.ClusterManager
	metav1.SetMetaDataLabel(&p.ObjectMeta, inventoryv1alpha1.LabelClusterManager, clusterset.ClusterManager)
	return controllerutil.AddFinalizer(p, clusterset.FinalizerRecords) || !labelled
}

// setConditions sets Joined and ControlPlaneHealthy. It returns whether it changed anything, and when to look again;
// 0 means never. silence is how long a member may go without a renewal.
func setConditions(
	p *inventoryv1alpha1.ClusterProfile, seen observation, silence time.Duration, now time.Time,
) (changed bool, again time.Duration) {
	healthy, again := health(p, seen, silence, now)
	p.Status.Conditions, changed = conditions.Set(
		p.Status.Conditions, []metav1.Condition{joined(p, seen), healthy}, p.Generation, metav1.NewTime(now))
	return changed, again
}

func joined(p *inventoryv1alpha1.ClusterProfile, seen observation) metav1.Condition {
	c := metav1.Condition{Type: inventoryv1alpha1.ConditionJoined, Status: metav1.ConditionFalse}
	switch {
	case p.Annotations[clusterset.AnnotationClusterUID] == "":
		c.Reason, c.Message = ReasonNotClaimed, "No cluster has used this claim yet: "+
			"an agent must run with these credentials (kubectl clusterset doctor)."
	case seen == observation{} && !meta.IsStatusConditionTrue(p.Status.Conditions, inventoryv1alpha1.ConditionJoined):
		c.Reason, c.Message = ReasonHeartbeatPending, "The cluster has the claim, but has not renewed its Lease yet."
	default: // a deleted Lease is written again, and ends no membership
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonMember, "The cluster is a member."
	}
	return c
}

// health returns ControlPlaneHealthy, and when it may change. A Lease that this program sees for the first time
// proves neither that its owner is live nor that it is not: until it changes, or expires, the previous status stays.
func health(
	p *inventoryv1alpha1.ClusterProfile, seen observation, silence time.Duration, now time.Time,
) (c metav1.Condition, again time.Duration) {
	lost := metav1.Condition{Type: inventoryv1alpha1.ConditionControlPlaneHealthy, Status: metav1.ConditionUnknown}
	lost.Reason, lost.Message = ReasonHeartbeatLost, "The cluster does not renew its Lease: "+
		"the cluster, its agent, or the network between it and the hub is down."
	waiting := lost
	waiting.Reason, waiting.Message = ReasonHeartbeatPending, "The cluster has not renewed its Lease yet."
	was := meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy)
	pending := was == nil || was.Reason == ReasonHeartbeatPending
	left := silence - now.Sub(seen.at)
	switch {
	case seen == observation{} && pending:
		return waiting, 0
	case seen == observation{}, left <= 0:
		return lost, 0
	case seen.changed || was != nil && was.Status == metav1.ConditionTrue:
		return metav1.Condition{
			Type: inventoryv1alpha1.ConditionControlPlaneHealthy, Status: metav1.ConditionTrue,
			Reason: ReasonHeartbeat, Message: "The cluster renews its Lease.",
		}, left
	case pending:
		return waiting, left
	}
	return lost, left
}
