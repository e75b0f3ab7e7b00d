package endpoints

import (
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// Hysteresis is how long a better tier must have enough ready endpoints before traffic returns to it (T2). Traffic
// leaves a tier that has too few at once.
const Hysteresis = 10 * time.Second

// Order holds, for each address family and port, the tier that carries the traffic. It is nil before the first Prefer,
// and for imports whose endpoints all carry traffic.
type Order struct {
	preference hubv1alpha1.Preference
	minReady   clusterset.MinReady
	carrying   map[slot]carrier
}

type slot struct {
	family discoveryv1.AddressType
	port   string // its name in the import
}

type carrier struct {
	tier        int
	betterSince time.Time // since when a better tier could carry the traffic; zero while none could
}

// Independent reports whether all exporters are in the tier "any" and in none before it, so that no source's slice
// depends on another source. Callers look for expired clusters themselves.
func Independent(m *conflict.Merged, own clusterset.Place) bool {
	for _, tier := range clusterset.Tiers(m.Preference) {
		if tier == "any" {
			return true
		}
		for cluster := range m.Names {
			if tier.Selects(place(m, cluster), own) {
				return false
			}
		}
	}
	return false
}

func place(m *conflict.Merged, cluster string) clusterset.Place {
	return clusterset.Place{Cluster: cluster, Properties: m.Properties[cluster]}
}

// Prefer keeps traffic in the first tier of the import's preference that has enough ready endpoints (T2). Each address
// family and port has a tier of its own, so that none is left without a backend. Sources of clusters in no such tier
// get no traffic. If no tier has enough, the first with a ready endpoint is used, else the last one.
//
// was is what Prefer returned for this import before; again is after how long to call it again if
// nothing changes, 0 for never.
// Prefer does not change the given sources.
func Prefer(
	sources []*Source, own clusterset.Place, m *conflict.Merged, was *Order, now time.Time,
) (out []*Source, is *Order, again time.Duration) {
	tiers := clusterset.Tiers(m.Preference)
	if tiers[0] == "any" || m.Type == mcsv1beta1.Headless {
		return sources, nil, 0
	}
	selected := map[string][]bool{} // by cluster and tier
	for _, s := range sources {
		if selected[s.ClusterID] == nil {
			for _, tier := range tiers {
				selected[s.ClusterID] = append(selected[s.ClusterID], tier.Selects(place(m, s.ClusterID), own))
			}
		}
	}
	is = &Order{m.Preference, m.MinReady, map[slot]carrier{}}
	for at, counts := range countEndpoints(sources, selected, len(tiers), m) {
		c := carrier{tier: best(counts, m.MinReady)}
		if was != nil && was.preference == m.Preference && was.minReady == m.MinReady {
			if last, ok := was.carrying[at]; ok && m.MinReady.Enough(counts[last.tier].ready, counts[last.tier].all) {
				c = last.follow(c.tier, now)
			}
		}
		if !c.betterSince.IsZero() {
			if wait := c.betterSince.Add(Hysteresis).Sub(now); again == 0 || wait < again {
				again = wait
			}
		}
		is.carrying[at] = c
	}
	for _, s := range sources {
		out = append(out, is.restrict(s, selected[s.ClusterID], m))
	}
	return out, is, again
}

// count is how many endpoints a tier has.
type count struct{ ready, all int }

// countEndpoints returns the endpoints of each tier, by address family and port.
func countEndpoints(sources []*Source, selected map[string][]bool, tiers int, m *conflict.Merged) map[slot][]count {
	out := map[slot][]count{}
	for _, s := range sources {
		n := s.count()
		for port := range s.importPorts(m) {
			at := slot{s.AddressType, port}
			if out[at] == nil {
				out[at] = make([]count, tiers)
			}
			for i, in := range selected[s.ClusterID] {
				if in {
					out[at][i].ready += n.ready
					out[at][i].all += n.all
				}
			}
		}
	}
	return out
}

// best returns the first tier with enough ready endpoints.
func best(tiers []count, minReady clusterset.MinReady) int {
	if i := slices.IndexFunc(tiers, func(c count) bool { return minReady.Enough(c.ready, c.all) }); i >= 0 {
		return i
	}
	if i := slices.IndexFunc(tiers, func(c count) bool { return c.ready > 0 }); i >= 0 {
		return i
	}
	return len(tiers) - 1
}

// follow returns the carrier after c, whose tier must still have enough ready endpoints. best is the first tier that
// has: it takes over once it has had them for Hysteresis.
func (c carrier) follow(best int, now time.Time) carrier {
	if best == c.tier {
		return carrier{tier: best}
	}
	if c.betterSince.IsZero() {
		c.betterSince = now
	}
	if now.Sub(c.betterSince) >= Hysteresis {
		return carrier{tier: best}
	}
	return c
}

// restrict returns the source with the ports whose traffic it carries, or with NoTraffic. A source that has none of the
// import's ports gets NoTraffic only if no tier selects its cluster. selected has the tiers of its cluster.
func (o *Order) restrict(s *Source, selected []bool, m *conflict.Merged) *Source {
	carries := func(port string) bool { return selected[o.carrying[slot{s.AddressType, port}].tier] }
	ports := s.importPorts(m)
	some, all := len(ports) == 0 && slices.Contains(selected, true), true
	for port := range ports {
		if carries(port) {
			some = true
		} else {
			all = false
		}
	}
	if some && all {
		return s
	}
	out := *s
	if !some {
		out.NoTraffic = true
		return &out
	}
	out.Withheld = map[clusterset.PortKey]bool{}
	for i := range s.Ports {
		key := keyOf(&s.Ports[i])
		if name, ok := m.Names[s.ClusterID][key]; ok && !carries(name) {
			out.Withheld[key] = true
		}
	}
	return &out
}

// importPorts returns the names in the import of the ports that a source serves.
func (src *Source) importPorts(m *conflict.Merged) map[string]bool {
	out := map[string]bool{}
	for i := range src.Ports {
		if name, ok := m.Names[src.ClusterID][keyOf(&src.Ports[i])]; ok {
			out[name] = true
		}
	}
	return out
}

// count counts the endpoints of a source. It leaves out those that terminate and are not ready.
func (src *Source) count() (c count) {
	add := func(isReady, terminating *bool) {
		switch {
		case ready(isReady):
			c.ready, c.all = c.ready+1, c.all+1
		case !ptr.Deref(terminating, false):
			c.all++
		}
	}
	for i := range src.Native {
		add(src.Native[i].Conditions.Ready, src.Native[i].Conditions.Terminating)
	}
	if src.Native == nil {
		for i := range src.Endpoints {
			add(src.Endpoints[i].Ready, src.Endpoints[i].Terminating)
		}
	}
	return c
}
