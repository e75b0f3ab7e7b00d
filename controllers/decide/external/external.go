// Package external decides which EndpointSlices a member has for clients outside the clusters (SPEC F5): one per
// exporting cluster and address type, ready while the cluster is up. The input is the exports, which of them have a
// ready endpoint, and which clusters each member does not reach. Which of the slices answer is for CoreDNS to decide
// (DNS X1–X8). It is pure and does not write anything.
package external

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
)

// Label is on every slice for clients outside; its value is the name of the Service. CoreDNS reads the slices with it.
const Label = "clusterset-dns.io/external"

// The annotations of a slice for clients outside. One whose value is not known is absent.
const (
	AnnotationWeight    = clusterset.AnnotationExternalWeight // a number
	AnnotationRegion    = "clusterset-dns.io/region"          // a DNS label
	AnnotationContinent = "clusterset-dns.io/continent"       // as in GeoIP databases: EU
	AnnotationLocation  = "clusterset-dns.io/location"        // LAT,LON
)

// Import is the ServiceImport that the slices belong to.
type Import struct {
	Namespace, Name string
	UID             types.UID
	Manager         string // value of the managed-by label
}

// Source is one exporter.
type Source struct {
	Cluster string
	*clusterset.External
	Ready   bool   // it has a ready endpoint of the Service
	Created string // when the hub created its record, for clusterset.Created
}

// Unreachable are the clusters that each live member does not reach, by the member's ID.
type Unreachable map[string]sets.Set[string]

// isReachable returns false if more than half of the other live members do not reach a cluster. A member that states
// nothing counts as reaching it.
func (v Unreachable) isReachable(cluster string) bool {
	voters, against := 0, 0
	for voter, unreachable := range v {
		if voter == cluster {
			continue
		}
		voters++
		if unreachable.Has(cluster) {
			against++
		}
	}
	return 2*against <= voters
}

// Desired returns the slices of an import, in the order of the sources.
func Desired(imp *Import, sources []Source, unreachable Unreachable) (out []*discoveryv1.EndpointSlice) {
	for i := range sources {
		s := &sources[i]
		isIPv6 := func(address string) bool { return strings.Contains(address, ":") }
		ipv4 := slices.DeleteFunc(slices.Clone(s.IPs), isIPv6)
		ipv6 := slices.DeleteFunc(slices.Clone(s.IPs), func(a string) bool { return !isIPv6(a) })
		up := s.Ready && unreachable.isReachable(s.Cluster)
		out = append(out,
			imp.slice(s, discoveryv1.AddressTypeIPv4, ipv4, up),
			imp.slice(s, discoveryv1.AddressTypeIPv6, ipv6, up),
			imp.slice(s, discoveryv1.AddressTypeFQDN, s.Hostnames, up))
	}
	return slices.DeleteFunc(out, func(e *discoveryv1.EndpointSlice) bool { return len(e.Endpoints) == 0 })
}

// slice returns one slice. Two labels keep kube-proxy from it, as from an imported slice without traffic: kube-proxy
// would log that it belongs to no Service.
func (imp *Import) slice(
	s *Source, family discoveryv1.AddressType, addresses []string, up bool,
) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: imp.Namespace, Name: SliceName(imp.Name, s.Cluster, family),
			Labels: map[string]string{
				Label:                         imp.Name,
				mcsv1beta1.LabelSourceCluster: s.Cluster,
				discoveryv1.LabelManagedBy:    imp.Manager,
				corev1.IsHeadlessService:      "",
				derived.LabelServiceProxy:     "none",
			},
			Annotations: map[string]string{AnnotationWeight: strconv.Itoa(int(*s.Weight))},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName,
				Name: imp.Name, UID: imp.UID, Controller: new(false),
			}},
		},
		AddressType: family,
	}
	for annotation, value := range map[string]string{
		AnnotationRegion: s.Region, AnnotationContinent: s.Continent, AnnotationLocation: s.Location,
		clusterset.AnnotationCreated: s.Created,
	} {
		if value != "" {
			out.Annotations[annotation] = value
		}
	}
	for _, a := range addresses {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(up)},
		})
	}
	return out
}

const infix = ".external-" // between the cluster ID and the address type in the name of a slice

// SliceName returns the name of a slice: at most 142 characters. It is unique, because the name of a Service has no
// dot.
func SliceName(service, cluster string, family discoveryv1.AddressType) string {
	return service + "." + cluster + infix + strings.ToLower(string(family))
}

// ServiceOf returns the Service in the name of a slice, or "" if slice is not what SliceName returns.
func ServiceOf(slice string) string {
	service, rest, _ := strings.Cut(slice, ".")
	at := strings.LastIndex(rest, infix)
	if at < 0 || clusterset.CheckID(rest[:at]) != nil ||
		!slices.Contains([]string{"ipv4", "ipv6", "fqdn"}, rest[at+len(infix):]) {
		return ""
	}
	return service
}

// Updated returns a copy of the slice e with the content of d. Labels and annotations of others stay, except labels
// that would attach it to a Service.
func Updated(e, d *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	return endpoints.Updated(e, d,
		AnnotationRegion, AnnotationContinent, AnnotationLocation, clusterset.AnnotationCreated)
}
