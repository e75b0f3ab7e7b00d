package dnsendpoint

import (
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
)

const (
	ttl         = 30  // seconds (X5)
	maxClusters = 256 // of a name (X8)
	maxTargets  = 16  // of a cluster and an address type (X8)
	maxName     = 253 // characters of a DNS name
	maxWeight   = 1000
)

// cluster is what the slices of a name state about one exporting cluster.
type cluster struct {
	id     string
	up     bool
	region string // "" if it has none, or one that is no DNS label
	weight int    // negative if none is stated
	v4, v6 []netip.Addr
	hosts  []string // they count only if there are no addresses
}

// host returns the host name that answers for the cluster; "" if it has addresses.
func (c *cluster) host() string {
	if len(c.v4)+len(c.v6) > 0 || len(c.hosts) == 0 {
		return ""
	}
	return c.hosts[0]
}

// Records returns the records of a Service's external names in zone, as in a transfer (X6): those of all clusters,
// of each region and of each cluster. They are sorted by name and type. It does not change the slices.
func Records(
	zone string, service types.NamespacedName, list []discoveryv1.EndpointSlice,
) []externaldnsv1alpha1.Endpoint {
	all := clusters(list)
	name := service.Name + "." + service.Namespace + "." + zone
	names := map[string][]externaldnsv1alpha1.Endpoint{name: everyone(all, "")}
	for i := range all {
		if region := all[i].region; region != "" {
			names[region+"."+name] = everyone(all, region)
		}
	}
	for i := range all { // after the regions: a label that is both is the cluster ID
		names[all[i].id+"."+name] = sets(all[i].v4, all[i].v6, all[i].host())
	}
	var out []externaldnsv1alpha1.Endpoint
	for name, records := range names {
		for _, r := range records {
			if r.DNSName = name; len(name) <= maxName {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b externaldnsv1alpha1.Endpoint) int {
		return cmp.Or(cmp.Compare(a.DNSName, b.DNSName), cmp.Compare(a.RecordType, b.RecordType))
	})
	return out
}

// prefer returns the clusters that have a property, or all if none has it.
func prefer(from []cluster, property func(*cluster) bool) []cluster {
	some := slices.DeleteFunc(slices.Clone(from), func(c cluster) bool { return !property(&c) })
	if len(some) == 0 {
		return from
	}
	return some
}

// candidates returns the clusters that may answer clients wherever they are, of those that have a property (X3).
func candidates(all []cluster, region string, has func(*cluster) bool) []cluster {
	from := slices.DeleteFunc(slices.Clone(all), func(c cluster) bool { return !has(&c) })
	from = prefer(from, func(c *cluster) bool { return c.up })
	if region != "" {
		from = prefer(from, func(c *cluster) bool { return c.region == region })
	}
	return prefer(from, func(c *cluster) bool { return c.weight != 0 })
}

// everyone returns what clients get together, in a region or, with "", anywhere. A host name is alone, so it counts
// only where there are no addresses.
func everyone(all []cluster, region string) []externaldnsv1alpha1.Endpoint {
	var v4, v6 []netip.Addr
	host := ""
	for _, c := range candidates(all, region, func(c *cluster) bool { return len(c.v4) > 0 || c.host() != "" }) {
		v4 = append(v4, c.v4...)
	}
	for _, c := range candidates(all, region, func(c *cluster) bool { return len(c.v6) > 0 || c.host() != "" }) {
		v6 = append(v6, c.v6...)
	}
	for _, c := range candidates(all, region, func(*cluster) bool { return true }) {
		host = cmp.Or(host, c.host())
	}
	return sets(v4, v6, host)
}

// sets returns the records of one name, without the name.
func sets(v4, v6 []netip.Addr, host string) (out []externaldnsv1alpha1.Endpoint) {
	add := func(kind string, targets []string) {
		if len(targets) > 0 {
			out = append(out, externaldnsv1alpha1.Endpoint{RecordType: kind, RecordTTL: ttl, Targets: targets})
		}
	}
	add(externaldnsv1alpha1.RecordA, texts(v4))
	add(externaldnsv1alpha1.RecordAAAA, texts(v6))
	if len(out) == 0 && host != "" {
		add(externaldnsv1alpha1.RecordCNAME, []string{host})
	}
	return out
}

func texts(addresses []netip.Addr) (out []string) {
	for _, a := range bounded(slices.Clone(addresses), netip.Addr.Compare, len(addresses)) {
		out = append(out, a.String())
	}
	return out
}

// bounded sorts a list, removes duplicates and returns at most limit of it.
func bounded[E comparable](list []E, compare func(a, b E) int, limit int) []E {
	slices.SortFunc(list, compare)
	list = slices.Compact(list)
	return list[:min(len(list), limit)]
}

// clusters returns the clusters that the slices state, sorted by ID. It leaves out what X8 does.
func clusters(list []discoveryv1.EndpointSlice) []cluster {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	byID := map[string]*cluster{}
	for i := range list {
		slice := &list[i]
		id := slice.Labels[mcsv1beta1.LabelSourceCluster]
		if clusterset.CheckID(id) != nil {
			continue
		}
		if byID[id] == nil {
			byID[id] = &cluster{id: id, weight: -1}
		}
		byID[id].add(slice)
	}
	var out []cluster
	for _, c := range byID {
		c.v4 = bounded(c.v4, netip.Addr.Compare, maxTargets)
		c.v6 = bounded(c.v6, netip.Addr.Compare, maxTargets)
		c.hosts = bounded(c.hosts, strings.Compare, maxTargets)
		if len(c.v4)+len(c.v6)+len(c.hosts) > 0 {
			out = append(out, *c)
		}
	}
	slices.SortFunc(out, func(a, b cluster) int { return cmp.Compare(a.id, b.id) })
	return out[:min(len(out), maxClusters)]
}

// add adds what one slice states. Of what slices state differently, the first counts.
func (c *cluster) add(slice *discoveryv1.EndpointSlice) {
	region := slice.Annotations[external.AnnotationRegion]
	if c.region == "" && len(validation.IsDNS1123Label(region)) == 0 {
		c.region = region
	}
	weight, err := strconv.Atoi(slice.Annotations[external.AnnotationWeight])
	if c.weight < 0 && err == nil && weight >= 0 && weight <= maxWeight {
		c.weight = weight
	}
	for _, e := range slice.Endpoints {
		for _, text := range e.Addresses {
			if c.take(slice.AddressType, text) {
				c.up = c.up || e.Conditions.Ready == nil || *e.Conditions.Ready
			}
		}
	}
}

// take adds an address or host name, and returns whether it is of the slice's type.
func (c *cluster) take(of discoveryv1.AddressType, text string) bool {
	addr, err := netip.ParseAddr(strings.TrimSuffix(text, "."))
	switch {
	case of == discoveryv1.AddressTypeFQDN && err != nil:
		host := strings.ToLower(strings.TrimSuffix(text, "."))
		if len(validation.IsDNS1123Subdomain(host)) > 0 {
			return false
		}
		c.hosts = append(c.hosts, host)
	case err != nil || addr.Zone() != "":
		return false
	case of == discoveryv1.AddressTypeIPv4 && addr.Is4():
		c.v4 = append(c.v4, addr)
	case of == discoveryv1.AddressTypeIPv6 && addr.Is6() && !addr.Is4In6():
		c.v6 = append(c.v6, addr)
	default:
		return false
	}
	return true
}
