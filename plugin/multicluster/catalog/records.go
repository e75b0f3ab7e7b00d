// Package catalog holds the answers of clusterset.local as immutable values. It takes imports and slices, stripped
// to what an answer needs, and builds one Service for each namespaced name. A Result is found in a Service without
// sorting, joining or locking. The package knows neither the Kubernetes API nor DNS messages, and uses no clock,
// client, log or metric.
package catalog

import (
	"net/netip"
	"slices"
	"strings"
)

// Type is the type of a ServiceImport.
type Type uint8

// The types of K1645. An import of an unknown type has no answer.
const (
	Unknown Type = iota
	ClusterSetIP
	Headless
)

// String returns the value for metrics and metadata.
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
	IPs             []netip.Addr // spec.ips, in order; the caller leaves out what does not parse
	Ports           []Port
}

// Endpoint is one ready address of a slice. Host is the label that names it, "" if its address does (N15). Zone is
// what Topology.Keep returned for its zone.
type Endpoint struct {
	Addr netip.Addr
	Host string
	Zone string
}

// Slice is an EndpointSlice, stripped: the ready endpoints of one source cluster. It is immutable.
type Slice struct {
	name    string // of the object, for a stable order
	cluster string // source cluster ID, one or two labels (N14)
	ports   Ports
	addrs   string   // packed: four octets each, or sixteen
	width   int      // 4 or 16; 0 if the slice has no endpoint
	labels  string   // host labels, each after its length octet; length 0: the endpoint has no name
	zones   []string // of the endpoints; nil if none has one
}

// NewSlice packs the ready endpoints of one EndpointSlice. Endpoints whose address is not of the first one's family
// are left out. An endpoint whose host is no DNS label (RFC 1123) has no name.
func NewSlice(name, cluster string, ports []Port, endpoints []Endpoint) *Slice {
	s := &Slice{name: name, cluster: strings.ToLower(cluster), ports: PackPorts(ports)}
	var addrs, labels []byte
	for i := range endpoints {
		e := &endpoints[i]
		if !e.Addr.IsValid() {
			continue
		}
		if s.width == 0 {
			s.width = e.Addr.BitLen() / 8
			addrs, labels = make([]byte, 0, len(endpoints)*s.width), make([]byte, 0, len(endpoints)*16)
		}
		if e.Addr.BitLen() != s.width*8 {
			continue
		}
		addrs = append(addrs, e.Addr.AsSlice()...)
		label := e.label()
		labels = append(append(labels, byte(len(label))), label...)
		if e.Zone != "" && s.zones == nil {
			s.zones = make([]string, len(addrs)/s.width-1, len(endpoints))
		}
		if s.zones != nil {
			s.zones = append(s.zones, e.Zone)
		}
	}
	s.addrs, s.labels = string(addrs), string(labels)
	return s
}

// label is the host label of an endpoint, "" if it has none.
func (e *Endpoint) label() string {
	if e.Host == "" {
		return dashed(e.Addr)
	}
	if label := strings.ToLower(e.Host); IsLabel(label) {
		return label
	}
	return ""
}

// dashed names an endpoint without hostname by its address (N15). A label may not begin or end in a dash.
func dashed(a netip.Addr) string {
	s := strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, a.String())
	if s[0] == '-' {
		s = "0" + s
	}
	if s[len(s)-1] == '-' {
		s += "0"
	}
	return s
}

// Len is the number of ready endpoints.
func (s *Slice) Len() int {
	if s.width == 0 {
		return 0
	}
	return len(s.addrs) / s.width
}

// Equal reports whether two slices have the same content; either may be nil.
func (s *Slice) Equal(o *Slice) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.name == o.name && s.cluster == o.cluster && s.ports == o.ports && s.width == o.width &&
		s.addrs == o.addrs && s.labels == o.labels && slices.Equal(s.zones, o.zones)
}

// Cluster is the ID of the source cluster.
func (s *Slice) Cluster() string { return s.cluster }

// zone is that of an endpoint.
func (s *Slice) zone(i int) string {
	if s.zones == nil {
		return ""
	}
	return s.zones[i]
}

// IsLabel reports whether s is a DNS label (RFC 1123) in lower case.
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

// IsClusterID reports whether s can be a cluster ID (N14, N17): one DNS label or two joined by a dot, 63 octets in
// all, in any case, since names match without case (RFC 4343).
func IsClusterID(s string) bool {
	s = strings.ToLower(s)
	if len(s) > 63 {
		return false
	}
	first, second, two := strings.Cut(s, ".")
	return IsLabel(first) && (!two || IsLabel(second))
}
