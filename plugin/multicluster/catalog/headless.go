package catalog

// find looks a host up by its label and its whole cluster id.
func (h *headless) find(label, cluster string) (id int, ok bool) {
	for c := range h.clusters {
		if h.clusters[c] != cluster {
			continue
		}
		mask := uint32(len(h.table) - 1)
		for i := hashHost(hashLabel(label), uint16(c)) & mask; h.table[i] != 0; i = (i + 1) & mask {
			id := int(h.table[i] - 1)
			if h.hosts[id].cluster == uint16(c) && h.label(id) == label {
				return id, true
			}
		}
		return 0, false
	}
	return 0, false
}

func (h *headless) label(id int) string { return h.labels[h.hosts[id].label:h.hosts[id+1].label] }

func (h *headless) hostAddrs(id int, wanted Wanted) string {
	if wanted == V6 {
		return h.v6[h.hosts[id].a6:h.hosts[id+1].a6]
	}
	return h.v4[h.hosts[id].a4:h.hosts[id+1].a4]
}

// addresses of one family of all hosts, each once (N6), or of those in the window (M6).
func (h *headless) addresses(wanted Wanted, w Window) string {
	all, width := h.all4, 4
	if wanted == V6 {
		all, width = h.all6, 16
	}
	if w.Max == 0 || len(all) <= w.Max*width {
		return all
	}
	return string(h.windowed(wanted, width, w))
}

// windowed takes hosts from the window's start until the window is full. A host without an address of the family is
// passed over, so that a family that few hosts have is not answered with nothing.
func (h *headless) windowed(wanted Wanted, width int, w Window) []byte {
	ring := len(h.hosts) - 1
	out := make([]byte, 0, w.Max*width)
	for hosts, i := 0, 0; i < ring && hosts < w.Max; i++ {
		addrs := w.clip(h.hostAddrs((w.start(ring)+i)%ring, wanted), width)
		if addrs != "" {
			hosts++
		}
		for ; addrs != "" && len(out) < w.Max*width; addrs = addrs[width:] {
			if !holds(out, addrs[:width]) {
				out = append(out, addrs[:width]...)
			}
		}
	}
	return out
}

func holds(packed []byte, addr string) bool {
	for i := 0; i < len(packed); i += len(addr) {
		if string(packed[i:i+len(addr)]) == addr {
			return true
		}
	}
	return false
}

// clip cuts the addresses of one host to the window.
func (w Window) clip(addrs string, width int) string {
	n := len(addrs) / width
	if w.Max == 0 || n <= w.Max {
		return addrs
	}
	start := w.start(n) * width
	end := start + w.Max*width
	if end <= len(addrs) {
		return addrs[start:end]
	}
	return addrs[start:] + addrs[:end-len(addrs)]
}

// Targets walks the distinct (target, port number) of an SRV answer, in a stable order. The zero value has none. A copy is
// a walk of its own.
type Targets struct {
	svc         *Service
	name, proto string // of the port; both "": all named ports (N7)
	window      Window
	at, ring    int // the next host, and how many there are; no ring: the Service itself is the one target
	walked      int
	most, taken int // hosts: the window's size, 0 for all, and how many were answered
	host        int
	numbers     numberIter
	inHost      bool
}

// Next moves to the next target, and tells whether there is one.
func (t *Targets) Next() bool {
	if t.svc == nil {
		return false
	}
	for {
		if t.inHost && t.numbers.next() {
			return true
		}
		if !t.nextHost() {
			return false
		}
	}
}

// any tells whether there is a target, without moving.
func (t *Targets) any() bool {
	first := *t
	return first.Next()
}

// nextHost moves to the first port number of the next host that has one.
func (t *Targets) nextHost() bool {
	h := t.svc.headless
	if h == nil {
		if t.inHost {
			return false
		}
		t.inHost = true
		t.numbers = t.svc.ports.numbers(t.name, t.proto)
		return true
	}
	if t.walked == t.ring || t.most > 0 && t.taken == t.most {
		return false
	}
	t.host = t.at
	t.at++
	if t.at == t.ring {
		t.at = 0
	}
	t.walked++
	t.inHost = true
	if h.label(t.host) == "" { // no name, no target
		t.numbers = numberIter{}
		return true
	}
	t.numbers = h.ports[h.hosts[t.host].ports].numbers(t.name, t.proto)
	if peek := t.numbers; peek.next() {
		t.taken++
	}
	return true
}

// Number is the port number of the target.
func (t *Targets) Number() uint16 { return t.numbers.number }

// Index tells targets apart: two with the same one have the same name.
func (t *Targets) Index() int { return t.host }

// Host is the label and the cluster id of the target's host name, both "" where the target is the Service.
func (t *Targets) Host() (label, cluster string) {
	h := t.svc.headless
	if h == nil {
		return "", ""
	}
	return h.label(t.host), h.clusters[h.hosts[t.host].cluster]
}

// Addrs are the target's addresses of both families, packed (M3).
func (t *Targets) Addrs() (v4, v6 string) {
	h := t.svc.headless
	if h == nil {
		return t.svc.v4, t.svc.v6
	}
	return t.window.clip(h.hostAddrs(t.host, V4), 4), t.window.clip(h.hostAddrs(t.host, V6), 16)
}
