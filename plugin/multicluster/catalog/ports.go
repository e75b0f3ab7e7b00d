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

// Ports is a list of ports, interned: most Services of a ClusterSet have the ports of many others. The packed form
// begins with the distinct numbers. One entry for each name and protocol follows, with its numbers. Lists of numbers
// begin with their length, names with theirs; numbers and lengths of lists take two octets.
type Ports struct{ packed unique.Handle[string] }

var noPorts = Ports{unique.Make("")}

// maxPorts is how many ports of one list count (N8). A hub admits 256 for a record.
const maxPorts = 1024

// portName is the name and the protocol of a port, in lower case. Both are "" for a port that has no name of its
// own.
type portName struct{ name, proto string }

// PackPorts interns the ports that have records: those with a name and a number. If a name is no DNS label, the port
// has no name of its own, but counts at the Service's (N7).
func PackPorts(ports []Port) Ports {
	var names []portName
	var all []uint16
	numbers := make(map[portName][]uint16)
	seen := make(map[uint16]bool)
	for _, p := range ports[:min(len(ports), maxPorts)] {
		if p.Name == "" || p.Number == 0 {
			continue
		}
		key := p.key()
		if _, ok := numbers[key]; !ok {
			names = append(names, key)
		}
		if !slices.Contains(numbers[key], p.Number) {
			numbers[key] = append(numbers[key], p.Number)
		}
		if !seen[p.Number] {
			seen[p.Number] = true
			all = append(all, p.Number)
		}
	}
	if len(all) == 0 {
		return noPorts
	}
	packed := appendNumbers(nil, all)
	for _, key := range names {
		packed = append(append(packed, byte(len(key.name))), key.name...)
		packed = append(append(packed, byte(len(key.proto))), key.proto...)
		packed = appendNumbers(packed, numbers[key])
	}
	return Ports{unique.Make(string(packed))}
}

// key is the port's name and protocol, in lower case.
func (p Port) key() portName {
	key := portName{strings.ToLower(p.Name), strings.ToLower(p.Proto)}
	if key.proto == "" {
		key.proto = "tcp"
	}
	if !IsLabel(key.name) || !IsLabel(key.proto) || len(key.name) == maxLabel || len(key.proto) == maxLabel {
		return portName{} // "_name" would be no label
	}
	return key
}

func appendNumbers(packed []byte, numbers []uint16) []byte {
	packed = append(packed, byte(len(numbers)>>8), byte(len(numbers)))
	for _, n := range numbers {
		packed = append(packed, byte(n>>8), byte(n))
	}
	return packed
}

// cutNumbers splits a packed list of numbers from what follows it.
func cutNumbers(packed string) (numbers, rest string) {
	n := 2 * int(number(packed))
	return packed[2 : 2+n], packed[2+n:]
}

// number is the first of packed numbers.
func number(packed string) uint16 { return uint16(packed[0])<<8 | uint16(packed[1]) }

// numbers are the distinct numbers of all ports, packed.
func (p Ports) numbers() string {
	if p == noPorts {
		return ""
	}
	numbers, _ := cutNumbers(p.packed.Value())
	return numbers
}

// numbersOf returns the packed numbers of one port, or, for the zero name, of all named ports; "" if there is none.
func (p Ports) numbersOf(name portName) string {
	if name == (portName{}) {
		return p.numbers()
	}
	for key, numbers := range p.each {
		if key == name {
			return numbers
		}
	}
	return ""
}

// each calls yield for every name and protocol with its packed numbers, until yield returns false.
func (p Ports) each(yield func(name portName, numbers string) bool) {
	if p == noPorts {
		return
	}
	_, rest := cutNumbers(p.packed.Value())
	for rest != "" {
		var key portName
		var numbers string
		n := int(rest[0]) + 1
		key.name, rest = rest[1:n], rest[n:]
		n = int(rest[0]) + 1
		key.proto, rest = rest[1:n], rest[n:]
		numbers, rest = cutNumbers(rest)
		if !yield(key, numbers) {
			return
		}
	}
}

// hasProto reports whether a port of a protocol has a name of its own.
func (p Ports) hasProto(proto string) bool {
	for key := range p.each {
		if key.proto == proto && key.name != "" {
			return true
		}
	}
	return false
}

// portIndex has the packed numbers of a port in each list of a Headless Service that has the port, and the ports and
// protocols (with an empty name) that some list has. With it no question looks at ports that it does not ask for.
type portIndex struct {
	numbers map[portOf]string
	has     map[portName]bool
}

type portOf struct {
	port portName
	list Ports
}

func newPortIndex(lists []Ports) *portIndex {
	index := &portIndex{make(map[portOf]string), make(map[portName]bool)}
	for _, list := range lists {
		for key, numbers := range list.each {
			if key.name != "" {
				index.numbers[portOf{key, list}] = numbers
				index.has[key], index.has[portName{proto: key.proto}] = true, true
			}
		}
	}
	return index
}
