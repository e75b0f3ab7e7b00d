package dnsendpoint

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
)

const (
	ttl     = 30  // seconds (X5)
	maxName = 253 // characters of a DNS name
)

// Records returns the records of a Service's external names in zone, as in a transfer (X6): those of all clusters,
// of each region and of each cluster. They are sorted by name and type. It does not change the slices.
func Records(
	zone string, service types.NamespacedName, list []discoveryv1.EndpointSlice,
) []externaldnsv1alpha1.Endpoint {
	records := map[string]names.Record{}
	for i := range list {
		s := &list[i]
		if id := s.Labels[mcsv1beta1.LabelSourceCluster]; clusterset.CheckID(id) == nil {
			records[s.Name+" "+string(s.AddressType)] = record(id, s)
		}
	}
	all := names.New(service.Name+"."+service.Namespace, records)
	if all == nil {
		return nil
	}
	name := all.Key() + "." + zone
	out := sets(name, all.Everyone(""))
	for _, region := range all.Regions() {
		out = append(out, sets(region+"."+name, all.Everyone(region))...)
	}
	for i := range all.Clusters() {
		c := &all.Clusters()[i]
		out = append(out, sets(c.ID+"."+name, c.Content())...)
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
	add := func(kind string, targets []string) {
		if len(targets) > 0 {
			out = append(out, externaldnsv1alpha1.Endpoint{
				DNSName: name, RecordType: kind, RecordTTL: ttl, Targets: targets,
			})
		}
	}
	add(externaldnsv1alpha1.RecordA, texts(c.V4, 4))
	add(externaldnsv1alpha1.RecordAAAA, texts(c.V6, 16))
	if c.Alias != "" {
		add(externaldnsv1alpha1.RecordCNAME, []string{c.Alias})
	}
	return out
}

// texts returns packed addresses of so many octets as text, sorted as octets.
func texts(packed string, octets int) (out []string) {
	for _, a := range slices.SortedFunc(slices.Chunk([]byte(packed), octets), bytes.Compare) {
		addr, _ := netip.AddrFromSlice(a)
		out = append(out, addr.String())
	}
	return out
}

// record returns what one slice states and has. A part that is wrong counts for nothing (X8).
func record(id string, s *discoveryv1.EndpointSlice) names.Record {
	r := names.Record{Cluster: id, Weight: -1, Type: names.Host}
	if region := s.Annotations[external.AnnotationRegion]; len(validation.IsDNS1123Label(region)) == 0 {
		r.Region = region
	}
	weight, err := strconv.Atoi(s.Annotations[external.AnnotationWeight])
	if err == nil && weight >= 0 && weight <= names.MaxWeight {
		r.Weight = weight
	}
	switch s.AddressType {
	case discoveryv1.AddressTypeIPv4:
		r.Type = names.V4
	case discoveryv1.AddressTypeIPv6:
		r.Type = names.V6
	}
	for _, e := range s.Endpoints {
		for _, text := range e.Addresses {
			if taken := take(s.AddressType, text); taken != "" {
				r.Addrs = append(r.Addrs, taken)
				r.Up = r.Up || e.Conditions.Ready == nil || *e.Conditions.Ready
			}
		}
	}
	slices.Sort(r.Addrs)
	r.Addrs = slices.Compact(r.Addrs)
	return r
}

// take returns an address packed, or a host name without a dot at its end; "" if it is not of the slice's type.
func take(of discoveryv1.AddressType, text string) string {
	text = strings.ToLower(strings.TrimSuffix(text, "."))
	addr, err := netip.ParseAddr(text)
	switch {
	case of == discoveryv1.AddressTypeFQDN && err != nil && len(validation.IsDNS1123Subdomain(text)) == 0:
		return text
	case err != nil || addr.Zone() != "":
		return ""
	case of == discoveryv1.AddressTypeIPv4 && addr.Is4(),
		of == discoveryv1.AddressTypeIPv6 && addr.Is6() && !addr.Is4In6():
		return string(addr.AsSlice())
	}
	return ""
}
