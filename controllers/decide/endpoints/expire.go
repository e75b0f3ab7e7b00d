package endpoints

import (
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// unlessLast ends the reason of the condition Live where expiry alone is not to take a Service to zero.
const unlessLast = "UnlessLast"

// Expiry is the reason of the condition Live for what is to become of a dead member's endpoints.
func Expiry(policy hubv1alpha1.ExpiryPolicy, keepLast bool) string {
	if keepLast && policy != hubv1alpha1.ExpiryKeep {
		return string(policy) + unlessLast
	}
	return string(policy)
}

// Expire applies the expiry (by cluster: a reason that Expiry made) of members that count as dead (T1). The sources themselves are not
// changed.
func Expire(sources []*Source, expiry map[string]string) []*Source {
	if len(expiry) == 0 {
		return sources
	}
	living := slices.ContainsFunc(sources, func(s *Source) bool { return expiry[s.ClusterID] == "" && s.ready() })
	var out []*Source
	for _, s := range sources {
		policy, last := strings.CutSuffix(expiry[s.ClusterID], unlessLast)
		if last && !living {
			policy = string(hubv1alpha1.ExpiryKeep)
		}
		switch hubv1alpha1.ExpiryPolicy(policy) {
		case hubv1alpha1.ExpiryRemove:
		case hubv1alpha1.ExpiryNotReady:
			out = append(out, s.notReady())
		default:
			out = append(out, s)
		}
	}
	return out
}

// ready tells whether any endpoint is; one that does not say is (EndpointSlice's own rule).
func (src *Source) ready() bool {
	return slices.ContainsFunc(src.Native, func(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }) ||
		slices.ContainsFunc(src.Endpoints, func(e hubv1alpha1.Endpoint) bool { return e.Ready == nil || *e.Ready })
}

func (src *Source) notReady() *Source {
	out, no := *src, false
	out.Native, out.Endpoints = slices.Clone(src.Native), slices.Clone(src.Endpoints)
	for i := range out.Native {
		out.Native[i].Conditions.Ready, out.Native[i].Conditions.Serving = &no, &no
	}
	for i := range out.Endpoints {
		out.Endpoints[i].Ready, out.Endpoints[i].Serving = &no, &no
	}
	return &out
}
