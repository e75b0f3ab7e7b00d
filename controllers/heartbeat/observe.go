package heartbeat

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// renewal is a renewal that this process wrote.
type renewal struct {
	renewTime metav1.MicroTime
	at        time.Time // monotonic
}

// observation is the last observed change of a Lease.
type observation struct {
	renewed liveness.Renewal
	at      time.Time // by this agent's clock
	changed bool      // the Lease was renewed since it was created, as observed
	states  string    // its annotation that lists the member's records
}

// Fresh returns whether the hub has shown a renewal by this process within the Lease's duration.
func (h *Heartbeat) Fresh() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.seen[h.Cluster]
	return ok && h.Now().Sub(s.at) < h.duration
}

// HubSeen returns when the hub last showed a renewal by this process; zero before the first.
func (h *Heartbeat) HubSeen() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[h.Cluster].at
}

// observe notes a change of a Lease. This member's own Lease counts only with a recent renewal by
// this process: an older renewal proves that the watch lags behind.
func (h *Heartbeat) observe(cluster string, lease *coordinationv1.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lease == nil || lease.Spec.RenewTime == nil {
		return
	}
	renewed := liveness.RenewalOf(lease)
	was, known := h.seen[cluster]
	if known && !renewed.After(was.renewed) { // from a backup
		return
	}
	if cluster == h.Cluster {
		if !h.wroteRecently(*lease.Spec.RenewTime) {
			return
		}
		h.shown, h.unseenSince, h.silentRelists = true, time.Time{}, 0
	}
	h.seen[cluster] = observation{
		renewed: renewed, at: h.Now(), states: lease.Annotations[liveness.AnnotationRecords],
		// A recreated Lease may come from a backup. Its annotation is outdated until its owner renews it.
		changed: known && renewed.Created.Equal(was.renewed.Created),
	}
}

// isOld returns whether a renewal is too old to prove that the view is current: half of a Lease's duration.
func (h *Heartbeat) isOld(r renewal) bool { return h.Now().Sub(r.at) >= h.duration/2 }

func (h *Heartbeat) wroteRecently(renewTime metav1.MicroTime) bool {
	return slices.ContainsFunc(h.written, func(r renewal) bool { return r.renewTime.Equal(&renewTime) && !h.isOld(r) })
}

func (h *Heartbeat) recordWritten(renewTime metav1.MicroTime) {
	h.written = append(slices.DeleteFunc(h.written, h.isOld), renewal{renewTime, h.Now()})
}
