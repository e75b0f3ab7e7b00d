package endpoints

import (
	"slices"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// Independent reports whether no source's slice depends on what another one publishes, while no cluster has expired.
func Independent(m *conflict.Merged, own string) bool {
	switch m.Preference {
	case hubv1alpha1.PreferLocal:
		return m.Names[own] == nil
	case hubv1alpha1.LocalOnly:
		return false
	}
	return true
}

// Prefer keeps traffic in the own cluster if the import asks for it (T2). With local-only the sources of other
// clusters get no traffic. With prefer-local they get none if the own cluster has a ready endpoint of the same
// address family for each of their ports, so that no port is left without a backend. Prefer does not change the given
// sources.
func Prefer(sources []*Source, own string, m *conflict.Merged) []*Source {
	if m.Preference != hubv1alpha1.PreferLocal && m.Preference != hubv1alpha1.LocalOnly {
		return sources
	}
	here := portsServed(
		slices.DeleteFunc(slices.Clone(sources), func(s *Source) bool { return s.ClusterID != own }), m,
	)
	out := slices.Clone(sources)
	for i, s := range out {
		if s.ClusterID == own {
			continue
		}
		if m.Preference == hubv1alpha1.LocalOnly || !s.servesBeside(here[s.AddressType], m) {
			quiet := *s
			quiet.NoTraffic = true
			out[i] = &quiet
		}
	}
	return out
}
