package endpoints

import (
	"slices"

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
	here := served(slices.DeleteFunc(slices.Clone(sources), func(s *Source) bool { return s.ClusterID != own }), m)
	out := slices.Clone(sources)
	for i, s := range out {
		if s.ClusterID == own {
			continue
		}
		if m.Preference == hubv1alpha1.LocalOnly || !s.needed(here[s.AddressType], m) {
			silent := *s
			silent.Silent = true
			out[i] = &silent
		}
	}
	return out
}
