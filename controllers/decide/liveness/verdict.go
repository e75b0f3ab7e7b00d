package liveness

import (
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// A member's own Lease for each of its sources bears what it makes of that source.
const (
	LabelSource = "clusterset-dns.io/source-cluster" // the source's cluster id

	AnnotationBack = "clusterset-dns.io/back" // RFC 3339: since when it renews again, while it still counts as dead

	annotationState    = "clusterset-dns.io/state"     // Live or Dead
	annotationOnExpiry = "clusterset-dns.io/on-expiry" // the policy that a dead one's endpoints are treated by
	annotationKeepLast = "clusterset-dns.io/keep-last" // true or false

	stateLive = "Live"
	stateDead = "Dead"
)

// LeaseName is that of a member's own Lease for a source.
func LeaseName(cluster string) string { return "source-" + cluster }

// Verdict is what a member makes of a source. The zero Verdict is of one that lives.
type Verdict struct {
	Dead     bool
	OnExpiry hubv1alpha1.ExpiryPolicy // what becomes of a dead one's endpoints
	KeepLast bool                     // but for those that nobody else has
}

// Write puts it into a Lease's annotations. A living source's says nothing of policies, so that it does not change with them.
func (v Verdict) Write(into map[string]string) {
	into[annotationState] = stateLive
	delete(into, annotationOnExpiry)
	delete(into, annotationKeepLast)
	if v.Dead {
		into[annotationState], into[annotationOnExpiry], into[annotationKeepLast] = stateDead, string(v.OnExpiry), strconv.FormatBool(v.KeepLast)
	}
}

// VerdictOf reads it; nil, as a Lease that says nothing, is of a source that lives.
func VerdictOf(lease *coordinationv1.Lease) (v Verdict) {
	if lease == nil || lease.Annotations[annotationState] != stateDead {
		return v
	}
	return Verdict{Dead: true, OnExpiry: hubv1alpha1.ExpiryPolicy(lease.Annotations[annotationOnExpiry]), KeepLast: lease.Annotations[annotationKeepLast] == "true"}
}

// BackOf is since when a dead source renews again, and is only damped (T3); zero while it does not.
func BackOf(lease *coordinationv1.Lease) time.Time {
	back, _ := time.Parse(time.RFC3339Nano, lease.Annotations[AnnotationBack])
	return back
}
