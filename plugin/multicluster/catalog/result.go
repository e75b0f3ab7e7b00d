package catalog

import (
	"slices"
	"strings"
)

// Wanted is the type of a question, by its number.
type Wanted uint16

// The types that answers depend on.
const (
	V4  Wanted = 1
	V6  Wanted = 28
	SRV Wanted = 33
)

// Outcome is the kind of reply that a question gets.
type Outcome uint8

// The outcomes of a question in our zone. NameError stands first: what is not known does not exist.
const (
	NameError Outcome = iota // the name does not exist: NXDOMAIN
	NoData                   // the name exists, with nothing of that type below or at it
	Success
)

// Result is what the catalog has for a question. All readers share its memory, and none can write to it. It is
// small, since large values would make the stack of a query's goroutine grow. The answers of a question for SRV,
// after success, are the Service's Targets.
type Result struct {
	Outcome Outcome
	// Pending: there is no address yet, but there will be (N5).
	Pending bool
	// Addrs are the addresses of a question for V4 or V6, packed: four or sixteen octets each.
	Addrs string
}

// Window is the part of a large Headless Service that is answered, and its order.
type Window struct {
	// Max is how many hosts and addresses are answered (M6); 0: all. Each Epoch's are others.
	Max   int
	Epoch uint64
	// Turn is where in the order of endpoints this answer begins; any number is valid, and each question should have
	// its own. The order interleaves clusters, and each tier of a preference turns by itself. Result.Addrs and Walk
	// are in that order, so an answer that does not fit is cut at its end.
	Turn uint64
	// Enough is how many addresses are enough, since the reply cannot have more; 0: all. There may be more of them.
	Enough int
	// Everyone adds the endpoints that a preference leaves out (T2).
	Everyone bool
}

// MaxName is the most octets of a name in presentation format with its last dot, none of them escaped (RFC 1035
// §2.3.4).
const MaxName = 254

const maxLabel = 63

// start is the place in a ring of n from which the window of this epoch begins.
func (w Window) start(n int) int { return int(w.Epoch * uint64(w.Max) % uint64(n)) }

// Self answers a question for the Service's own name (N5, N6, N7).
func (s *Service) Self(wanted Wanted, w Window) Result {
	switch wanted {
	case V4, V6:
		return s.addresses(wanted, w)
	case SRV:
		if s.hasPort(portName{}) {
			return s.targets()
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
	r.Pending = s.pending()
	return r
}

// pending reports whether a ClusterSetIP Service has no address yet (N5).
func (s *Service) pending() bool { return s.headless == nil && s.v4 == "" && s.v6 == "" }

// targets is the result of a question for SRV that has targets, unless they have no address yet.
func (s *Service) targets() Result {
	if s.pending() {
		return Result{Outcome: NoData, Pending: true}
	}
	return Result{Outcome: Success}
}

func found(addrs string) Result {
	if addrs == "" {
		return Result{Outcome: NoData}
	}
	return Result{Outcome: Success, Addrs: addrs}
}

// Port answers a question for _name._proto of the Service (N8); both without underscore, in lower case.
func (s *Service) Port(name, proto string, wanted Wanted) Result {
	switch {
	case !s.hasPort(portName{name, proto}):
		return Result{}
	case wanted != SRV:
		return Result{Outcome: NoData}
	}
	return s.targets()
}

// Proto answers a question for _proto of the Service, an empty non-terminal if it has a named port of it (N4).
func (s *Service) Proto(proto string) Result {
	if s.headless != nil && s.headless.zones != nil && proto == "zone" { // N12
		return Result{Outcome: NoData}
	}
	if s.hasProto(proto) {
		return Result{Outcome: NoData}
	}
	return Result{}
}

// hasPort reports whether a target has the port; the zero name stands for any named one.
func (s *Service) hasPort(name portName) bool {
	h := s.headless
	if h == nil {
		return s.ports.numbersOf(name) != ""
	}
	if name == (portName{}) || h.portIndex == nil {
		return slices.ContainsFunc(h.lists, func(list Ports) bool { return list.numbersOf(name) != "" })
	}
	return h.portIndex.has[name]
}

// hasProto reports whether a target has a port of the protocol.
func (s *Service) hasProto(proto string) bool {
	h := s.headless
	switch {
	case h == nil:
		return s.ports.hasProto(proto)
	case h.portIndex != nil:
		return h.portIndex.has[portName{proto: proto}]
	}
	return len(h.lists) > 0 && h.lists[0].hasProto(proto)
}

// Zone returns the Service that "<zone>.pin._zone" of this one, or "<zone>.prefer._zone", answers as (N12); the zone
// is in lower case. It is that of the zone's endpoints; without any it is all of them with prefer, and nil with pin.
// ok reports whether the name exists: with the option all zones of a Headless Service do, so that one without
// endpoints is answered as one that is not known is.
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
		if src := h.source(cluster); src != nil {
			if host := src.find(label); host != nil {
				if wanted == V4 || wanted == V6 {
					return found(w.clip(host.addrs(wanted), width(wanted)))
				}
				return Result{Outcome: NoData}
			}
		}
	}
	if src := h.source(name); src != nil && len(src.byName) > 0 {
		return Result{Outcome: NoData}
	}
	if h.parents[name] {
		return Result{Outcome: NoData}
	}
	return Result{}
}
