package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// row is a property whose value in the oldest export wins.
type row struct {
	name string
	of   func(e *clusterset.Export) string
}

var rows = []row{
	{"type", func(e *clusterset.Export) string { return string(e.Type) }},
	{"sessionAffinity", func(e *clusterset.Export) string { return string(e.SessionAffinity) }},
	{"sessionAffinityConfig", func(e *clusterset.Export) string {
		if c := e.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			return fmt.Sprintf("%ds", *c.ClientIP.TimeoutSeconds)
		}
		return ""
	}},
	{"internalTrafficPolicy", func(e *clusterset.Export) string { return string(e.InternalTrafficPolicy) }},
	{"trafficDistribution", func(e *clusterset.Export) string { return e.TrafficDistribution }},
	{"preference", func(e *clusterset.Export) string {
		if e.Preference == hubv1alpha1.PreferNone {
			return ""
		}
		return string(e.Preference)
	}},
	{"preference-min-ready", func(e *clusterset.Export) string { return string(e.MinReady) }},
	{"labels", func(e *clusterset.Export) string { return pairs(e.Labels) }},
	{"annotations", func(e *clusterset.Export) string { return pairs(e.Annotations) }},
}

// properties returns those that have a value, or that differ. exports are in order of precedence.
func properties(exports []clusterset.Export, m *conflict.Merged, inEffect []corev1.IPFamily) (out []Property) {
	oldest := &exports[0]
	for _, r := range rows {
		p := Property{Name: r.name, Value: r.of(oldest), From: oldest.Cluster}
		for i := range exports[1:] {
			p.differs(exports[i+1].Cluster, r.of(&exports[i+1]))
		}
		if p.Value != "" || len(p.Others) > 0 {
			out = append(out, p)
		}
	}
	out = append(out, ports(exports, m)...)
	if m.Type == mcsv1beta1.Headless { // it has those of its endpoints
		return out
	}
	families := Property{Name: "ipFamilies", Value: familiesText(inEffect), From: oldest.Cluster}
	for i := range exports {
		families.differs(exports[i].Cluster, familiesText(exports[i].Families))
	}
	if len(families.Others) > 0 {
		families.From = "what all have"
	}
	return append(out, families)
}

func ports(exports []clusterset.Export, m *conflict.Merged) (out []Property) {
	for _, port := range m.Ports {
		p := Property{Name: "port", Value: portText(port)}
		for i := range exports {
			e := &exports[i]
			at := slices.IndexFunc(e.Ports, func(own clusterset.Port) bool {
				name, ok := m.Names[e.Cluster][own.Key()]
				return ok && name == port.Name
			})
			switch {
			case at < 0:
				p.differs(e.Cluster, "not exposed")
			case p.From == "":
				p.From = e.Cluster
			default:
				p.differs(e.Cluster, portText(e.Ports[at]))
			}
		}
		out = append(out, p)
	}
	return out
}

func (p *Property) differs(cluster, value string) {
	if value == p.Value {
		return
	}
	if p.Others == nil {
		p.Others = map[string]string{}
	}
	p.Others[cluster] = value
}

func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}

func familiesText(in []corev1.IPFamily) string {
	var out []string
	for _, f := range in {
		out = append(out, string(f))
	}
	return strings.Join(out, ",")
}

// withheld returns what was exported and is not served. exporters are those of the exports, in the same order.
func withheld(f *Facts, exports []clusterset.Export, exporters []Exporter, m *conflict.Merged) (out []Withheld) {
	for i := range exports {
		e := &exports[i]
		names := m.Names[e.Cluster]
		for _, p := range e.Ports {
			if _, ok := names[p.Key()]; !ok {
				out = append(out, Withheld{e.Cluster, "port " + portText(p),
					"an older export uses its name for another port: rename it there"})
			}
		}
		shared := slices.ContainsFunc(e.Families, func(f corev1.IPFamily) bool {
			return slices.Contains(m.Families, f)
		})
		if m.Type != mcsv1beta1.Headless && !shared {
			out = append(out, Withheld{e.Cluster, "all endpoints of " + familiesText(e.Families),
				"the clusters have only " + familiesText(m.Families) + " in common"})
		}
		out = append(out, endpointsOf(&exporters[i])...)
	}
	for i := range f.Slices {
		if c := f.Slices[i].Labels[mcsv1beta1.LabelSourceCluster]; clusterset.CheckID(c) != nil {
			out = append(out, Withheld{c, "EndpointSlice " + f.Slices[i].Name, "its label " +
				mcsv1beta1.LabelSourceCluster +
				" is no cluster ID, so DNS skips it; the agent did not create it"})
		}
	}
	return out
}

// endpointsOf returns endpoints of a cluster that are not served.
func endpointsOf(x *Exporter) []Withheld {
	what, why := "all endpoints", "none was published"
	switch {
	case x.NotReady > 0:
		what, why = report.Number(x.NotReady, "endpoint"), "not ready in that cluster"
	case x.imported || x.NotCounted || x.Lost:
		return nil
	}
	if x.Expired != "" {
		why = "the cluster has expired: " + x.Expired
	}
	return []Withheld{{x.Cluster, what, why}}
}
