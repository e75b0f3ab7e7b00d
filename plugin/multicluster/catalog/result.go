package catalog

import (
	"slices"
	"strings"
)

// Wanted is what a question asks for, as far as an answer depends on it.
type Wanted uint8

// Every type of question but these three is Other.
const (
	Other Wanted = iota
	V4
	V6
	SRV
)

// Outcome says what kind of reply a question gets.
type Outcome uint8

// The outcomes of a question in our zone. NameError stands first: what is not known does not exist.
const (
	NameError Outcome = iota // the name does not exist: NXDOMAIN
	NoData                   // the name exists, with nothing of that type below or at it
	Success
)

// Result is what the catalogue knows of a question. Its memory is shared by all readers, and none can write to it. It is
// small: a query's goroutine is new, and large values on its way down would make its stack grow. The answers of a question for SRV,
// in case of success, are Targets of the Service.
type Result struct {
	Outcome Outcome
	// Pending: there is no address yet, but there will be (N5).
	Pending bool
	// Addrs are the addresses of a question for V4 or V6, packed: four or sixteen octets each.
	Addrs string
}

// Window is a rotating subset of a large headless Service (M6): Max hosts and addresses, from a place that Epoch moves. No
// Max: all. Everyone: those too that a preference leaves out (T2). Zone is how many octets the zone takes in the names of answers.
// Turn is the place in the order of endpoints where this answer begins; any number will do, and each question should have its own. The order
// interleaves clusters, and a preference's tiers are turned each by itself: Result.Addrs and Walk are in that order, so an answer
// that is cut is cut from its end.
type Window struct {
	Max      int
	Epoch    uint64
	Turn     uint64
	Everyone bool
	Zone     int
}

// MaxName is the most octets of a name in presentation format with its last dot, none of them escaped (RFC 1035 §2.3.4).
const MaxName = 254

const maxLabel = 63

// room is how many octets are left for what stands below the Service's own name. A name that does not fit does not exist (N12).
func (s *Service) room(w Window) int { return MaxName - len(s.key) - len(".svc.") - w.Zone }

// start is the place in a ring of n from which the window of this epoch begins.
func (w Window) start(n int) int { return int(w.Epoch * uint64(w.Max) % uint64(n)) }

// Self answers a question for the Service's own name (N5, N6, N7).
func (s *Service) Self(wanted Wanted, w Window) Result {
	switch wanted {
	case V4, V6:
		return s.addresses(wanted, w)
	case SRV:
		if s.anyPorts(w, func(ports union) bool { return ports.has("", "") }) {
			return Result{Outcome: Success}
		}
	}
	return Result{Outcome: NoData}
}

func (s *Service) addresses(wanted Wanted, w Window) Result {
	if h := s.headless; h != nil {
		return found(h.addresses(wanted, w))
	}
	r := found(s.v4)
	if wanted == V6 {
		r = found(s.v6)
	}
	r.Pending = s.v4 == "" && s.v6 == ""
	return r
}

func found(addrs string) Result {
	if addrs == "" {
		return Result{Outcome: NoData}
	}
	return Result{Outcome: Success, Addrs: addrs}
}

// Port answers a question for _name._proto of the Service (N8); both without underscore, in lower case.
func (s *Service) Port(name, proto string, wanted Wanted, w Window) Result {
	switch {
	case !s.anyPorts(w, func(ports union) bool { return ports.has(name, proto) }):
		return Result{}
	case wanted != SRV:
		return Result{Outcome: NoData}
	}
	return Result{Outcome: Success}
}

// Proto answers a question for _proto of the Service, an empty non-terminal where it has a named port of it (N4).
func (s *Service) Proto(proto string, w Window) Result {
	if s.headless != nil && s.headless.zones != nil && proto == "zone" { // decision 0008
		return Result{Outcome: NoData}
	}
	if s.anyPorts(w, func(ports union) bool { return ports.hasProto(proto, s.room(w)) }) {
		return Result{Outcome: NoData}
	}
	return Result{}
}

// anyPorts tells whether the ports of a target of the Service are such.
func (s *Service) anyPorts(w Window, such func(union) bool) bool {
	if s.headless == nil {
		return such(union{first: s.ports})
	}
	room := s.room(w)
	return slices.ContainsFunc(s.headless.parts, func(p *part) bool { return p.anyPorts(room, such) })
}

// Zone is the Service that "<zone>.pin._zone" of this one, or "<zone>.prefer._zone", answers as (decision 0008), in lower case: that of the zone's
// endpoints, else all with prefer, and nil with pin. It tells whether the name exists: with the option, all zones of a Headless
// Service do, so that one without endpoints is answered as one that is not known is.
func (s *Service) Zone(zone string, pin bool) (in *Service, ok bool) {
	if s.headless == nil || s.headless.zones == nil {
		return nil, false
	}
	if in = s.headless.zones[zone]; in == nil && zone != "" && !pin {
		in = s
	}
	return in, true
}

// Host answers a question for a name below the Service other than a port's: "<hostname>.<clusterid>" (N9), or the
// "<clusterid>" or its last label that stand above one (N4, N10, N14).
func (s *Service) Host(name string, wanted Wanted, w Window) Result {
	h := s.headless
	if h == nil { // N10, N11
		return Result{}
	}
	if label, cluster, ok := strings.Cut(name, "."); ok {
		if v4, v6, ok := h.host(hostName{label, cluster}); ok {
			switch wanted {
			case V4:
				return found(w.clip(v4, 4))
			case V6:
				return found(w.clip(v6, 16))
			}
			return Result{Outcome: NoData}
		}
	}
	room := s.room(w)
	for _, p := range h.parts {
		_, parent, two := strings.Cut(p.cluster, ".")
		if p.named(room) && (p.cluster == name || two && parent == name) {
			return Result{Outcome: NoData}
		}
	}
	return Result{}
}
