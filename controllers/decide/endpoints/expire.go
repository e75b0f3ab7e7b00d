package endpoints

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// Expire applies the verdicts on clusters that count as dead (T1). Where the last are to be kept, a dead one goes on serving just the ports
// that no living one serves in its address family. The sources themselves are not changed.
func Expire(sources []*Source, verdicts map[string]liveness.Verdict, m *conflict.Merged) []*Source {
	if len(verdicts) == 0 {
		return sources
	}
	living := served(slices.DeleteFunc(slices.Clone(sources), func(s *Source) bool { return verdicts[s.ClusterID].Dead }), m)
	var out []*Source
	for _, s := range sources {
		v := verdicts[s.ClusterID]
		last := v.KeepLast && s.needed(living[s.AddressType], m)
		switch {
		case !v.Dead || v.OnExpiry != hubv1alpha1.ExpiryRemove && v.OnExpiry != hubv1alpha1.ExpiryNotReady: // what is not known takes nothing away
			out = append(out, s)
		case last:
			out = append(out, s.without(living[s.AddressType], m))
		case v.OnExpiry == hubv1alpha1.ExpiryNotReady:
			out = append(out, s.unready(func(string) bool { return true }))
		}
	}
	return out
}

// served are the import's ports, by their names there, for which there is a ready endpoint, by address family. A family is there where
// there is any ready endpoint.
func served(by []*Source, m *conflict.Merged) map[discoveryv1.AddressType]map[string]bool {
	out := map[discoveryv1.AddressType]map[string]bool{}
	for _, s := range by {
		if !s.ready() {
			continue
		}
		if out[s.AddressType] == nil {
			out[s.AddressType] = map[string]bool{}
		}
		for i := range s.Ports {
			if name, ok := m.Names[s.ClusterID][s.Ports[i].Name]; ok {
				out[s.AddressType][name] = true
			}
		}
	}
	return out
}

// needed tells whether the source has what others do not serve: an address family, or a port in it.
func (src *Source) needed(others map[string]bool, m *conflict.Merged) bool {
	return others == nil || slices.ContainsFunc(src.Ports, func(p hubv1alpha1.EndpointPort) bool {
		name, ok := m.Names[src.ClusterID][p.Name]
		return ok && !others[name]
	})
}

// without is the source with none of the import's ports that others serve.
func (src *Source) without(others map[string]bool, m *conflict.Merged) *Source {
	out := *src
	out.Mute = map[string]bool{}
	for _, p := range src.Ports {
		if others[m.Names[src.ClusterID][p.Name]] {
			out.Mute[p.Name] = true
		}
	}
	return &out
}

// ready tells whether any endpoint is; one that does not say is (EndpointSlice's own rule).
func (src *Source) ready() bool {
	return slices.ContainsFunc(src.Native, func(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }) ||
		slices.ContainsFunc(src.Endpoints, func(e hubv1alpha1.Endpoint) bool { return e.Ready == nil || *e.Ready })
}
