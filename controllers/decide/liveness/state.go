package liveness

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// Each member keeps one Lease for every source cluster. Its label and annotations hold the source's state.
const (
	LabelSource = "clusterset-dns.io/source-cluster" // cluster ID

	// AnnotationRenewingSince is the time (RFC 3339) since which an expired source renews its Lease again.
	AnnotationRenewingSince = "clusterset-dns.io/renewing-since"
	// AnnotationLeaseExpired is true or false: Observation.Expired.
	AnnotationLeaseExpired = "clusterset-dns.io/lease-expired"

	annotationState    = "clusterset-dns.io/state"     // Live or Expired
	annotationOnExpiry = "clusterset-dns.io/on-expiry" // policy for the endpoints of an expired source

	stateLive    = "Live"
	stateExpired = "Expired"
)

// LeaseName returns the name of a member's own Lease for a source cluster.
func LeaseName(cluster string) string { return "source-" + cluster }

// State is the state of a source cluster. The zero value means live.
type State struct {
	Expired  bool                     // by its Lease, or unreachable
	OnExpiry hubv1alpha1.ExpiryPolicy // policy for the endpoints of an expired source
}

// Write stores the state in the annotations of a Lease. The policy is stored for an expired source only, so that a
// change of the policy does not write the Leases of live ones.
func (s State) Write(annotations map[string]string) {
	annotations[annotationState] = stateLive
	delete(annotations, annotationOnExpiry)
	if s.Expired {
		annotations[annotationState] = stateExpired
		annotations[annotationOnExpiry] = string(s.OnExpiry)
	}
}

// StateOf returns the state that a Lease holds. A Lease that is nil or holds none means live.
func StateOf(lease *coordinationv1.Lease) State {
	if lease == nil || lease.Annotations[annotationState] != stateExpired {
		return State{}
	}
	return State{Expired: true, OnExpiry: hubv1alpha1.ExpiryPolicy(lease.Annotations[annotationOnExpiry])}
}

// RenewingSince returns the time since which an expired source renews again and is damped (T3); zero if it does not
// renew.
func RenewingSince(lease *coordinationv1.Lease) time.Time {
	since, _ := time.Parse(time.RFC3339Nano, lease.Annotations[AnnotationRenewingSince])
	return since
}

// LeaseExpired returns whether the source's Lease on the hub has expired, according to this member's own Lease for the
// source. The source may answer and be live all the same.
func LeaseExpired(lease *coordinationv1.Lease) bool {
	return lease.Annotations[AnnotationLeaseExpired] == "true"
}
