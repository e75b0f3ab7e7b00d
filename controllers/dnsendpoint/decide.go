package dnsendpoint

import (
	"cmp"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/endpointslice"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
)

const (
	ttl     = 30  // seconds (X5)
	maxName = 253 // characters of a DNS name
)

// Records returns the records of a Service's external names in zone, as in a transfer (X6). They are sorted by name and
// type. It does not change the slices.
func Records(
	zone string, service types.NamespacedName, list []discoveryv1.EndpointSlice,
) (out []externaldnsv1alpha1.Endpoint) {
	s := endpointslice.Service(service.Name+"."+service.Namespace, list)
	if s == nil {
		return nil
	}
	for name, content := range s.Names() {
		out = append(out, sets(name+"."+zone, content)...)
	}
	slices.SortFunc(out, func(a, b externaldnsv1alpha1.Endpoint) int {
		return cmp.Or(cmp.Compare(a.DNSName, b.DNSName), cmp.Compare(a.RecordType, b.RecordType))
	})
	return out
}

// sets returns the records of one name. One that is too long for DNS has none.
func sets(name string, c names.Content) (out []externaldnsv1alpha1.Endpoint) {
	if len(name) > maxName {
		return nil
	}
	add := func(kind string, targets ...string) {
		if len(targets) > 0 {
			out = append(out, externaldnsv1alpha1.Endpoint{
				DNSName: name, RecordType: kind, RecordTTL: ttl, Targets: targets,
			})
		}
	}
	v4, v6 := c.Addresses()
	add(externaldnsv1alpha1.RecordA, v4...)
	add(externaldnsv1alpha1.RecordAAAA, v6...)
	if c.Alias != "" {
		add(externaldnsv1alpha1.RecordCNAME, strings.TrimSuffix(c.Alias, "."))
	}
	return out
}
