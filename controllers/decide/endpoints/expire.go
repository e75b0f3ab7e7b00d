package endpoints

import (
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// Expire applies the policies for expired clusters (T1). An unknown policy takes nothing away. Expire does not change
// the given sources.
func Expire(sources []*Source, states map[string]liveness.State) []*Source {
	if len(states) == 0 {
		return sources
	}
	var out []*Source
	for _, s := range sources {
		state := states[s.ClusterID]
		switch {
		case state.Expired && state.OnExpiry == hubv1alpha1.ExpiryRemove:
		case state.Expired && state.OnExpiry == hubv1alpha1.ExpiryNotReady:
			out = append(out, s.notReady())
		default:
			out = append(out, s)
		}
	}
	return out
}
