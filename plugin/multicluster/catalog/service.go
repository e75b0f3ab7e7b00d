package catalog

import (
	"iter"
	"maps"
	"slices"
	"strings"
)

// Service is all that one namespaced name answers. It is immutable, so a query that has loaded it sees one state (L3).
type Service struct {
	key      string // "<svc>.<ns>", lower case
	v4, v6   string // ClusterSetIP: spec.ips of each family, packed
	ports    Ports  // ClusterSetIP: the ports of the import
	headless *headless
	split    uint8 // length of the Service's name within key
	kind     Type
}

// headless is what a Headless Service adds: the ready endpoints of every source cluster, in the order of ranks and clusters.
type headless struct {
	parts        []*part
	tiers        []tier // parts of one rank
	ring         int    // hosts, of all parts
	all4, all6   string // addresses, in the order of hosts, each once: no copy where there is one part without repetition
	near4, near6 int    // octets of them that are answered (T2)
	spans        map[hostName]*span
	zones        map[string]*Service // what each zone's endpoints are alone (decision 0008); nil without the option
}

// Build makes the Service of an import and its slices, nil if the name answers nothing: a Headless one without a ready
// endpoint (N6), a type that K1645 does not know, or a name that is no label (objects of a CRD may have dots in theirs). The slices must be those of the same namespaced name, in any order; what
// Build makes does not depend on it.
func Build(imp *Import, from []*Slice) *Service { return Rebuild(nil, imp, from, Topology{}) }

// Rebuild is Build in a topology, and for a change: what has not changed since old, nil for none, is taken from there. The old one
// must have been built in the same topology.
func Rebuild(old *Service, imp *Import, from []*Slice, t Topology) *Service {
	if !IsLabel(imp.Name) || !IsLabel(imp.Namespace) {
		return nil
	}
	s := &Service{
		key:   imp.Name + "." + imp.Namespace,
		split: uint8(len(imp.Name)),
		kind:  imp.Type,
	}
	switch imp.Type {
	case ClusterSetIP:
		s.ports = PackPorts(imp.Ports)
		s.v4, s.v6 = packIPs(imp)
		return s
	case Headless:
		return s.withEndpoints(old, ready(from, t), t)
	}
	return nil
}

// withEndpoints adds what ready gave; without any there is no Service.
func (s *Service) withEndpoints(old *Service, from []*Slice, t Topology) *Service {
	if len(from) == 0 {
		return nil
	}
	s.ports = noPorts
	var before *headless
	if old != nil {
		before = old.headless
	}
	s.headless = join(from, before, t)
	if t.Zonal && s.headless != before {
		s.zonal(from, before, t)
	}
	return s
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
	return slices.EqualFunc(h.parts, o.parts, (*part).same) && maps.EqualFunc(h.zones, o.zones, (*Service).Same)
}

// NamedPorts yields the distinct names and protocols of the ports that have records.
func (s *Service) NamedPorts() iter.Seq2[string, string] {
	return func(yield func(name, proto string) bool) {
		lists := []Ports{s.ports}
		if s.headless != nil {
			for _, p := range s.headless.parts {
				lists = append(lists, p.ports...)
			}
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
		for _, p := range s.headless.parts {
			for id := range len(p.hosts) - 1 {
				label := p.label(id)
				if s := s.headless.spans[hostName{label, p.cluster}]; label == "" || s != nil && s.home != p {
					continue
				}
				if !yield(label, p.cluster) {
					return
				}
			}
		}
	}
}
