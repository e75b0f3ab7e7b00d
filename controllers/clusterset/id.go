package clusterset

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckID returns an error unless id is a cluster ID: one DNS label, or two joined by a dot, of at most 63 characters
// in all, because it becomes a label value (KEP-2149).
func CheckID(id string) error {
	labels := strings.Split(id, ".")
	if len(id) > 63 || len(labels) > 2 {
		return fmt.Errorf(
			"cluster ID %q: must be one DNS label, or two joined by a dot, of at most 63 characters in all", id,
		)
	}
	for _, l := range labels {
		if problems := validation.IsDNS1123Label(l); len(problems) > 0 {
			return fmt.Errorf("cluster ID %q: %s", id, problems[0])
		}
	}
	return nil
}

// RecordName returns the name of an export's record. It is unambiguous: Services and namespaces have no dots in
// their names.
func RecordName(service, namespace, cluster string) string {
	return service + "." + namespace + "." + cluster
}

// dots is the number of dots before the cluster ID in the name of a record, by kind.
var dots = map[string]int{"ServiceExportRecord": 2, "EndpointPage": 3}

func RecordKinds() []string { return slices.Sorted(maps.Keys(dots)) }

// RecordOwner returns the cluster ID at the end of a record's name, or "". The CRD's validation ensures that it is the
// cluster in the spec. kind is one of RecordKinds.
func RecordOwner(kind, name string) string {
	for range dots[kind] {
		var found bool
		if _, name, found = strings.Cut(name, "."); !found {
			return ""
		}
	}
	return name
}
