package catalog

// hostName is a label and a whole cluster id.
type hostName struct{ label, cluster string }

// span is a host with endpoints of several ranks: in several parts of its cluster. It is one name, so one target of SRV with all of
// its addresses and ports, at the place of its first rank.
type span struct {
	home   *part // the first that it is in
	ports  union
	v4, v6 string
}

// span finds the hosts that are in several parts.
func (h *headless) span() {
	for i, p := range h.parts {
		for _, q := range h.parts[:i] {
			if p.cluster == q.cluster {
				h.spanOver(q, p)
			}
		}
	}
}

// spanOver finds those of a part and a later one of the same cluster. There are two at the most: of one cluster, ranks differ by zone.
func (h *headless) spanOver(home, other *part) {
	for id := range len(other.hosts) - 1 {
		label := other.label(id)
		first, ok := home.find(label)
		if !ok {
			continue
		}
		if h.spans == nil {
			h.spans = make(map[hostName]*span)
		}
		both := &span{home: home, ports: home.union(first).merge(other.union(id))}
		both.v4, _ = once(home.addrs(first, V4)+other.addrs(id, V4), 4, 0)
		both.v6, _ = once(home.addrs(first, V6)+other.addrs(id, V6), 16, 0)
		h.spans[hostName{label, home.cluster}] = both
	}
}

// host finds the addresses of a host by its label and its whole cluster id.
func (h *headless) host(name hostName) (v4, v6 string, ok bool) {
	if s := h.spans[name]; s != nil {
		return s.v4, s.v6, true
	}
	for _, p := range h.parts {
		if p.cluster == name.cluster {
			if id, ok := p.find(name.label); ok {
				return p.addrs(id, V4), p.addrs(id, V6), true
			}
		}
	}
	return "", "", false
}

// addresses of one family of all hosts, each once (N6), or of those in the window (M6).
func (h *headless) addresses(wanted Wanted, w Window) string {
	all, near, width := h.all4, h.near4, 4
	if wanted == V6 {
		all, near, width = h.all6, h.near6, 16
	}
	if !w.Everyone {
		all = all[:near]
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
	var t turn
	for hosts := 0; hosts < w.Max && h.next(&t, w, true); {
		addrs := w.clip(h.parts[t.part].addrs(t.host, wanted), width)
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
	turn    turn
	walked  int // hosts
	taken   int // hosts that were answered
	numbers numberIter
	inHost  bool
}

// Walk is a walk before its first target.
func (t Targets) Walk() Walk { return Walk{Targets: t} }

// Restart goes back to before the first target.
func (t *Walk) Restart() { t.turn, t.walked, t.taken, t.inHost = turn{}, 0, 0, false }

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

// nextHost moves to the port numbers of the next host.
func (t *Walk) nextHost() bool {
	h := t.svc.headless
	if h == nil {
		if t.inHost {
			return false
		}
		t.inHost = true
		t.numbers.begin(union{first: t.svc.ports}, t.name, t.proto)
		return true
	}
	w := t.window
	if h.ring <= w.Max {
		w.Max = 0 // all
	}
	if w.Max > 0 && t.taken == w.Max || !h.next(&t.turn, w, t.taken > 0) {
		return false
	}
	t.walked++
	t.inHost = true
	p := t.part()
	ports, target := p.union(t.turn.host), true
	if s := t.span(); s != nil {
		ports, target = s.ports, s.home == p
	}
	t.numbers.begin(ports, t.name, t.proto)
	if ports.has(t.name, t.proto) {
		t.taken++
	}
	t.inHost = target
	return true
}

// part is that of the host.
func (t *Walk) part() *part { return t.svc.headless.parts[t.turn.part] }

// span is that of the host, nil for most.
func (t *Walk) span() *span {
	h := t.svc.headless
	if h.spans == nil {
		return nil
	}
	p := t.part()
	return h.spans[hostName{p.label(t.turn.host), p.cluster}]
}

// Number is the port number of the target.
func (t *Walk) Number() uint16 { return t.numbers.number }

// Index tells targets apart: two with the same one have the same name.
func (t *Walk) Index() int { return t.walked }

// Host is the label and the cluster id of the target's host name, both "" where the target is the Service.
func (t *Walk) Host() (label, cluster string) {
	if t.svc.headless == nil {
		return "", ""
	}
	p := t.part()
	return p.label(t.turn.host), p.cluster
}

// Addrs are the target's addresses of both families, packed (M3).
func (t *Walk) Addrs() (v4, v6 string) {
	if t.svc.headless == nil {
		return t.svc.v4, t.svc.v6
	}
	if s := t.span(); s != nil {
		v4, v6 = s.v4, s.v6
	} else {
		p := t.part()
		v4, v6 = p.addrs(t.turn.host, V4), p.addrs(t.turn.host, V6)
	}
	return t.window.clip(v4, 4), t.window.clip(v6, 16)
}
