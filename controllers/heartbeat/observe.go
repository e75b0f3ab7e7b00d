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

// recent returns the renewals that may still prove that the view is current: those within half of a Lease's duration.
// The caller holds mu.
func (h *Heartbeat) recent() []renewal {
	now := h.Now()
	return slices.DeleteFunc(h.written, func(x renewal) bool { return now.Sub(x.at) >= h.duration/2 })
}

// Fresh returns whether the hub has shown a renewal by this process within the Lease's duration.
func (h *Heartbeat) Fresh() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.seenAt.IsZero() && h.Now().Sub(h.seenAt) < h.duration
}

// HubSeen returns when the hub last showed a renewal by this process; zero before the first.
func (h *Heartbeat) HubSeen() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seenAt
}

// observe notes a recent renewal by this process. An older renewal proves that the watch lags behind.
func (h *Heartbeat) observe(lease *coordinationv1.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	renewed := liveness.RenewalOf(lease)
	if !renewed.After(h.seen) { // none, or from a backup
		return
	}
	h.written = h.recent()
	if slices.ContainsFunc(h.written, func(x renewal) bool { return x.renewTime.Equal(lease.Spec.RenewTime) }) {
		h.seen, h.seenAt, h.unseenSince, h.silentLists = renewed, h.Now(), time.Time{}, 0
	}
}
