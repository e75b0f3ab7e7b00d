package endpoints

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// Prefer silences the other clusters' sources where the import prefers those of the cluster own (T2): all of them for local-only; for
// prefer-local those of an address family in which own has a ready endpoint for every port that they serve, so that no port is left
// without a backend. The sources themselves are not changed.
func Prefer(sources []*Source, own string, m *conflict.Merged) []*Source {
	if m.Preference != hubv1alpha1.PreferLocal && m.Preference != hubv1alpha1.LocalOnly {
		return sources
	}
	served := map[discoveryv1.AddressType]map[string]bool{} // the import's port names, by family
	for _, s := range sources {
		if s.ClusterID != own || !s.ready() {
			continue
		}
		if served[s.AddressType] == nil {
			served[s.AddressType] = map[string]bool{}
		}
		for i := range s.Ports {
			if name, ok := m.Names[own][s.Ports[i].Name]; ok {
				served[s.AddressType][name] = true
			}
		}
	}
	out := slices.Clone(sources)
	for i, s := range out {
		if s.ClusterID == own {
			continue
		}
		needed := m.Preference == hubv1alpha1.PreferLocal && slices.ContainsFunc(s.Ports, func(p hubv1alpha1.EndpointPort) bool {
			name, ok := m.Names[s.ClusterID][p.Name]
			return ok && !served[s.AddressType][name]
		})
		if !needed {
			silent := *s
			silent.Silent = true
			out[i] = &silent
		}
	}
	return out
}
