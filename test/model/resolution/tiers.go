package resolution

import (
	"strconv"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// The other annotations of T2 and E11.
const (
	AnnotationMinReady = "clusterset-dns.io/preference-min-ready"
	AnnotationExportTo = "clusterset-dns.io/export-to"
)

// Place is a cluster as tiers select it.
type Place struct {
	ID         string
	Properties map[string]string
}

// selects is one entry of a list, seen from own.
func selects(entry string, cluster, own Place) bool {
	if property, ok := strings.CutPrefix(entry, "same:"); ok {
		return own.Properties[property] != "" && own.Properties[property] == cluster.Properties[property]
	}
	key, value, _ := strings.Cut(entry, "=")
	switch key {
	case "any":
		return true
	case "local":
		return cluster.ID == own.ID
	case "cluster":
		return cluster.ID == value
	}
	return cluster.Properties[key] == value && value != ""
}

// Imports is E11: whether a cluster may import an export.
func Imports(e clusterset.Export, own Place) bool {
	if e.ExportTo == "" || e.Cluster == own.ID {
		return true
	}
	for _, entry := range strings.Split(e.ExportTo, ",") {
		if selects(entry, own, own) {
			return true
		}
	}
	return false
}

// tiers are those of a preference.
func tiers(m *conflict.Merged) []string {
	switch m.Preference {
	case "", "none":
		return []string{"any"}
	case "prefer-local":
		return []string{"local", "any"}
	case "local-only":
		return []string{"local"}
	}
	return strings.Split(string(m.Preference), ",")
}

// InSomeTier returns whether a cluster can ever get traffic of an import in own.
func InSomeTier(m *conflict.Merged, cluster, own Place) bool {
	for _, entry := range tiers(m) {
		if selects(entry, cluster, own) {
			return true
		}
	}
	return false
}

// Backends are how many endpoints of a cluster serve one port, and how many of them are ready.
type Backends struct {
	Cluster    Place
	Ready, All int
}

// Carries is T2, once nothing has changed for a while: whether a cluster gets the traffic of a port that these serve.
func Carries(m *conflict.Merged, cluster, own Place, all []Backends) bool {
	type sum struct{ ready, all int }
	var sums []sum
	list := tiers(m)
	for _, entry := range list {
		var s sum
		for _, b := range all {
			if selects(entry, b.Cluster, own) {
				s.ready, s.all = s.ready+b.Ready, s.all+b.All
			}
		}
		sums = append(sums, s)
	}
	for i, s := range sums {
		if s.ready > 0 && enough(string(m.MinReady), s.ready, s.all) {
			return selects(list[i], cluster, own)
		}
	}
	for i, s := range sums {
		if s.ready > 0 {
			return selects(list[i], cluster, own)
		}
	}
	return selects(list[len(list)-1], cluster, own)
}

func enough(minReady string, ready, all int) bool {
	if digits, ok := strings.CutSuffix(minReady, "%"); ok {
		percent, _ := strconv.ParseFloat(digits, 64)
		return float64(ready) >= float64(all)*percent/100
	}
	n, _ := strconv.Atoi(minReady)
	return ready >= n
}
