// Package inventory keeps the ClusterProfiles of a clusterset on the hub (SPEC P): what says that they are ours, and whether each member
// has joined and is heard of. What a member itself writes there (version, properties) and what the admin does (displayName,
// accessProviders) it leaves alone; so it does with the profiles of other cluster managers.
//
// A member is heard of by its Lease, and time is only ever compared with time of the same clock: when this program saw a renewal, never
// what the member's clock wrote.
package inventory

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// The reasons of the conditions.
const (
	ReasonNotClaimed    = "NotClaimed"    // Joined is False: no cluster has used the claim yet
	ReasonNeverHeard    = "NeverHeard"    // Joined is False, ControlPlaneHealthy Unknown: the cluster has not renewed its Lease yet
	ReasonMember        = "Member"        // Joined is True
	ReasonHeartbeat     = "Heartbeat"     // ControlPlaneHealthy is True: the Lease is being renewed
	ReasonHeartbeatLost = "HeartbeatLost" // ControlPlaneHealthy is Unknown: the Lease is not renewed any more
)

// sight is what was seen of a member's Lease. The zero value is none.
type sight struct {
	renewed metav1.MicroTime // as the Lease has it; only ever compared with itself
	at      time.Time        // when that was first seen, by this program's clock
	changed bool             // a renewal was seen, not merely the Lease
}

// ours tells whether a ClusterProfile is this cluster manager's.
func ours(p *inventoryv1alpha1.ClusterProfile) bool {
	return p.Spec.ClusterManager.Name == clusterset.ClusterManager
}

// marks sets what says that a profile is ours, and keeps it until its member's things are cleaned up (P2). It tells whether that was
// a change.
func marks(p *inventoryv1alpha1.ClusterProfile) bool {
	if p.Labels[inventoryv1alpha1.LabelClusterManager] == clusterset.ClusterManager && slices.Contains(p.Finalizers, clusterset.FinalizerRecords) {
		return false
	}
	metav1.SetMetaDataLabel(&p.ObjectMeta, inventoryv1alpha1.LabelClusterManager, clusterset.ClusterManager)
	if !slices.Contains(p.Finalizers, clusterset.FinalizerRecords) {
		p.Finalizers = append(p.Finalizers, clusterset.FinalizerRecords)
	}
	return true
}

// conditions sets Joined and ControlPlaneHealthy of a profile (P3), and tells whether that was a change, and in how long to look again;
// 0 is never. silence is how long a member may go without a renewal.
func conditions(p *inventoryv1alpha1.ClusterProfile, s sight, silence time.Duration, now time.Time) (changed bool, again time.Duration) {
	joined := metav1.Condition{Type: inventoryv1alpha1.ConditionJoined, Status: metav1.ConditionFalse}
	switch {
	case p.Annotations[clusterset.AnnotationClusterUID] == "":
		joined.Reason, joined.Message = ReasonNotClaimed, "No cluster has used this claim yet: the agent does, once it runs with these credentials (kubectl clusterset doctor)."
	case s == sight{} && !meta.IsStatusConditionTrue(p.Status.Conditions, inventoryv1alpha1.ConditionJoined):
		joined.Reason, joined.Message = ReasonNeverHeard, "The cluster holds the claim and has not renewed its Lease yet."
	default: // a Lease that somebody deleted is written again and ends no membership
		joined.Status, joined.Reason, joined.Message = metav1.ConditionTrue, ReasonMember, "The cluster is a member."
	}
	healthy, again := health(p, s, silence, now)
	for _, c := range []metav1.Condition{joined, healthy} {
		c.ObservedGeneration = p.Generation
		if was := meta.FindStatusCondition(p.Status.Conditions, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		} else {
			c.LastTransitionTime = metav1.NewTime(now)
		}
		changed = meta.SetStatusCondition(&p.Status.Conditions, c) || changed
	}
	return changed, again
}

// health is ControlPlaneHealthy. A Lease that is seen for the first time, after a start, says neither that its owner lives nor that it
// is dead: until it is seen to change, or has been silent for long enough, what was said before stands.
func health(p *inventoryv1alpha1.ClusterProfile, s sight, silence time.Duration, now time.Time) (c metav1.Condition, again time.Duration) {
	unknown := metav1.Condition{
		Type: inventoryv1alpha1.ConditionControlPlaneHealthy, Status: metav1.ConditionUnknown,
		Reason: ReasonHeartbeatLost, Message: "The cluster does not renew its Lease: it, its agent, or the way from there to here is down.",
	}
	was := meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy)
	left := silence - now.Sub(s.at)
	switch {
	case s == sight{} && (was == nil || was.Reason == ReasonNeverHeard):
		unknown.Reason, unknown.Message = ReasonNeverHeard, "The cluster has not renewed its Lease yet."
		return unknown, 0
	case s == sight{}:
		return unknown, 0
	case left <= 0:
		return unknown, 0
	case s.changed || was != nil && was.Status == metav1.ConditionTrue:
		return metav1.Condition{
			Type: inventoryv1alpha1.ConditionControlPlaneHealthy, Status: metav1.ConditionTrue,
			Reason: ReasonHeartbeat, Message: "The cluster renews its Lease.",
		}, left
	case was == nil || was.Reason == ReasonNeverHeard:
		unknown.Reason, unknown.Message = ReasonNeverHeard, "The cluster has a Lease, and has not been seen to renew it yet."
		return unknown, left
	}
	return unknown, left
}
