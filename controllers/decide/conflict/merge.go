package conflict

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Merge merges the exports of one namespaced name: at least one, and one per cluster. The result does not depend on
// their order. Merge does not change them.
func Merge(exports []clusterset.Export) (Merged, []Conflict) {
	in := slices.Clone(exports)
	Order(in)
	oldest := &in[0]

	m := Merged{
		Type:                  oldest.Type,
		SessionAffinity:       oldest.SessionAffinity,
		SessionAffinityConfig: oldest.SessionAffinityConfig,
		InternalTrafficPolicy: oldest.InternalTrafficPolicy,
		TrafficDistribution:   oldest.TrafficDistribution,
		Preference:            oldest.Preference,
		MinReady:              oldest.MinReady,
		Properties:            map[string]map[string]string{},
		Labels:                oldest.Labels,
		Annotations:           oldest.Annotations,
	}
	for i := range in {
		m.Clusters = append(m.Clusters, in[i].Cluster)
		m.Properties[in[i].Cluster] = in[i].Properties
	}
	slices.Sort(m.Clusters)
	m.Ports, m.Names = union(in)
	var leftOut int
	m.Families, leftOut = families(in)

	return m, disagreements(in, m, leftOut)
}

// families returns the families that the clusters have in common, in the order of the oldest export. It leaves out
// a cluster that has none of those that the older ones share, or that is late and would take one away (C1). It
// returns how many it left out.
func families(in []clusterset.Export) (common []corev1.IPFamily, leftOut int) {
	common = in[0].Families
	late := Late(in)
	for i := range in[1:] {
		var both []corev1.IPFamily
		for _, f := range common {
			if slices.Contains(in[i+1].Families, f) {
				both = append(both, f)
			}
		}
		if len(both) == 0 || late(&in[i+1]) && len(both) < len(common) {
			leftOut++
			continue
		}
		common = both
	}
	return slices.Clone(common), leftOut
}

// property is a property whose value is the oldest export's. A conflict is reported for each other value.
type property struct {
	reason mcsv1beta1.ServiceExportConditionReason
	what   string
	agree  func(a, b *clusterset.Export) bool
	value  func(e *clusterset.Export) string // the value that won, for the message
}

var properties = []property{
	{mcsv1beta1.ServiceExportReasonTypeConflict, "type",
		func(a, b *clusterset.Export) bool { return a.Type == b.Type },
		func(e *clusterset.Export) string { return fmt.Sprintf("Using %q", e.Type) }},
	{mcsv1beta1.ServiceExportReasonPortConflict, "ports",
		func(a, b *clusterset.Export) bool { return samePorts(a.Ports, b.Ports, a.Type == mcsv1beta1.Headless) },
		func(*clusterset.Export) string { return "Using all ports and, where names or numbers clash, those" }},
	{mcsv1beta1.ServiceExportReasonSessionAffinityConflict, "sessionAffinity",
		func(a, b *clusterset.Export) bool { return a.SessionAffinity == b.SessionAffinity },
		func(e *clusterset.Export) string { return fmt.Sprintf("Using %q", e.SessionAffinity) }},
	{mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict, "sessionAffinityConfig",
		func(a, b *clusterset.Export) bool {
			return reflect.DeepEqual(a.SessionAffinityConfig, b.SessionAffinityConfig)
		},
		func(e *clusterset.Export) string { return "Using " + affinityTimeout(e.SessionAffinityConfig) }},
	{mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict, "internalTrafficPolicy",
		func(a, b *clusterset.Export) bool { return a.InternalTrafficPolicy == b.InternalTrafficPolicy },
		func(e *clusterset.Export) string { return fmt.Sprintf("Using %q", e.InternalTrafficPolicy) }},
	{mcsv1beta1.ServiceExportReasonTrafficDistributionConflict, "trafficDistribution",
		func(a, b *clusterset.Export) bool { return a.TrafficDistribution == b.TrafficDistribution },
		func(e *clusterset.Export) string { return fmt.Sprintf("Using %q", e.TrafficDistribution) }},
	{ReasonPreference, "preference",
		func(a, b *clusterset.Export) bool {
			return a.Preference == b.Preference && (a.MinReady == b.MinReady || a.Preference == hubv1alpha1.PreferNone)
		},
		func(e *clusterset.Export) string {
			if e.MinReady != "" {
				return fmt.Sprintf("Using %q with at least %s ready", e.Preference, e.MinReady)
			}
			return fmt.Sprintf("Using %q", e.Preference)
		}},
}

// metadata has the properties that are reported after ipFamilies.
var metadata = []property{
	{mcsv1beta1.ServiceExportReasonLabelsConflict, "exportedLabels",
		func(a, b *clusterset.Export) bool { return maps.Equal(a.Labels, b.Labels) },
		func(*clusterset.Export) string { return "Using those" }},
	{mcsv1beta1.ServiceExportReasonAnnotationsConflict, "exportedAnnotations",
		func(a, b *clusterset.Export) bool { return maps.Equal(a.Annotations, b.Annotations) },
		func(*clusterset.Export) string { return "Using those" }},
}

// disagreements returns every conflict, in the order of the tables. in is sorted by precedence.
func disagreements(in []clusterset.Export, m Merged, leftOut int) []Conflict {
	var out []Conflict
	report := func(p property) {
		n := 0
		for i := range in[1:] {
			if !p.agree(&in[0], &in[i+1]) {
				n++
			}
		}
		if n > 0 {
			out = append(out, Conflict{p.reason, message(p.what, p.value(&in[0]), in, n)})
		}
	}
	for _, p := range properties {
		report(p)
	}
	if leftOut > 0 {
		using := fmt.Sprintf("Using %v, which some backends do not have,", m.Families)
		out = append(out, Conflict{
			mcsv1beta1.ServiceExportReasonIPFamilyConflict, message("ipFamilies", using, in, leftOut)})
	}
	for _, p := range metadata {
		report(p)
	}
	return out
}

// message returns a message in the form of K1645's example.
func message(what, using string, in []clusterset.Export, disagree int) string {
	return fmt.Sprintf("Conflicting %s. %s from oldest service export in %q. %d/%d clusters disagree.",
		what, using, in[0].Cluster, disagree, len(in))
}

func affinityTimeout(c *corev1.SessionAffinityConfig) string {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return "none"
	}
	return fmt.Sprintf("a timeout of %d s", *c.ClientIP.TimeoutSeconds)
}

// samePorts returns whether a and b have the same ports, in any order. Without a VIP their numbers do not matter.
func samePorts(a, b []clusterset.Port, headless bool) bool {
	if len(a) != len(b) {
		return false
	}
	for _, p := range a {
		if !slices.ContainsFunc(b, func(q clusterset.Port) bool {
			if headless {
				q.Number = p.Number
			}
			return p == q
		}) {
			return false
		}
	}
	return true
}

// union returns the ports of all exports in order of precedence, and Merged.Names.
//
// Clients of a VIP connect to protocol and number. So two ports with the same protocol and number are one port,
// whatever their names. A port with another number but a name that is already used loses. Unnamed ports do not use a
// name. Clients of a Headless Service find the number by the name (SRV), and each slice has its own number. So its
// ports with the same protocol and name are one port, whatever their numbers. Names are resolved last: a port that lost
// its name serves a number that a younger export adds.
func union(in []clusterset.Export) (ports []clusterset.Port, names map[string]map[clusterset.PortKey]string) {
	type key struct {
		protocol corev1.Protocol
		number   int32
		name     string
	}
	headless := in[0].Type == mcsv1beta1.Headless
	keyOf := func(p clusterset.Port) key {
		if headless {
			return key{protocol: p.Protocol, name: p.Name}
		}
		return key{protocol: p.Protocol, number: p.Number}
	}
	at := map[key]int{} // index in ports
	taken := map[string]bool{}
	for i := range in {
		for _, p := range in[i].Ports {
			if _, there := at[keyOf(p)]; there || taken[p.Name] {
				continue
			}
			at[keyOf(p)] = len(ports)
			taken[p.Name] = p.Name != ""
			ports = append(ports, p)
		}
	}
	nameUnnamed(ports, taken)

	names = make(map[string]map[clusterset.PortKey]string, len(in))
	for i := range in {
		own := map[clusterset.PortKey]string{}
		for _, p := range in[i].Ports {
			if j, there := at[keyOf(p)]; there {
				own[p.Key()] = ports[j].Name
			}
		}
		names[in[i].Cluster] = own
	}
	return ports, names
}

// nameUnnamed names unnamed ports if there are several ports: a Service requires it.
func nameUnnamed(ports []clusterset.Port, taken map[string]bool) {
	if len(ports) < 2 {
		return
	}
	for i := range ports {
		if ports[i].Name != "" {
			continue
		}
		base := GivenName(ports[i])
		name := base
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		ports[i].Name, taken[name] = name, true
	}
}

// GivenName returns the name of an unnamed port beside others. If it is taken, "-2", "-3" and so on follow it.
func GivenName(p clusterset.Port) string {
	return fmt.Sprintf("%s-%d", strings.ToLower(string(p.Protocol)), p.Number)
}
