package clusterset

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckID tells why id is no cluster id (DESIGN §6): one DNS label, or two joined by a dot, at most 63 characters in all, since it
// becomes a label value.
func CheckID(id string) error {
	labels := strings.Split(id, ".")
	if len(id) > 63 || len(labels) > 2 {
		return fmt.Errorf("cluster id %q: must be one DNS label, or two joined by a dot, of at most 63 characters in all", id)
	}
	for _, l := range labels {
		if problems := validation.IsDNS1123Label(l); len(problems) > 0 {
			return fmt.Errorf("cluster id %q: %s", id, problems[0])
		}
	}
	return nil
}

// RecordName is the name of an export's record: unambiguous, since Services and namespaces hold no dots.
func RecordName(service, namespace, cluster string) string {
	return service + "." + namespace + "." + cluster
}

// dots is how many dots stand before the cluster id in the name of a record of each kind: names of Services and namespaces, and UIDs,
// hold none.
var dots = map[string]int{"ServiceExportRecord": 2, "EndpointRecord": 1}

// RecordKinds are the kinds of records on the hub.
func RecordKinds() []string { return []string{"EndpointRecord", "ServiceExportRecord"} }

// RecordOwner is the id of the cluster whose record of this kind this is, by its name, which the CRDs see to; "" where it is nobody's.
func RecordOwner(kind, name string) string {
	parts := strings.SplitN(name, ".", dots[kind]+1)
	if len(parts) <= dots[kind] {
		return ""
	}
	return parts[dots[kind]]
}
