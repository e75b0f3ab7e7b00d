package catalog

import (
	"iter"
	"maps"
	"slices"
	"strings"
)

// Service is all that one namespaced name answers. It is immutable, so a query that has loaded it sees one state
// (L3).
type Service struct {
	key      string    // "<svc>.<ns>", lower case
	v4, v6   string    // ClusterSetIP: spec.ips of each family, packed
	ports    Ports     // ClusterSetIP: the ports of the import
	headless *headless // nil for ClusterSetIP
	kind     Type
}

// Build makes the Service of an import and its slices, which must be those of the same namespaced name, in any
// order. It returns nil if the name answers nothing: a Headless one without a ready endpoint (N6), a type that K1645
// does not know, or a name that is no label, since objects of a CRD may have dots in theirs.
func Build(imp *Import, from []*Slice) *Service { return Rebuild(nil, imp, from, Topology{}) }

// Rebuild is Build for a topology. It uses unchanged parts of old again. old is nil, or was built for the same
// topology.
func Rebuild(old *Service, imp *Import, from []*Slice, t Topology) *Service {
	if !IsLabel(imp.Name) || !IsLabel(imp.Namespace) {
		return nil
	}
	s := &Service{key: imp.Name + "." + imp.Namespace, kind: imp.Type}
	switch imp.Type {
	case ClusterSetIP:
		s.ports = PackPorts(imp.Ports)
		s.v4, s.v6 = packIPs(imp)
		return s
	case Headless:
		s.ports = noPorts
		return s.withEndpoints(old, from, t)
	}
	return nil
}

// withEndpoints adds the ready endpoints of slices; without any there is no Service.
func (s *Service) withEndpoints(old *Service, from []*Slice, t Topology) *Service {
	var before *headless
	if old != nil {
		before = old.headless
	}
	sources := sourcesOf(from, before, t)
	if len(sources) == 0 {
		return nil
	}
	s.headless = join(sources, before, t)
	if t.Zonal && s.headless != before { // else it has its zones
		s.headless.zones = s.zonal(before, t)
	}
	return s
}

// zonal makes one Service for each zone, of that zone's endpoints only.
func (s *Service) zonal(old *headless, t Topology) map[string]*Service {
	sources := make(map[string][]*source)
	for _, all := range s.headless.sources {
		for zone, in := range all.zones {
			sources[zone] = append(sources[zone], in)
		}
	}
	zones := make(map[string]*Service, len(sources))
	for zone, in := range sources {
		var before *headless
		if old != nil && old.zones[zone] != nil {
			before = old.zones[zone].headless
		}
		view := *s
		view.headless = join(in, before, t)
		zones[zone] = &view
	}
	return zones
}

// packIPs packs the addresses of each family. Those that no record can hold are left out.
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

// Type is ClusterSetIP or Headless.
func (s *Service) Type() Type { return s.kind }

// Same reports whether two Services give the same answers to every question; either may be nil.
func (s *Service) Same(o *Service) bool {
	if s == nil || o == nil {
		return s == o
	}
	if s.key != o.key || s.kind != o.kind || s.v4 != o.v4 || s.v6 != o.v6 || s.ports != o.ports {
		return false
	}
	return s.headless == nil || s.headless.same(o.headless) // both have the same kind
}

func (h *headless) same(o *headless) bool {
	return slices.EqualFunc(h.sources, o.sources, (*source).same) &&
		maps.EqualFunc(h.zones, o.zones, (*Service).Same)
}

// NamedPorts yields the distinct names and protocols of the ports that have records.
func (s *Service) NamedPorts() iter.Seq2[string, string] {
	return func(yield func(name, proto string) bool) {
		lists := []Ports{s.ports}
		if s.headless != nil {
			lists = s.headless.lists
		}
		seen := make(map[portName]bool)
		for _, list := range lists {
			for p := range list.each {
				if p.name != "" && !seen[p] && !yield(p.name, p.proto) {
					return
				}
				seen[p] = true
			}
		}
	}
}

// Hosts yields the label and the cluster ID of every host name (N9); none for a ClusterSetIP Service.
func (s *Service) Hosts() iter.Seq2[string, string] {
	return func(yield func(label, cluster string) bool) {
		if s.headless == nil {
			return
		}
		for _, src := range s.headless.sources {
			for i := range src.hosts {
				if label := src.hosts[i].label; label != "" && !yield(label, src.cluster) {
					return
				}
			}
		}
	}
}
