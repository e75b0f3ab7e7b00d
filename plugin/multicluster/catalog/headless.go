package catalog

// find looks a host up by its label and its whole cluster id.
func (h *headless) find(label, cluster string) (p *part, id int, ok bool) {
	for _, p := range h.parts {
		if p.cluster == cluster {
			id, ok := p.find(label)
			return p, id, ok
		}
	}
	return nil, 0, false
}

// place is a host's in the ring of all.
type place struct{ part, host int }

// place is the one that so many hosts stand before.
func (h *headless) place(n int) (at place) {
	for ; n >= len(h.parts[at.part].hosts)-1; at.part++ {
		n -= len(h.parts[at.part].hosts) - 1
	}
	at.host = n
	return at
}

// after is the place behind another; behind the last comes the first.
func (h *headless) after(at place) place {
	if at.host++; at.host < len(h.parts[at.part].hosts)-1 {
		return at
	}
	return place{part: (at.part + 1) % len(h.parts)}
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
	out := make([]byte, 0, w.Max*width)
	at := h.place(w.start(h.ring))
	for hosts, i := 0, 0; i < h.ring && hosts < w.Max; i, at = i+1, h.after(at) {
		addrs := w.clip(h.parts[at.part].addrs(at.host, wanted), width)
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

// Targets are the answers of a question for SRV.
type Targets struct {
	svc         *Service
	name, proto string // of the port; both "": all named ports (N7)
	window      Window
}

// Targets of the ports that match a name and a protocol; "" and "" match all.
func (s *Service) Targets(name, proto string, w Window) Targets {
	return Targets{svc: s, name: name, proto: proto, window: w}
}

// Walk walks the distinct (target, port number) of an SRV answer, in a stable order. The zero value has none.
type Walk struct {
	Targets
	next        place // the next host
	walked      int   // hosts
	most, taken int   // hosts: the window's size, 0 for all, and how many were answered
	part        *part
	host        int
	numbers     numberIter
	inHost      bool
}

// Walk begins a walk.
func (t Targets) Walk() Walk {
	w := Walk{Targets: t}
	if t.svc != nil && t.svc.headless != nil {
		if h := t.svc.headless; t.window.Max > 0 && h.ring > t.window.Max {
			w.next, w.most = h.place(t.window.start(h.ring)), t.window.Max
		}
	}
	return w
}

// Next moves to the next target, and tells whether there is one.
func (t *Walk) Next() bool {
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

// nextHost moves to the first port number of the next host that has one.
func (t *Walk) nextHost() bool {
	h := t.svc.headless
	if h == nil {
		if t.inHost {
			return false
		}
		t.inHost = true
		t.numbers = t.svc.ports.numbers(t.name, t.proto)
		return true
	}
	if t.walked == h.ring || t.most > 0 && t.taken == t.most {
		return false
	}
	t.part, t.host = h.parts[t.next.part], t.next.host
	t.next = h.after(t.next)
	t.walked++
	t.inHost = true
	t.numbers = t.part.ports[t.part.hosts[t.host].ports].numbers(t.name, t.proto)
	if peek := t.numbers; peek.next() {
		t.taken++
	}
	return true
}

// Number is the port number of the target.
func (t *Walk) Number() uint16 { return t.numbers.number }

// Index tells targets apart: two with the same one have the same name.
func (t *Walk) Index() int { return t.walked }

// Host is the label and the cluster id of the target's host name, both "" where the target is the Service.
func (t *Walk) Host() (label, cluster string) {
	if t.part == nil {
		return "", ""
	}
	return t.part.label(t.host), t.part.cluster
}

// Addrs are the target's addresses of both families, packed (M3).
func (t *Walk) Addrs() (v4, v6 string) {
	if t.part == nil {
		return t.svc.v4, t.svc.v6
	}
	return t.window.clip(t.part.addrs(t.host, V4), 4), t.window.clip(t.part.addrs(t.host, V6), 16)
}
