package heartbeat

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// rival is another agent that renews this member's Lease though this one leads in its cluster: a clone of the cluster, which has its UID
// and its credentials too (DESIGN §6). Both see it. The one that found the other holding the Lease when it began keeps still, so that the
// member goes on being served as it was; and it stays so while anybody renews, also after a restart of the other.
type rival struct {
	holder   string
	renewals int
	last     time.Time // its last one, as it wrote it
	seen     time.Time
	elder    bool
}

// renewals by which it is one: a leader that has just lost may still have a renewal under way.
const renewals = 2

// Rival tells whether this agent keeps still because of an elder one.
func (h *Heartbeat) Rival() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rival.rules(h.Now(), h.duration)
}

// Still tells whether this agent is to publish nothing: because of an elder one, or since it may yet turn out that there is one.
func (h *Heartbeat) Still() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rival.rules(h.Now(), h.duration) || h.rival.mayCome(h.first, h.Now(), h.every, h.predecessor, h.succeeded)
}

// MayPublish returns whether this agent speaks for its member.
func (h *Heartbeat) MayPublish() bool { return !h.Still() }

// unproven tells whether what this agent renews may be an elder one's. It is not this cluster's word then: a restart would succeed the elder
// one by it, and a leave take it out.
func (h *Heartbeat) unproven() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.first
	if first.IsZero() {
		first = h.Now()
	}
	return h.rival.rules(h.Now(), h.duration) || h.rival.mayCome(first, h.Now(), h.every, h.predecessor, h.succeeded)
}

// mayCome tells whether an elder one may yet show itself: predecessor held the Lease when this agent began, at first, and there was no
// time since for it to renew, or to renew again. One that this agent succeeds has ended, unless it renews after all.
func (r rival) mayCome(first, now time.Time, every time.Duration, predecessor string, succeeded bool) bool {
	since, may := first, predecessor != "" && !succeeded
	if r.holder == predecessor && r.renewals < renewals && r.seen.After(since) {
		since, may = r.seen, predecessor != ""
	}
	return first.IsZero() || may && now.Sub(since) < every+every/5
}

// rules tells whether it is an elder one that renewed within a Lease's duration.
func (r rival) rules(now time.Time, duration time.Duration) bool {
	return r.elder && now.Sub(r.seen) < duration
}

// saw is the rival after a foreign renewal, the same one or another: predecessor is who held the Lease when this agent began.
func (r rival) saw(holder string, renewed, now time.Time, duration time.Duration, predecessor string) rival {
	if !r.last.Before(renewed) {
		return r
	}
	if r.holder != holder || now.Sub(r.seen) >= duration {
		r = rival{holder: holder, elder: r.rules(now, duration)} // a restart of the elder one
	}
	r.renewals, r.last, r.seen = r.renewals+1, renewed, now
	if r.renewals >= renewals && r.holder == predecessor {
		r.elder = true
	}
	return r
}

// Contested tells whether another agent has renewed the own Lease within a Lease's duration.
func (h *Heartbeat) Contested() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rival.holder != "" && h.Now().Sub(h.rival.seen) < h.duration
}

// watchRival takes note of who has renewed the own Lease after this agent has.
func (h *Heartbeat) watchRival(lease *coordinationv1.Lease) {
	spec := lease.Spec
	if spec.HolderIdentity == nil || spec.RenewTime == nil || *spec.HolderIdentity == h.holder {
		return
	}
	h.mu.Lock()
	if _, own := h.seen[h.Cluster]; !own { // what precedes our first renewal is our predecessor's
		h.mu.Unlock()
		return
	}
	was := h.rival
	h.rival = was.saw(*spec.HolderIdentity, spec.RenewTime.Time, h.Now(), h.duration, h.predecessor)
	now := h.rival
	h.mu.Unlock()
	if now == was || now.renewals != renewals {
		return
	}
	what := "It began later, and is to keep still; this one goes on."
	if now.elder {
		what = "It was there first: this one publishes nothing until the other has stopped. What is imported here stays."
	}
	h.Events.Event(kube.System(), kube.Warning, "RivalAgent",
		fmt.Sprintf("Agent %q renews the Lease of cluster %s on the hub beside this one (%q), and is not of this cluster's leader election: is it a clone of this cluster? %s Give the clone an id of its own: docs/operate.md, to clone a cluster.",
			now.holder, h.Cluster, h.holder, what))
}
