// Package endpointslice reads the EndpointSlices for clients outside the clusters (SPEC F5): what a slice states, and
// which of its parts are wrong (DNS X8). The plugin, the agent and the CLI share it. Package names decides which slices
// answer.
package endpointslice

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The labels of a slice.
const (
	Label        = "clusterset-dns.io/external" // the name of the Service
	LabelCluster = "multicluster.kubernetes.io/source-cluster"
)

// The annotations of a slice. An unknown value counts as absent.
const (
	AnnotationWeight    = "clusterset-dns.io/external-weight"
	AnnotationRegion    = "clusterset-dns.io/region"
	AnnotationContinent = "clusterset-dns.io/continent"
	AnnotationLocation  = "clusterset-dns.io/location"
)

// Reason is why a part of a slice is left out (X8). Its strings are label values.
type Reason uint8

// The reasons. TooManyClusters is that of a Service; no slice has it.
const (
	WrongService Reason = iota
	WrongCluster
	WrongAddress
	WrongWeight
	WrongRegion
	WrongContinent
	WrongLocation
	TooManyClusters
	TooManyAddresses
	reasonCount
)

var reasons = [reasonCount]string{
	"service", "cluster_id", "address", "weight", "region", "continent", "location", "clusters", "addresses",
}

func (r Reason) String() string { return reasons[r] }

// LeftOut counts parts that are left out, by Reason.
type LeftOut [reasonCount]int

var continents = []string{"AF", "AN", "AS", "EU", "NA", "OC", "SA"}

// Slice is what a slice states, and what is left out of it.
type Slice struct {
	Service string // "<svc>.<ns>"; "" if the slice answers nothing
	Record  names.Record
	LeftOut LeftOut
}

// Read reads one slice. A slice whose Service name or cluster ID is impossible answers nothing; of any other, only the
// wrong parts are left out (X8).
func Read(s *discoveryv1.EndpointSlice) (out Slice) {
	service, cluster := s.Labels[Label], strings.ToLower(s.Labels[LabelCluster])
	switch {
	case validation.IsDNS1123Label(service) != nil || service == "ns" && s.Namespace == "dns": // the name server (N2)
		out.LeftOut[WrongService]++
	case !isClusterID(cluster):
		out.LeftOut[WrongCluster]++
	default:
		out.Service = service + "." + s.Namespace
		out.Record = names.Record{Cluster: cluster, Weight: -1}
		out.annotations(s)
		out.addresses(s)
	}
	return out
}

// Service returns what the slices of the Service with this key, "<svc>.<ns>", answer; nil if nothing. It ignores slices
// of other Services.
func Service(key string, list []discoveryv1.EndpointSlice) *names.Service {
	records := make(map[string]names.Record)
	for i := range list {
		if s := Read(&list[i]); s.Service == key {
			records[list[i].Name] = s.Record
		}
	}
	return names.New(key, records)
}

func isClusterID(id string) bool {
	labels := strings.Split(id, ".")
	wrong := func(label string) bool { return validation.IsDNS1123Label(label) != nil }
	return len(id) <= 63 && len(labels) <= 2 && !slices.ContainsFunc(labels, wrong)
}

func (out *Slice) annotations(s *discoveryv1.EndpointSlice) {
	parse := func(annotation string, wrong Reason, set func(value string) bool) {
		if value, ok := s.Annotations[annotation]; ok && !set(value) {
			out.LeftOut[wrong]++
		}
	}
	r := &out.Record
	parse(AnnotationWeight, WrongWeight, func(value string) bool {
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n > names.MaxWeight {
			return false
		}
		r.Weight = int(n)
		return true
	})
	parse(AnnotationRegion, WrongRegion, func(value string) bool {
		if validation.IsDNS1123Label(value) != nil {
			return false
		}
		r.Region = value
		return true
	})
	parse(AnnotationContinent, WrongContinent, func(value string) bool {
		if !slices.Contains(continents, value) {
			return false
		}
		r.Continent = value
		return true
	})
	parse(AnnotationLocation, WrongLocation, func(value string) bool {
		latitude, longitude, _ := strings.Cut(value, ",")
		r.Location = names.ParseLocation(latitude, longitude)
		return r.Location.Known()
	})
}

// addresses reads the endpoints. Of more than MaxAddresses, those that are first in the order of octets count.
func (out *Slice) addresses(s *discoveryv1.EndpointSlice) {
	r := &out.Record
	var read func(text string) (packed string, ok bool)
	switch s.AddressType {
	case discoveryv1.AddressTypeIPv4:
		r.Type, read = names.V4, func(text string) (string, bool) { return address(text, netip.Addr.Is4) }
	case discoveryv1.AddressTypeIPv6:
		r.Type, read = names.V6, func(text string) (string, bool) { return address(text, netip.Addr.Is6) }
	default:
		r.Type, read = names.Host, hostName
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		for _, text := range e.Addresses {
			packed, ok := read(text)
			if !ok {
				out.LeftOut[WrongAddress]++
				continue
			}
			r.Addrs = append(r.Addrs, packed)
			r.Up = r.Up || e.Conditions.Ready == nil || *e.Conditions.Ready
		}
	}
	slices.Sort(r.Addrs)
	r.Addrs = slices.Compact(r.Addrs)
	if n := len(r.Addrs) - names.MaxAddresses; n > 0 {
		out.LeftOut[TooManyAddresses] += n
		r.Addrs = slices.Clone(r.Addrs[:names.MaxAddresses])
	}
}

// address packs an address of a family. Zones mean nothing to another host, and Kubernetes refuses IPv4-mapped IPv6
// addresses too.
func address(text string, family func(netip.Addr) bool) (packed string, ok bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || !family(addr) || addr.Zone() != "" || addr.Is4In6() {
		return "", false
	}
	return string(addr.AsSlice()), true
}

// hostName returns a host name in lower case and fully qualified. An IP address is no host name.
func hostName(text string) (name string, ok bool) {
	name = strings.ToLower(strings.TrimSuffix(text, "."))
	if _, err := netip.ParseAddr(name); err == nil || validation.IsDNS1123Subdomain(name) != nil {
		return "", false
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > 63 {
			return "", false
		}
	}
	return name + ".", true
}
