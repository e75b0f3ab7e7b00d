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

// UnreachedReason returns the reason of the condition Reached if it is False.
func UnreachedReason(keepLast bool) string {
	if keepLast {
		return unreached + unlessLast
	}
	return unreached
}

// Unreached is what the status of a ServiceExportRecord says about endpoints that too few members reach.
type Unreached struct {
	Addresses []string // status.withheld
	Reason    string   // of the condition Reached
}

func (u Unreached) includes(address string) bool {
	return slices.Contains(u.Addresses, address) || slices.Contains(u.Addresses, votes.All)
}

// Withhold makes unreached endpoints of other clusters not ready (F4); unreached is by cluster ID. The own kubelets
// know own endpoints better than any other member. If the reason says UnlessLast, a source keeps its endpoints as
// they are if one of its ports would have none left in the address family. Withhold does not change the given
// sources.
func Withhold(sources []*Source, own string, unreached map[string]Unreached, m *conflict.Merged) []*Source {
	if len(unreached) == 0 {
		return sources
	}
	out := slices.Clone(sources)
	served := map[backend]bool{}
	for i, s := range sources {
		if u := unreached[s.ClusterID]; s.ClusterID != own && len(u.Addresses) > 0 {
			out[i] = s.notReady(u.includes)
		}
		if out[i].anyReady() {
			for _, b := range s.backends(m) {
				served[b] = true
			}
		}
	}
	for i, s := range sources {
		keepLast := strings.HasSuffix(unreached[s.ClusterID].Reason, unlessLast)
		if keepLast && slices.ContainsFunc(s.backends(m), func(b backend) bool { return !served[b] }) {
			out[i] = s
		}
	}
	return out
}

// backend is a port of the import in one address family; the port is "" for sources without ports.
type backend struct {
	family discoveryv1.AddressType
	port   string
}

func (src *Source) backends(m *conflict.Merged) (out []backend) {
	for name := range src.importPorts(m) {
		out = append(out, backend{src.AddressType, name})
	}
	if out == nil {
		out = append(out, backend{src.AddressType, ""})
	}
	return out
}

// ReadyAddresses returns the addresses of the ready endpoints of a record. These are probed.
func ReadyAddresses(spec *hubv1alpha1.EndpointRecordSpec) (out []string) {
	for i := range spec.Endpoints {
		if e := &spec.Endpoints[i]; ready(e.Ready) {
			out = append(out, e.Address)
		}
	}
	return out
}
