package heartbeat

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
)

// say puts this member's vote on its Lease, where it is known (F4).
func (h *Heartbeat) say(lease *coordinationv1.Lease) {
	switch vote, known := h.Votes(); {
	case !known:
	case vote == "":
		delete(lease.Annotations, votes.Annotation)
	default:
		lease.Annotations[votes.Annotation] = vote
	}
}
