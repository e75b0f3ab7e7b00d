package catalog

import (
	"slices"
	"strings"
	"unique"
)

// Port is one port of a ServiceImport or of a slice. Only named ports have records (N8).
type Port struct {
	Name   string // "" for an unnamed port
	Proto  string // TCP, UDP, SCTP in any case; "" is TCP (N8)
	Number uint16
}

// Ports is a list of ports, interned: most Services of a clusterset have the ports of many others. Packed as, for
// each port, the length of the name, the name, the length of the protocol, the protocol (both lower case) and two
// octets of number.
type Ports struct{ packed unique.Handle[string] }

var noPorts = Ports{unique.Make("")}

// PackPorts interns the ports that have records: those with a name and a number. One whose name is no label loses it: it has no
// name of its own, but counts at the Service's (N7). Repeated ones are left out.
func PackPorts(ports []Port) Ports {
	if len(ports) == 0 {
		return noPorts
	}
	named := make([]Port, 0, len(ports))
	for _, p := range ports {
		p.Name, p.Proto = strings.ToLower(p.Name), strings.ToLower(p.Proto)
		if p.Proto == "" {
			p.Proto = "tcp"
		}
		switch {
		case p.Name == "" || p.Number == 0:
			continue
		case !IsLabel(p.Name) || !IsLabel(p.Proto) || len(p.Name) == 63 || len(p.Proto) == 63:
			p.Name, p.Proto = "", "" // "_name" would be no label
		}
		named = append(named, p)
	}
	var b strings.Builder
	var seen map[Port]bool
	if len(named) > 32 { // more than a Service has: a peer's list may be long
		seen = make(map[Port]bool, len(named))
	}
	for i, p := range named {
		if seen == nil && slices.Contains(named[:i], p) || seen[p] {
			continue
		}
		if seen != nil {
			seen[p] = true
		}
		b.WriteByte(byte(len(p.Name)))
		b.WriteString(p.Name)
		b.WriteByte(byte(len(p.Proto)))
		b.WriteString(p.Proto)
		b.WriteByte(byte(p.Number >> 8))
		b.WriteByte(byte(p.Number))
	}
	return Ports{unique.Make(b.String())}
}

func (p Ports) all() portIter { return union{first: p}.all() }

// union is the ports of several lists. It has no text of its own: hosts may have as many unions as there are hosts, each nearly as
// long as all lists together.
type union struct {
	first Ports
	more  []Ports // none twice
}

// merge is the union of two, u's ports first.
func (u union) merge(o union) union {
	u.more = slices.Clip(u.more) // it may be a part's
	u = u.with(o.first)
	for _, ports := range o.more {
		u = u.with(ports)
	}
	return u
}

func (u union) with(ports Ports) union {
	if ports != u.first && !slices.Contains(u.more, ports) {
		u.more = append(u.more, ports)
	}
	return u
}

// hasProto tells whether some port has a name of its own under the protocol, "_<port>._<proto>." of which has its place in a room of octets.
func (u union) hasProto(proto string, room int) bool {
	for it := u.all(); it.next(); {
		if it.proto == proto && len("_._.")+len(it.name)+len(proto) <= room {
			return true
		}
	}
	return false
}

// has tells whether some port matches a name and a protocol; "" and "" match all (N7, N8).
func (u union) has(name, proto string) bool {
	var n numberIter
	n.begin(u, name, proto)
	return n.next()
}

func (u union) all() portIter { return portIter{rest: u.first.packed.Value(), more: u.more} }

// portIter walks packed lists. After next, name, proto and number are those of the port it stands on.
type portIter struct {
	rest, name, proto string
	more              []Ports // behind rest
	number            uint16
}

func (it *portIter) next() bool {
	for ; it.rest == ""; it.more = it.more[1:] {
		if len(it.more) == 0 {
			return false
		}
		it.rest = it.more[0].packed.Value()
	}
	n := int(it.rest[0]) + 1
	it.name, it.rest = it.rest[1:n], it.rest[n:]
	n = int(it.rest[0]) + 1
	it.proto, it.rest = it.rest[1:n], it.rest[n:]
	it.number, it.rest = uint16(it.rest[0])<<8|uint16(it.rest[1]), it.rest[2:]
	return true
}

// numberIter walks the distinct numbers of the ports that match a name and a protocol; "" and "" match all (N7, N8).
type numberIter struct {
	ports       union
	it          portIter
	name, proto string
	number      uint16
	found       int
	seen        *[1 << 16 / 64]uint64 // a bit for each number found, from fewNumbers on
}

// fewNumbers are compared by looking again. Lists are short, but a peer's may not be.
const fewNumbers = 64

func (n *numberIter) begin(u union, name, proto string) {
	*n = numberIter{ports: u, it: u.all(), name: name, proto: proto}
}

func (n *numberIter) match(it *portIter) bool {
	return n.name == "" || it.name == n.name && it.proto == n.proto
}

func (n *numberIter) next() bool {
	for n.it.next() {
		if !n.match(&n.it) || n.before(n.it.number) {
			continue
		}
		n.number = n.it.number
		if n.found++; n.found == fewNumbers {
			n.seen = new([1 << 16 / 64]uint64)
			n.earlier(func(number uint16) bool { n.note(number); return false })
		}
		if n.seen != nil {
			n.note(n.number)
		}
		return true
	}
	return false
}

func (n *numberIter) note(number uint16) { n.seen[number/64] |= 1 << (number % 64) }

// before tells whether a number was found.
func (n *numberIter) before(number uint16) bool {
	if n.seen != nil {
		return n.seen[number/64]&(1<<(number%64)) != 0
	}
	return n.found > 0 && n.earlier(func(found uint16) bool { return found == number })
}

// earlier tells whether one of the numbers before the one that the walk stands on is wanted.
func (n *numberIter) earlier(wanted func(uint16) bool) bool {
	lists, left := len(n.it.more), len(n.it.rest)
	for it := n.ports.all(); it.next() && (len(it.more) > lists || len(it.rest) > left); {
		if n.match(&it) && wanted(it.number) {
			return true
		}
	}
	return false
}
