package heartbeat

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
)

// say puts this member's vote on its Lease; where it is not known yet, the one that its last process said (F4).
func (h *Heartbeat) say(lease *coordinationv1.Lease, before string) {
	vote, known := h.Votes()
	if !known {
		vote = before
	}
	votes.Say(lease, vote)
}
