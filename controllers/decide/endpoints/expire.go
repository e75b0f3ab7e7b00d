package endpoints

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// Expire applies the policies for expired clusters (T1). With KeepLast an expired source goes on serving the ports
// that no live source of its address family serves; one that no tier of the preference selects does not count. Expire
// does not change the given sources.
func Expire(
	sources []*Source, states map[string]liveness.State, own clusterset.Place, m *conflict.Merged,
) []*Source {
	if len(states) == 0 {
		return sources
	}
	live := portsServed(
		slices.DeleteFunc(slices.Clone(sources), func(s *Source) bool {
			return states[s.ClusterID].Expired || !selectedBySome(m, s.ClusterID, own)
		}), m,
	)
	var out []*Source
	for _, s := range sources {
		state, others := states[s.ClusterID], live[s.AddressType]
		known := state.OnExpiry == hubv1alpha1.ExpiryRemove || state.OnExpiry == hubv1alpha1.ExpiryNotReady
		switch {
		case !state.Expired || !known: // an unknown policy takes nothing away
			out = append(out, s)
		case state.KeepLast && s.servesBeside(others, m):
			out = append(out, s.withhold(others, m))
		case state.OnExpiry == hubv1alpha1.ExpiryNotReady:
			out = append(out, s.notReady(func(string) bool { return true }))
		}
	}
	return out
}

// portsServed returns for each address family the import's ports, by name, that have a ready endpoint. A family with
// a ready endpoint is there even if it has no port.
func portsServed(sources []*Source, m *conflict.Merged) map[discoveryv1.AddressType]map[string]bool {
	out := map[discoveryv1.AddressType]map[string]bool{}
	for _, s := range sources {
		if !s.anyReady() {
			continue
		}
		if out[s.AddressType] == nil {
			out[s.AddressType] = map[string]bool{}
		}
		maps.Copy(out[s.AddressType], s.importPorts(m))
	}
	return out
}

// importPorts returns the names in the import of the ports that a source serves.
func (src *Source) importPorts(m *conflict.Merged) map[string]bool {
	out := map[string]bool{}
	for i := range src.Ports {
		if name, ok := m.Names[src.ClusterID][src.Ports[i].Name]; ok && !src.Withheld[src.Ports[i].Name] {
			out[name] = true
		}
	}
	return out
}

// servesBeside reports whether the source serves a port that the others do not; nil others means that its address
// family has none.
func (src *Source) servesBeside(others map[string]bool, m *conflict.Merged) bool {
	for name := range src.importPorts(m) {
		if !others[name] {
			return true
		}
	}
	return others == nil
}

// withhold returns a copy of the source that does not serve the ports of others.
func (src *Source) withhold(others map[string]bool, m *conflict.Merged) *Source {
	out := *src
	out.Withheld = map[string]bool{}
	for _, p := range src.Ports {
		if others[m.Names[src.ClusterID][p.Name]] {
			out.Withheld[p.Name] = true
		}
	}
	return &out
}

func (src *Source) anyReady() bool {
	return slices.ContainsFunc(src.Native, func(e discoveryv1.Endpoint) bool { return ready(e.Conditions.Ready) }) ||
		slices.ContainsFunc(src.Endpoints, func(e hubv1alpha1.Endpoint) bool { return ready(e.Ready) })
}
