// Package catalog holds what clusterset.local answers, as immutable values: imports and slices, stripped to what an
// answer needs, go in; one Service per namespaced name comes out; a Result is found in it without sorting, joining or
// locking. It knows neither the Kubernetes API nor DNS messages, and reaches no clock, client, log or metric.
package catalog

import (
	"net/netip"
	"slices"
	"strings"
)

// Type is the type of a ServiceImport.
type Type uint8

// The types of K1645. Unknown imports have no answer.
const (
	Unknown Type = iota
	ClusterSetIP
	Headless
)

// String is the label value of metrics and metadata.
func (t Type) String() string {
	switch t {
	case ClusterSetIP:
		return "ClusterSetIP"
	case Headless:
		return "Headless"
	}
	return "Unknown"
}

// Import is a ServiceImport, stripped.
type Import struct {
	Namespace, Name string
	Type            Type
	IPs             []netip.Addr // spec.ips, in order; what does not parse is left out by the caller
	Ports           []Port
}

// Endpoint is one ready address of a slice, the host label that names it (N15), "" where it has none, and the zone that it is in,
// as Topology keeps it.
type Endpoint struct {
	Addr netip.Addr
	Host string
	Zone string
}

// Slice is an EndpointSlice, stripped: the ready endpoints of one source cluster. It is immutable.
type Slice struct {
	name    string // of the object, for a stable order
	cluster string // source cluster id, one or two labels (N14)
	zone    string // of these endpoints
	ports   Ports
	addrs   string   // packed: four octets each, or sixteen
	width   uint8    // 4 or 16; 0 when the slice has no endpoint
	labels  string   // host labels, each behind its length octet; length 0: it has no name
	hashes  []uint32 // of the labels
	more    *Slice   // the object's endpoints in other zones
}

// NewSlice packs the ready endpoints of one EndpointSlice. All addresses must be of one family; those that are not of
// the first one's are left out. An endpoint whose host is no DNS label (RFC 1123) has no name.
func NewSlice(name, cluster string, ports []Port, endpoints []Endpoint) *Slice {
	blank := Slice{name: name, cluster: strings.ToLower(cluster), ports: PackPorts(ports)}
	valid := slices.IndexFunc(endpoints, func(e Endpoint) bool { return e.Addr.IsValid() })
	if valid < 0 {
		return &blank
	}
	blank.width = uint8(endpoints[valid].Addr.BitLen() / 8)
	var s *Slice
	for i := range endpoints {
		if e := &endpoints[i]; !s.has(e.Zone) && blank.takes(e.Addr) {
			one := blank
			one.zone, one.more = e.Zone, s
			one.pack(endpoints)
			s = &one
		}
	}
	return s
}

// takes tells whether an address is of the slice's family.
func (s *Slice) takes(a netip.Addr) bool { return a.IsValid() && a.BitLen() == int(s.width)*8 }

// has tells whether a zone's endpoints have been packed.
func (s *Slice) has(zone string) bool {
	for ; s != nil; s = s.more {
		if s.zone == zone {
			return true
		}
	}
	return false
}

// pack takes in the endpoints of the slice's family and zone.
func (s *Slice) pack(endpoints []Endpoint) {
	n := 0
	for i := range endpoints {
		if endpoints[i].Zone == s.zone {
			n++
		}
	}
	var addrs, labels strings.Builder
	addrs.Grow(n * int(s.width))
	labels.Grow(n * 12)
	s.hashes = make([]uint32, 0, n)
	for i := range endpoints {
		e := &endpoints[i]
		if e.Zone != s.zone || !s.takes(e.Addr) {
			continue
		}
		packed := e.Addr.AsSlice()
		addrs.Write(packed)
		label := strings.ToLower(e.Host)
		switch {
		case label == "":
			label = dashed(string(packed))
		case !IsLabel(label):
			label = ""
		}
		s.hashes = append(s.hashes, hashLabel(label))
		labels.WriteByte(byte(len(label)))
		labels.WriteString(label)
	}
	s.addrs, s.labels = addrs.String(), strings.Clone(labels.String())
}

// Len is the number of ready endpoints, in all zones.
func (s *Slice) Len() int {
	n := 0
	for ; s != nil; s = s.more {
		n += s.count()
	}
	return n
}

// count is the number of these endpoints, in the slice's zone alone.
func (s *Slice) count() int {
	if s.width == 0 {
		return 0
	}
	return len(s.addrs) / int(s.width)
}

// Cluster is the id of the source cluster.
func (s *Slice) Cluster() string { return s.cluster }

// IsLabel tells whether s is a DNS label as RFC 1123 has it, in lower case.
func IsLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// IsClusterID tells whether s can be a cluster id (N14, N17): one DNS label or two joined by a dot, 63 octets in all. A label's
// value may have upper case, and names match without (RFC 4343), so that is no matter.
func IsClusterID(s string) bool {
	s = strings.ToLower(s)
	if len(s) > 63 {
		return false
	}
	first, second, two := strings.Cut(s, ".")
	return IsLabel(first) && (!two || IsLabel(second))
}
