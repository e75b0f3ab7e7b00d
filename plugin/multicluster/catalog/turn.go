package catalog

// tier is a run of parts of one rank, by where it ends.
type tier struct {
	parts, hosts int
	alone        bool // it and those before are answered without those behind
}

// rank divides the parts into tiers.
func (h *headless) rank(t Topology) {
	for i, p := range h.parts {
		h.ring += len(p.hosts) - 1
		if i+1 < len(h.parts) && h.parts[i+1].rank == p.rank {
			continue
		}
		end := tier{parts: i + 1, hosts: h.ring}
		end.alone = end.parts < len(h.parts) && t.alone(p.rank, h.parts[end.parts].rank)
		h.tiers = append(h.tiers, end)
	}
}

// near is the last tier whose addresses are answered. Every tier has an endpoint.
func (h *headless) near() int {
	for i, t := range h.tiers {
		if t.alone {
			return i
		}
	}
	return len(h.tiers) - 1
}

// turn is where a walk over the hosts stands, in the order of answers: tier by tier, each around from where the window begins. It is small,
// since a query's walk is on its stack.
type turn struct {
	tiers, left int // tiers that were begun, and hosts of the last one that are still to come
	part, host  int
}

// next moves to the next host, if there is one. found tells whether there is an answer: then it may end with a tier.
func (h *headless) next(t *turn, w Window, found bool) bool {
	if t.left == 0 {
		return h.nextTier(t, w, found)
	}
	t.left--
	if t.host++; t.host == len(h.parts[t.part].hosts)-1 {
		t.part, t.host = t.part+1, 0
		if t.part == h.tiers[t.tiers-1].parts {
			t.part = h.begin(t.tiers - 1).parts
		}
	}
	return true
}

// nextTier moves to the first host of the next tier. What the tiers before leave of a window is how far its start moves with each epoch, so
// that every host has its turn (M6).
func (h *headless) nextTier(t *turn, w Window, found bool) bool {
	if t.tiers == len(h.tiers) || t.tiers > 0 && found && h.tiers[t.tiers-1].alone && !w.Everyone {
		return false
	}
	begin, end := h.begin(t.tiers), h.tiers[t.tiers]
	n := end.hosts - begin.hosts
	*t = turn{tiers: t.tiers + 1, left: n - 1, part: begin.parts}
	if w.Max > 0 {
		w.Max = max(w.Max-begin.hosts, 1)
		t.host = w.start(n)
	}
	for ; t.host >= len(h.parts[t.part].hosts)-1; t.part++ {
		t.host -= len(h.parts[t.part].hosts) - 1
	}
	return true
}

// begin is where a tier begins: where the one before ends.
func (h *headless) begin(i int) tier {
	if i == 0 {
		return tier{}
	}
	return h.tiers[i-1]
}
