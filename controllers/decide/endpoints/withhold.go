package endpoints

import (
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
)

const (
	unreached  = "Unreached"
	unlessLast = "UnlessLast"
)

// Unreached is the reason of the condition Reached where it is False.
func Unreached(keepLast bool) string {
	if keepLast {
		return unreached + unlessLast
	}
	return unreached
}

// Withheld says of a cluster which addresses too few members reach: status.withheld of the copy of its record, and the reason of its
// condition Reached.
type Withheld struct {
	Addresses []string
	Reason    string
}

func (w Withheld) has(address string) bool {
	return slices.Contains(w.Addresses, address) || slices.Contains(w.Addresses, votes.All)
}

// Withhold makes endpoints that are withheld (by cluster) not ready (F4); never those of the cluster own, whose kubelets are closer than
// any peer. Where the floor is set, a slice keeps its own as they are if a port that it serves had none left in its address family. The
// sources themselves are not changed.
func Withhold(sources []*Source, own string, withheld map[string]Withheld, m *conflict.Merged) []*Source {
	if len(withheld) == 0 {
		return sources
	}
	out := slices.Clone(sources)
	served := map[backend]bool{}
	for i, s := range sources {
		if w := withheld[s.ClusterID]; s.ClusterID != own && len(w.Addresses) > 0 {
			out[i] = s.unready(w.has)
		}
		if out[i].ready() {
			for _, b := range backends(s, m) {
				served[b] = true
			}
		}
	}
	for i, s := range sources {
		floor := strings.HasSuffix(withheld[s.ClusterID].Reason, unlessLast)
		if floor && slices.ContainsFunc(backends(s, m), func(b backend) bool { return !served[b] }) {
			out[i] = s
		}
	}
	return out
}

// backend is a port of the import, by its name, in one address family; "" where a slice has none.
type backend struct {
	family discoveryv1.AddressType
	port   string
}

func backends(s *Source, m *conflict.Merged) (out []backend) {
	for i := range s.Ports {
		if name, ok := m.Names[s.ClusterID][s.Ports[i].Name]; ok && !s.Mute[s.Ports[i].Name] {
			out = append(out, backend{s.AddressType, name})
		}
	}
	if out == nil {
		out = append(out, backend{s.AddressType, ""})
	}
	return out
}

// ReadyAddresses are the addresses of the endpoints of a record that are ready: what a probe looks at.
func ReadyAddresses(spec *hubv1alpha1.EndpointRecordSpec) (out []string) {
	for i := range spec.Endpoints {
		if e := &spec.Endpoints[i]; e.Ready == nil || *e.Ready {
			out = append(out, e.Address)
		}
	}
	return out
}
