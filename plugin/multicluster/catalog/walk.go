package catalog

import "slices"

// Walk visits the distinct (target, port number) pairs of an SRV answer, in the order of the window's turn. A walk
// visits each host at most once. Next allocates at most once, at the first host with several port lists. Copy a Walk
// only before its first Next: later copies share seen.
type Walk struct {
	svc    *Service
	name   portName // zero: all named ports (N7)
	window Window
	space  int // octets for the label and the cluster ID of a host

	hosts []place // in the order of answers
	tiers []tier  // of hosts
	has   []bool  // which groups have the port, if there are several lists
	one   string  // the packed numbers of the port, if there is one list

	tier, visited int // where the walk is: a tier, and how many of its hosts were visited
	walked        int // hosts
	at            place
	lists         []Ports // of the host that are still to come
	numbers       string  // that are still to come
	number        uint16
	several       bool                  // the host has several lists
	seen          *[1 << 16 / 64]uint64 // the numbers of such a host; nil before the first
}

// Targets returns a walk before the first target of the ports that match a name and a protocol; "" and "" match all.
func (s *Service) Targets(name, proto string, window Window) Walk {
	w := Walk{svc: s, name: portName{name, proto}, window: window, space: MaxName}
	h := s.headless
	if h == nil {
		w.one = s.ports.numbersOf(w.name)
		return w
	}
	w.hosts, w.tiers = h.order, h.tiers
	if h.portIndex != nil {
		w.has = make([]bool, len(h.groups))
		for i, g := range h.groups {
			w.has[i] = slices.ContainsFunc(g.ports, func(list Ports) bool { return w.numbersOf(list) != "" })
		}
	} else if len(h.lists) > 0 {
		w.one = h.lists[0].numbersOf(w.name)
	}
	if window.Max > 0 && len(h.order) > window.Max {
		w.hosts, w.tiers = h.window(window, w.matches)
	}
	return w
}

// Below leaves out the hosts whose names are too long for DNS below the Service's own name, which ends in a dot (N12).
func (w *Walk) Below(service string) { w.space = MaxName - len("..") - len(service) }

// Next moves to the next target, and reports whether there is one.
func (w *Walk) Next() bool {
	for {
		for len(w.numbers) > 0 {
			w.number, w.numbers = number(w.numbers), w.numbers[2:]
			if !w.several || w.isNew() {
				return true
			}
		}
		if len(w.lists) > 0 {
			w.numbers, w.lists = w.numbersOf(w.lists[0]), w.lists[1:]
			continue
		}
		if !w.nextHost() {
			return false
		}
	}
}

// isNew notes the number, and reports whether the host had it not yet.
func (w *Walk) isNew() bool {
	word, bit := &w.seen[w.number/64], uint64(1)<<(w.number%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

// nextHost moves to the next host that has the port.
func (w *Walk) nextHost() bool {
	if w.svc.headless == nil {
		first := w.walked == 0
		if first {
			w.walked, w.numbers = 1, w.one
		}
		return first
	}
	for w.tier < len(w.tiers) {
		begin, t := 0, w.tiers[w.tier]
		if w.tier > 0 {
			begin = w.tiers[w.tier-1].end
		}
		if n := t.end - begin; n > 0 {
			at := begin + turn(w.visited, n, w.window.Turn)
			for ; w.visited < n; at++ {
				if at == t.end {
					at = begin
				}
				w.visited++
				if p := w.hosts[at]; w.matches(p) && w.visit(p) {
					return true
				}
			}
		}
		if t.alone && w.walked > 0 && !w.window.Everyone {
			return false
		}
		w.tier, w.visited = w.tier+1, 0
	}
	return false
}

// matches reports whether a host has the port.
func (w *Walk) matches(p place) bool {
	if w.has != nil {
		return w.has[p.group]
	}
	return w.one != "" && len(w.svc.headless.groups[p.group].ports) > 0
}

// visit moves to a host, and reports whether it has a name that fits. One that does not is no target (N12), so it does
// not count for a preference either.
func (w *Walk) visit(p place) bool {
	h := w.svc.headless
	w.at = p
	if label, cluster := w.Host(); len(label)+len(cluster) > w.space {
		return false
	}
	w.walked++
	if h.portIndex == nil {
		w.numbers = w.one
		return true
	}
	w.lists = h.groups[p.group].ports
	if w.several = len(w.lists) > 1; w.several {
		if w.seen == nil {
			w.seen = new([1 << 16 / 64]uint64)
		}
		clear(w.seen[:])
	}
	return true
}

// numbersOf returns the packed numbers that a list has of the port, where there are several lists.
func (w *Walk) numbersOf(list Ports) string {
	if w.name == (portName{}) {
		return list.numbers()
	}
	return w.svc.headless.portIndex.numbers[portOf{w.name, list}]
}

// Number is the port number of the target.
func (w *Walk) Number() uint16 { return w.number }

// HostNumber is the number of the target's host in this walk: equal numbers mean the same host name.
func (w *Walk) HostNumber() int { return w.walked }

// Host returns the label and the cluster ID of the target's host name, both "" if the target is the Service.
func (w *Walk) Host() (label, cluster string) {
	h := w.svc.headless
	if h == nil {
		return "", ""
	}
	return h.host(w.at).label, h.groups[w.at.group].cluster
}

// Addrs returns the target's addresses of both families, packed (M3).
func (w *Walk) Addrs() (v4, v6 string) {
	h := w.svc.headless
	if h == nil {
		return w.svc.v4, w.svc.v6
	}
	host := h.host(w.at)
	return w.window.clip(host.v4, 4), w.window.clip(host.v6, 16)
}
