package catalog

import (
	"cmp"
	"slices"
	"strings"
)

// headless is what a Headless Service adds: the ready endpoints of every source cluster, and the order of answers.
type headless struct {
	sources []*source // by cluster
	groups  []*group  // by rank and cluster
	order   []place   // hosts in the order of answers
	tiers   []tier    // of order, by rank
	v4, v6  []string  // the distinct addresses of each tier, twice in a row: each rotation is a substring
	shared  bool      // several hosts have one address

	lists     []Ports             // the distinct lists of ports
	portIndex *portIndex          // nil if there is at most one list
	parents   map[string]bool     // the last label of each cluster ID of two labels that has named hosts
	zones     map[string]*Service // by zone: a Service of that zone's endpoints only (N12); nil without the option
}

// place locates a host: the index of its group, and its index there.
type place struct{ group, host int32 }

// tier is the hosts of one rank, by where they end in the order.
type tier struct {
	rank  uint8
	end   int
	alone bool // answers end with this tier and leave out later ones
}

// sourcesOf makes the sources of slices. A source of old, nil for none, is used again if its slices are the same:
// most changes are those of one slice.
func sourcesOf(all []*Slice, old *headless, t Topology) []*source {
	from := make([]*Slice, 0, len(all))
	for _, s := range all {
		if s.Len() > 0 {
			from = append(from, s)
		}
	}
	slices.SortFunc(from, func(a, b *Slice) int {
		return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.name, b.name))
	})
	var sources []*source
	for len(from) > 0 {
		n := 1
		for n < len(from) && from[n].cluster == from[0].cluster {
			n++
		}
		s := old.source(from[0].cluster)
		if s == nil || !slices.Equal(s.from, from[:n]) {
			s = newSource(slices.Clone(from[:n]), t) // from itself would keep all clusters' slices in memory
		}
		sources, from = append(sources, s), from[n:]
	}
	return sources
}

// source returns the source of a cluster, or nil.
func (h *headless) source(cluster string) *source {
	if h == nil {
		return nil
	}
	compare := func(s *source, cluster string) int { return strings.Compare(s.cluster, cluster) }
	i, ok := slices.BinarySearchFunc(h.sources, cluster, compare)
	if !ok {
		return nil
	}
	return h.sources[i]
}

// join makes the headless of sources, which is old if they are the same.
func join(sources []*source, old *headless, t Topology) *headless {
	if old != nil && slices.Equal(sources, old.sources) {
		return old
	}
	h := &headless{sources: sources}
	for _, s := range sources {
		h.groups = append(h.groups, s.groups...)
		if _, parent, two := strings.Cut(s.cluster, "."); two && len(s.byName) > 0 {
			if h.parents == nil {
				h.parents = make(map[string]bool)
			}
			h.parents[parent] = true
		}
	}
	slices.SortStableFunc(h.groups, func(a, b *group) int { return cmp.Compare(a.rank, b.rank) })
	h.arrange(t)
	h.v4, h.v6 = h.distinct(V4), h.distinct(V6)
	h.indexPorts(old)
	return h
}

// arrange puts the hosts in the order of answers: by rank, and within a rank so that the hosts of each group stand
// at even distances. So clusters alternate, wherever an answer begins.
func (h *headless) arrange(t Topology) {
	n := 0
	for _, s := range h.sources {
		n += len(s.hosts)
	}
	h.order = make([]place, 0, n)
	for first, end := 0, 0; first < len(h.groups); first = end {
		rank, begin := h.groups[first].rank, len(h.order)
		for ; end < len(h.groups) && h.groups[end].rank == rank; end++ {
			h.order = h.order[:len(h.order)+len(h.groups[end].hosts)]
		}
		if last := len(h.tiers) - 1; last >= 0 {
			h.tiers[last].alone = t.alone(h.tiers[last].rank, rank)
		}
		h.interleave(first, end, h.order[begin:])
		h.tiers = append(h.tiers, tier{rank: rank, end: len(h.order)})
	}
}

// interleave puts the hosts of some groups into their places of the order. Host i of m stands at (2i+1)/2m of the
// way. These positions are integers, so a counting sort places the hosts.
func (h *headless) interleave(first, end int, order []place) {
	at := func(i, m int) int { return (2*i + 1) * len(order) / (2 * m) }
	next := make([]int32, len(order)+1)
	for _, g := range h.groups[first:end] {
		for i := range g.hosts {
			next[at(i, len(g.hosts))+1]++
		}
	}
	for i := range order {
		next[i+1] += next[i]
	}
	for g := first; g < end; g++ {
		m := len(h.groups[g].hosts)
		for i := range m {
			k := at(i, m)
			order[next[k]] = place{int32(g), int32(i)}
			next[k]++
		}
	}
}

func (h *headless) host(p place) *host { return &h.groups[p.group].hosts[p.host] }

// distinct are the addresses of one family of each tier, each once in all tiers (N6), and each tier's list twice in
// a row.
func (h *headless) distinct(wanted Wanted) []string {
	var packed []byte
	isNew := firstSeen(wanted, len(h.order))
	size := width(wanted)
	tiers := make([]string, len(h.tiers))
	begin := 0
	for i, t := range h.tiers {
		packed = packed[:0]
		for _, p := range h.order[begin:t.end] {
			for addrs := h.host(p).addrs(wanted); addrs != ""; addrs = addrs[size:] {
				if isNew(addrs[:size]) {
					packed = append(packed, addrs[:size]...)
				} else {
					h.shared = true
				}
			}
		}
		tiers[i] = string(packed) + string(packed)
		begin = t.end
	}
	return tiers
}

// firstSeen returns a function that reports whether it sees an address for the first time. n is how many there may
// be.
func firstSeen(wanted Wanted, n int) func(addr string) bool {
	if wanted == V6 {
		seen := make(map[[16]byte]struct{}) // grows: most Services have IPv4 alone
		return func(addr string) bool {
			before := len(seen)
			seen[[16]byte([]byte(addr))] = struct{}{}
			return len(seen) > before
		}
	}
	seen := make(map[[4]byte]struct{}, n)
	return func(addr string) bool {
		before := len(seen)
		seen[[4]byte([]byte(addr))] = struct{}{}
		return len(seen) > before
	}
}

func width(wanted Wanted) int {
	if wanted == V6 {
		return 16
	}
	return 4
}

// indexPorts finds the distinct lists of ports, and which of them have which port. What old has of the same lists is
// used again.
func (h *headless) indexPorts(old *headless) {
	seen := make(map[Ports]bool)
	for _, g := range h.groups {
		for _, list := range g.ports {
			if !seen[list] {
				seen[list] = true
				h.lists = append(h.lists, list)
			}
		}
	}
	switch {
	case len(h.lists) < 2:
	case old != nil && slices.Equal(h.lists, old.lists):
		h.portIndex = old.portIndex
	default:
		h.portIndex = newPortIndex(h.lists)
	}
}

// addresses of one family of all hosts, each once (N6), or of those in the window (M6), in the window's turn.
func (h *headless) addresses(wanted Wanted, w Window) string {
	tiers, n := h.v4, 0
	if wanted == V6 {
		tiers = h.v6
	}
	if !w.Everyone {
		tiers = tiers[:h.answered()]
	}
	for _, t := range tiers {
		n += len(t) / 2
	}
	size := width(wanted)
	if w.Max > 0 && n > w.Max*size {
		return h.windowed(wanted, w)
	}
	if len(tiers) == 1 {
		return turned(tiers[0], w.Turn, size)
	}
	if w.Enough > 0 {
		n = min(n, w.Enough*size)
	}
	var all strings.Builder
	all.Grow(n)
	for _, t := range tiers {
		addrs := turned(t, w.Turn, size)
		all.WriteString(addrs[:min(len(addrs), n-all.Len())])
	}
	return all.String()
}

// turned returns a rotation of a list that stands twice in a row. Each address has size octets.
func turned(twice string, rotation uint64, size int) string {
	n := len(twice) / 2
	if n == 0 {
		return ""
	}
	start := int(rotation%uint64(n/size)) * size
	return twice[start : start+n]
}

// answered is how many tiers have addresses that are answered.
func (h *headless) answered() int {
	for i, t := range h.tiers {
		if t.alone {
			return i + 1
		}
	}
	return len(h.tiers)
}

// windowed are the addresses of the hosts in a window.
func (h *headless) windowed(wanted Wanted, w Window) string {
	size := width(wanted)
	hosts, tiers := h.window(w, func(p place) bool { return h.host(p).addrs(wanted) != "" })
	out := make([]byte, 0, w.Max*size)
	isNew := func(string) bool { return true }
	if h.shared {
		isNew = firstSeen(wanted, w.Max)
	}
	begin := 0
	for _, t := range tiers {
		for i := range t.end - begin {
			p := hosts[begin+turn(i, t.end-begin, w.Turn)]
			addrs := w.clip(h.host(p).addrs(wanted), size)
			for ; addrs != "" && len(out) < w.Max*size; addrs = addrs[size:] {
				if isNew(addrs[:size]) {
					out = append(out, addrs[:size]...)
				}
			}
		}
		begin = t.end
	}
	return string(out)
}

// turn returns the index of the i-th of n that a rotation visits.
func turn(i, n int, rotation uint64) int { return (i + int(rotation%uint64(n))) % n }

// window takes the hosts that match from where this epoch's window begins, tier by tier, until it is full (M6). With
// each epoch it moves in a tier by the places that earlier tiers leave, at least one, so that the tier's hosts take
// turns.
func (h *headless) window(w Window, match func(place) bool) (hosts []place, tiers []tier) {
	hosts = make([]place, 0, min(w.Max, len(h.order)))
	begin := 0
	for _, t := range h.tiers {
		n, start := t.end-begin, 0
		if n > 0 {
			start = Window{Max: max(w.Max-begin, 1), Epoch: w.Epoch}.start(n)
		}
		for i := 0; i < n && len(hosts) < w.Max; i++ {
			if p := h.order[begin+(start+i)%n]; match(p) {
				hosts = append(hosts, p)
			}
		}
		begin = t.end
		tiers = append(tiers, tier{end: len(hosts), alone: t.alone})
		if t.alone && len(hosts) > 0 && !w.Everyone {
			break
		}
	}
	return hosts, tiers
}

// clip cuts the addresses of one host to the window.
func (w Window) clip(addrs string, size int) string {
	n := len(addrs) / size
	if w.Max == 0 || n <= w.Max {
		return addrs
	}
	start := w.start(n) * size
	end := start + w.Max*size
	if end <= len(addrs) {
		return addrs[start:end]
	}
	return addrs[start:] + addrs[:end-len(addrs)]
}
