package heartbeat

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// renewal is one that this process wrote.
type renewal struct {
	said metav1.MicroTime
	at   time.Time // monotonic
}

// observation is the last change of a Lease that was seen.
type observation struct {
	renewed liveness.Renewal
	at      time.Time // by this agent's clock
	changed bool      // this very Lease was seen to change: somebody renews it
	states  string    // the records that its member states
}

// Fresh returns whether the hub has shown an own renewal within the Lease's duration.
func (h *Heartbeat) Fresh() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.seen[h.Cluster]
	return ok && h.Now().Sub(s.at) < h.duration
}

// HubSeen returns when the hub last showed an own renewal; zero before the first time.
func (h *Heartbeat) HubSeen() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[h.Cluster].at
}

// observe notes when a Lease was seen to change. The own Lease counts only as this process wrote it of late: an older
// renewal shows the hub as it was then.
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
		if !h.wroteOfLate(*lease.Spec.RenewTime) {
			return
		}
		h.shown, h.unseen, h.silences = true, time.Time{}, 0
	}
	h.seen[cluster] = observation{
		renewed: renewed, at: h.Now(), states: lease.Annotations[liveness.AnnotationRecords],
		// A Lease that was created again may come from a backup, and states what was true then, until its owner renews
		// it.
		changed: known && renewed.Created.Equal(was.renewed.Created),
	}
}

// late returns whether an own renewal is too old to show the hub as it is: half of a Lease's duration.
func (h *Heartbeat) late(r renewal) bool { return h.Now().Sub(r.at) >= h.duration/2 }

func (h *Heartbeat) wroteOfLate(said metav1.MicroTime) bool {
	return slices.ContainsFunc(h.wrote, func(r renewal) bool { return r.said.Equal(&said) && !h.late(r) })
}

func (h *Heartbeat) addWritten(said metav1.MicroTime) {
	h.wrote = append(slices.DeleteFunc(h.wrote, h.late), renewal{said, h.Now()})
}
