package catalog

import (
	"iter"
	"slices"
	"strings"
)

// Service is all that one namespaced name answers. It is immutable, so a query that has loaded it sees one state (L3).
type Service struct {
	key      string // "<svc>.<ns>", lower case
	v4, v6   string // ClusterSetIP: spec.ips of each family, packed
	ports    Ports  // ClusterSetIP: the ports of the import
	version  uint64 // the highest resourceVersion that went into it
	headless *headless
	split    uint8 // length of the Service's name within key
	kind     Type
}

// headless is what a Headless Service adds: the ready endpoints of every source cluster, grouped by host name. Hosts stand in
// the order of (cluster, slice, place in the slice), the addresses of each host together.
type headless struct {
	clusters []string // ids with a ready endpoint that has a name, sorted
	ports    []Ports  // the distinct port lists of hosts
	labels   string   // host labels, one behind the other
	hosts    []host   // one more than there are hosts: the last holds the ends
	v4, v6   string   // addresses, grouped by host
	// all4 and all6 are v4 and v6 without repetition: the same string where no two hosts share an address.
	all4, all6 string
	table      []uint32 // open addressing by hash of "<host>.<cluster>": index of host + 1
}

// host is an offset record: what it owns runs to the same offset of the next one.
type host struct {
	label   uint32 // into labels
	a4, a6  uint32 // into v4 and v6, in octets
	cluster uint16 // into clusters
	ports   uint16 // into ports
}

// Build makes the Service of an import and its slices, nil if the name answers nothing: a Headless one without a ready
// endpoint (N6), a type that K1645 does not know, or a name that is no label (objects of a CRD may have dots in theirs). The slices must be those of the same namespaced name, in any order; what
// Build makes does not depend on it.
func Build(imp *Import, from []*Slice) *Service {
	if !IsLabel(imp.Name) || !IsLabel(imp.Namespace) {
		return nil
	}
	s := &Service{
		key:     imp.Name + "." + imp.Namespace,
		split:   uint8(len(imp.Name)),
		kind:    imp.Type,
		version: imp.Version,
	}
	switch imp.Type {
	case ClusterSetIP:
		s.ports = PackPorts(imp.Ports)
		s.v4, s.v6 = packIPs(imp)
		return s
	case Headless:
		from = ready(from)
		if len(from) == 0 {
			return nil
		}
		s.ports = noPorts
		s.headless = join(from)
		for _, sl := range from {
			s.version = max(s.version, sl.version)
		}
		return s
	}
	return nil
}

// packIPs packs the addresses of each family. One that no record can hold is left out.
func packIPs(imp *Import) (v4, v6 string) {
	var four, six strings.Builder
	for i, ip := range imp.IPs {
		switch {
		case !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() || slices.Contains(imp.IPs[:i], ip):
		case ip.Is4():
			four.Write(ip.AsSlice())
		default:
			six.Write(ip.AsSlice())
		}
	}
	return four.String(), six.String()
}

// Key is "<svc>.<ns>".
func (s *Service) Key() string { return s.key }

// Name is the Service's name.
func (s *Service) Name() string { return s.key[:s.split] }

// Namespace is the Service's namespace.
func (s *Service) Namespace() string { return s.key[s.split+1:] }

// Type is ClusterSetIP or Headless.
func (s *Service) Type() Type { return s.kind }

// Version is the highest resourceVersion among the objects that the answers rest on (M4).
func (s *Service) Version() uint64 { return s.version }

// Clusters are the ids of the source clusters with a ready endpoint, sorted; none for a ClusterSetIP Service. Read-only.
func (s *Service) Clusters() []string {
	if s.headless == nil {
		return nil
	}
	return s.headless.clusters
}

// Same tells whether two Services give the same answers to every question; either may be nil.
func (s *Service) Same(o *Service) bool {
	if s == nil || o == nil {
		return s == o
	}
	if s.key != o.key || s.kind != o.kind || s.v4 != o.v4 || s.v6 != o.v6 || s.ports != o.ports {
		return false
	}
	return s.headless == nil || s.headless.same(o.headless)
}

func (h *headless) same(o *headless) bool {
	if h.labels != o.labels || h.v4 != o.v4 || h.v6 != o.v6 || len(h.hosts) != len(o.hosts) ||
		len(h.clusters) != len(o.clusters) || len(h.ports) != len(o.ports) {
		return false
	}
	for i := range h.clusters {
		if h.clusters[i] != o.clusters[i] {
			return false
		}
	}
	for i := range h.ports {
		if h.ports[i] != o.ports[i] {
			return false
		}
	}
	for i := range h.hosts {
		if h.hosts[i] != o.hosts[i] {
			return false
		}
	}
	return true
}

// NamedPorts yields the distinct names and protocols of the ports that have records.
func (s *Service) NamedPorts() iter.Seq2[string, string] {
	return func(yield func(name, proto string) bool) {
		lists := []Ports{s.ports}
		if s.headless != nil {
			lists = s.headless.ports
		}
		type port struct{ name, proto string }
		seen := make(map[port]bool)
		for _, ports := range lists {
			for it := ports.all(); it.next(); {
				p := port{it.name, it.proto}
				if p.name != "" && !seen[p] && !yield(p.name, p.proto) {
					return
				}
				seen[p] = true
			}
		}
	}
}

// Hosts yields the label and the cluster id of every host name (N9); none for a ClusterSetIP Service.
func (s *Service) Hosts() iter.Seq2[string, string] {
	return func(yield func(label, cluster string) bool) {
		if s.headless == nil {
			return
		}
		for id := range len(s.headless.hosts) - 1 {
			if s.headless.label(id) == "" {
				continue
			}
			if !yield(s.headless.label(id), s.headless.clusters[s.headless.hosts[id].cluster]) {
				return
			}
		}
	}
}
