package resolution

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

type reason = mcsv1beta1.ServiceExportConditionReason

// row is one row of DESIGN §4's table. Its rule gets at least one export, in order of precedence, sets its part of
// the result, and
// returns how many clusters disagree with it.
type row struct {
	reason reason
	rule   func(byAge []clusterset.Export, m *conflict.Merged) (disagree int)
}

// table has the rows in the text's order, which is that of the reasons, too.
var table = []row{
	{mcsv1beta1.ServiceExportReasonTypeConflict, serviceType},
	{mcsv1beta1.ServiceExportReasonPortConflict, ports},
	{mcsv1beta1.ServiceExportReasonSessionAffinityConflict, sessionAffinity},
	{mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict, sessionAffinityConfig},
	{mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict, internalTrafficPolicy},
	{mcsv1beta1.ServiceExportReasonTrafficDistributionConflict, trafficDistribution},
	{"PreferenceConflict", preference},
	{mcsv1beta1.ServiceExportReasonIPFamilyConflict, families},
	{mcsv1beta1.ServiceExportReasonLabelsConflict, labels},
	{mcsv1beta1.ServiceExportReasonAnnotationsConflict, annotations},
}

// Resolve says what the clusterset exports and every reason of conflict that holds, in the table's order. Without
// exports there is
// nothing to say.
func Resolve(exports []clusterset.Export) (conflict.Merged, []reason) {
	m, disagree := resolve(exports)
	var reasons []reason
	for _, row := range table {
		if disagree[row.reason] > 0 {
			reasons = append(reasons, row.reason)
		}
	}
	return m, reasons
}

// resolve counts the clusters that disagree, by reason.
func resolve(exports []clusterset.Export) (conflict.Merged, map[reason]int) {
	var m conflict.Merged
	disagree := map[reason]int{}
	if len(exports) == 0 {
		return m, disagree
	}
	for _, export := range exports {
		m.Clusters = append(m.Clusters, export.Cluster)
	}
	slices.Sort(m.Clusters)

	byAge := precedence(exports)
	for _, row := range table {
		disagree[row.reason] = row.rule(byAge, &m)
	}
	return m, disagree
}

// precedence is C1. The first record of a name opens ten minutes. Whoever publishes within them counts by the age of
// its ServiceExport; all others come after those, in the order in which the hub got them. Ties go by cluster id,
// bytewise. An export without such a time was there before all others.
func precedence(exports []clusterset.Export) []clusterset.Export {
	inTime, late := split(exports)
	slices.SortFunc(inTime, func(a, b clusterset.Export) int {
		if a.Created.Equal(b.Created) {
			return strings.Compare(a.Cluster, b.Cluster)
		}
		return a.Created.Compare(b.Created)
	})
	slices.SortFunc(late, func(a, b clusterset.Export) int {
		if a.Published.Equal(b.Published) {
			return strings.Compare(a.Cluster, b.Cluster)
		}
		return a.Published.Compare(b.Published)
	})
	return append(inTime, late...)
}

// split tells those that came in time from those that came late.
func split(exports []clusterset.Export) (inTime, late []clusterset.Export) {
	for _, export := range exports {
		isLate := false
		for _, other := range exports {
			minutesLater := export.Published.Sub(other.Published).Minutes()
			isLate = isLate || !export.Published.IsZero() && !other.Published.IsZero() && minutesLater > 10
		}
		if isLate {
			late = append(late, export)
		} else {
			inTime = append(inTime, export)
		}
	}
	return inTime, late
}

// count is how many of the exports a test holds for.
func count(exports []clusterset.Export, holds func(clusterset.Export) bool) int {
	n := 0
	for _, export := range exports {
		if holds(export) {
			n++
		}
	}
	return n
}

// serviceType is C2.
func serviceType(byAge []clusterset.Export, m *conflict.Merged) int {
	m.Type = byAge[0].Type
	return count(byAge, func(e clusterset.Export) bool { return e.Type != m.Type })
}

// sessionAffinity is C5, first half.
func sessionAffinity(byAge []clusterset.Export, m *conflict.Merged) int {
	m.SessionAffinity = byAge[0].SessionAffinity
	return count(byAge, func(e clusterset.Export) bool { return e.SessionAffinity != m.SessionAffinity })
}

// sessionAffinityConfig is C5, second half. None and some disagree.
func sessionAffinityConfig(byAge []clusterset.Export, m *conflict.Merged) int {
	m.SessionAffinityConfig = byAge[0].SessionAffinityConfig.DeepCopy()
	return count(byAge, func(e clusterset.Export) bool {
		return !equality.Semantic.DeepEqual(e.SessionAffinityConfig, m.SessionAffinityConfig)
	})
}

// internalTrafficPolicy is C6, first half.
func internalTrafficPolicy(byAge []clusterset.Export, m *conflict.Merged) int {
	m.InternalTrafficPolicy = byAge[0].InternalTrafficPolicy
	return count(
		byAge,
		func(e clusterset.Export) bool { return e.InternalTrafficPolicy != m.InternalTrafficPolicy },
	)
}

// preference is T2: resolved like any other property. How many are enough matters only to an order.
func preference(byAge []clusterset.Export, m *conflict.Merged) int {
	m.Preference, m.MinReady = byAge[0].Preference, byAge[0].MinReady
	return count(byAge, func(e clusterset.Export) bool {
		return e.Preference != m.Preference || e.Preference != "none" && e.MinReady != m.MinReady
	})
}

// trafficDistribution is C6, second half. None and some disagree.
func trafficDistribution(byAge []clusterset.Export, m *conflict.Merged) int {
	m.TrafficDistribution = byAge[0].TrafficDistribution
	return count(byAge, func(e clusterset.Export) bool { return e.TrafficDistribution != m.TrafficDistribution })
}

// families is C7. Two families that only stand in another order agree; so do two and one of them, because what
// remains reaches every backend. Those who disagree are the ones that would have left nothing, and those who came late
// and lack one of the families that the others share: nobody gives that up for them (C1).
func families(byAge []clusterset.Export, m *conflict.Merged) int {
	inTime, late := split(byAge)
	m.Families = slices.Clone(byAge[0].Families)
	leftOut := 0
	for _, export := range inTime {
		if shared := common(m.Families, export.Families); len(shared) > 0 {
			m.Families = shared
		} else {
			leftOut++
		}
	}
	return leftOut + count(late, func(e clusterset.Export) bool {
		return len(common(m.Families, e.Families)) < len(m.Families)
	})
}

// common are the families of one list that are in another.
func common(list, other []corev1.IPFamily) []corev1.IPFamily {
	var shared []corev1.IPFamily
	for _, family := range list {
		if slices.Contains(other, family) {
			shared = append(shared, family)
		}
	}
	return shared
}

// labels is C8, first half: the oldest's whole set, never a mixture.
func labels(byAge []clusterset.Export, m *conflict.Merged) int {
	m.Labels = maps.Clone(byAge[0].Labels)
	return count(byAge, func(e clusterset.Export) bool { return !maps.Equal(e.Labels, m.Labels) })
}

// annotations is C8, second half.
func annotations(byAge []clusterset.Export, m *conflict.Merged) int {
	m.Annotations = maps.Clone(byAge[0].Annotations)
	return count(byAge, func(e clusterset.Export) bool { return !maps.Equal(e.Annotations, m.Annotations) })
}
