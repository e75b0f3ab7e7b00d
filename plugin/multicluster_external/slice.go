package external

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The labels and annotations of the slices (SPEC F5).
const (
	labelService = "clusterset-dns.io/external"
	labelCluster = "multicluster.kubernetes.io/source-cluster"
	statedWeight = "clusterset-dns.io/external-weight"
	statedRegion = "clusterset-dns.io/region"
	statedPart   = "clusterset-dns.io/continent"
	statedPlace  = "clusterset-dns.io/location"
)

// reason is why a part of a slice is left out (X8). Its strings are label values.
type reason uint8

const (
	wrongService reason = iota
	wrongCluster
	wrongAddress
	wrongWeight
	wrongRegion
	wrongContinent
	wrongLocation
	tooManyClusters
	tooManyAddresses
	reasonCount
)

var reasons = [reasonCount]string{
	"service", "cluster_id", "address", "weight", "region", "continent", "location", "clusters", "addresses",
}

func (r reason) String() string { return reasons[r] }

// leftOut counts parts that are left out, by reason.
type leftOut [reasonCount]int

var continents = []string{"AF", "AN", "AS", "EU", "NA", "OC", "SA"}

// object is an EndpointSlice, stripped to what answers need. It is immutable.
type object struct {
	namespace, name string
	version         uint64
	service         string // "<svc>.<ns>"; "" if the slice answers nothing
	record          names.Record
	leftOut         leftOut
}

// strip returns nil if the object has no name, or no version that is a number. A slice of no possible Service or
// cluster answers nothing; any other wrong part is left out by itself (X8).
func strip(s *discoveryv1.EndpointSlice) any {
	version, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
	if err != nil || version == 0 || s.Name == "" {
		return nil
	}
	o := &object{namespace: s.Namespace, name: s.Name, version: version}
	service, cluster := s.Labels[labelService], strings.ToLower(s.Labels[labelCluster])
	switch {
	case validation.IsDNS1123Label(service) != nil || service == "ns" && s.Namespace == "dns": // N2 has that name
		o.leftOut[wrongService]++
	case !catalog.IsClusterID(cluster):
		o.leftOut[wrongCluster]++
	default:
		o.service = service + "." + s.Namespace
		o.record = o.read(s)
		o.record.Cluster = cluster
	}
	return o
}

// read returns what a slice states and has, and counts what is left out.
func (o *object) read(s *discoveryv1.EndpointSlice) names.Record {
	r := names.Record{Weight: -1}
	stated := func(annotation string, wrong reason, set func(value string) bool) {
		if value, ok := s.Annotations[annotation]; ok && !set(value) {
			o.leftOut[wrong]++
		}
	}
	stated(statedWeight, wrongWeight, func(value string) bool {
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n > names.MaxWeight {
			return false
		}
		r.Weight = int(n)
		return true
	})
	stated(statedRegion, wrongRegion, func(value string) bool {
		if validation.IsDNS1123Label(value) != nil {
			return false
		}
		r.Region = value
		return true
	})
	stated(statedPart, wrongContinent, func(value string) bool {
		if !slices.Contains(continents, value) {
			return false
		}
		r.Continent = value
		return true
	})
	stated(statedPlace, wrongLocation, func(value string) bool {
		latitude, longitude, _ := strings.Cut(value, ",")
		r.Location = location(latitude, longitude)
		return r.Location.Known()
	})
	o.addresses(s, &r)
	return r
}

// location reads two numbers of decimal degrees.
func location(latitude, longitude string) names.Location {
	return names.At(degrees(latitude), degrees(longitude))
}

// degrees returns NaN for what is no number.
func degrees(text string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

// addresses reads the endpoints. Of an address type the first addresses count, in their order as octets.
func (o *object) addresses(s *discoveryv1.EndpointSlice, r *names.Record) {
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
				o.leftOut[wrongAddress]++
				continue
			}
			r.Addrs = append(r.Addrs, packed)
			r.Up = r.Up || e.Conditions.Ready == nil || *e.Conditions.Ready
		}
	}
	slices.Sort(r.Addrs)
	r.Addrs = slices.Compact(r.Addrs)
	if n := len(r.Addrs) - names.MaxAddresses; n > 0 {
		o.leftOut[tooManyAddresses] += n
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

// hostName returns a host name fully qualified. An address is none.
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
