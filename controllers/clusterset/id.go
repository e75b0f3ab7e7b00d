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
