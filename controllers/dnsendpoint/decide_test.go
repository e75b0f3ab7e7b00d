package dnsendpoint

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

const zone = "gslb.example.com"

var shop = types.NamespacedName{Namespace: "eu", Name: "shop"}

// outside returns an external slice of shop. Its type is that of the first address.
func outside(cluster, region string, up bool, addresses ...string) discoveryv1.EndpointSlice {
	of := discoveryv1.AddressTypeFQDN
	if strings.Contains(addresses[0], ":") {
		of = discoveryv1.AddressTypeIPv6
	} else if strings.Trim(addresses[0], ".0123456789") == "" {
		of = discoveryv1.AddressTypeIPv4
	}
	s := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop.Namespace, Name: external.SliceName(shop.Name, cluster, of),
			Labels: map[string]string{
				external.Label: shop.Name, mcsv1beta1.LabelSourceCluster: cluster,
				discoveryv1.LabelManagedBy: kube.Manager,
			},
		},
		AddressType: of,
	}
	if region != "" {
		s.Annotations = map[string]string{external.AnnotationRegion: region}
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &up},
		})
	}
	return s
}

func TestF6X6Records(t *testing.T) {
	typed := func(s discoveryv1.EndpointSlice, of discoveryv1.AddressType) discoveryv1.EndpointSlice {
		s.AddressType, s.Name = of, external.SliceName(shop.Name, s.Labels[mcsv1beta1.LabelSourceCluster], of)
		return s
	}
	weighted := func(s discoveryv1.EndpointSlice, weight string) discoveryv1.EndpointSlice {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[external.AnnotationWeight] = weight
		return s
	}
	many := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("192.0.2.%d", i))
		}
		return out
	}
	type list = []discoveryv1.EndpointSlice
	for name, c := range map[string]struct {
		external list
		want     map[string]string // by name below shop.eu and type
	}{
		"nothing": {nil, map[string]string{}},
		"all clusters that are up, and each one's own": {
			list{
				outside("east", "", true, "192.0.2.2", "192.0.2.1"), outside("east", "", true, "2001:db8::1"),
				outside("west", "", true, "198.51.100.1"), outside("north", "", false, "203.0.113.1"),
			},
			map[string]string{
				" A": "192.0.2.1 192.0.2.2 198.51.100.1", " AAAA": "2001:db8::1",
				"east A": "192.0.2.1 192.0.2.2", "east AAAA": "2001:db8::1",
				"west A": "198.51.100.1", "north A": "203.0.113.1",
			},
		},
		"none is up": {
			list{outside("east", "", false, "192.0.2.1"), outside("west", "", false, "198.51.100.1")},
			map[string]string{
				" A": "192.0.2.1 198.51.100.1", "east A": "192.0.2.1", "west A": "198.51.100.1",
			},
		},
		"a cluster is up if one of its slices has a ready endpoint": {
			list{
				outside("east", "", false, "192.0.2.1"), outside("east", "", true, "2001:db8::1"),
				outside("west", "", false, "198.51.100.1"),
			},
			map[string]string{
				" A": "192.0.2.1", " AAAA": "2001:db8::1", "east A": "192.0.2.1", "east AAAA": "2001:db8::1",
				"west A": "198.51.100.1",
			},
		},
		"a region has those of it that are up": {
			list{
				outside("a", "eu", true, "192.0.2.1"), outside("b", "eu", false, "192.0.2.2"),
				outside("c", "us", true, "198.51.100.1"),
			},
			map[string]string{
				" A": "192.0.2.1 198.51.100.1", "eu A": "192.0.2.1", "us A": "198.51.100.1",
				"a A": "192.0.2.1", "b A": "192.0.2.2", "c A": "198.51.100.1",
			},
		},
		"a region that is down has all others": {
			list{outside("a", "eu", false, "192.0.2.1"), outside("c", "us", true, "198.51.100.1")},
			map[string]string{
				" A": "198.51.100.1", "eu A": "198.51.100.1", "us A": "198.51.100.1",
				"a A": "192.0.2.1", "c A": "198.51.100.1",
			},
		},
		"a label that is both is the cluster": {
			list{outside("eu", "us", true, "192.0.2.1"), outside("us", "eu", true, "198.51.100.1")},
			map[string]string{
				" A": "192.0.2.1 198.51.100.1", "eu A": "192.0.2.1", "us A": "198.51.100.1",
			},
		},
		"the case of a cluster ID does not matter": {
			list{outside("West", "", true, "192.0.2.1")}, map[string]string{" A": "192.0.2.1", "west A": "192.0.2.1"},
		},
		"a cluster ID of two labels": {
			list{outside("a.b", "", true, "192.0.2.1")},
			map[string]string{" A": "192.0.2.1", "a.b A": "192.0.2.1"},
		},
		"host names only: the first of the first cluster": {
			list{outside("b", "", true, "b.lb.example"), outside("a", "", true, "z.lb.example", "Y.lb.example.")},
			map[string]string{
				" CNAME": "y.lb.example", "a CNAME": "y.lb.example", "b CNAME": "b.lb.example",
			},
		},
		"addresses go before host names": {
			list{outside("b", "", true, "192.0.2.1"), outside("a", "", true, "a.lb.example")},
			map[string]string{" A": "192.0.2.1", "a CNAME": "a.lb.example", "b A": "192.0.2.1"},
		},
		"a host name that is up goes before addresses that are not": {
			list{outside("b", "", false, "192.0.2.1"), outside("a", "", true, "a.lb.example")},
			map[string]string{" CNAME": "a.lb.example", "a CNAME": "a.lb.example", "b A": "192.0.2.1"},
		},
		"one address of two clusters": {
			list{outside("a", "", true, "192.0.2.1"), outside("b", "", true, "192.0.2.1")},
			map[string]string{" A": "192.0.2.1", "a A": "192.0.2.1", "b A": "192.0.2.1"},
		},
		"a cluster of weight 0 answers only if there is no other": {
			list{
				weighted(outside("a", "eu", true, "192.0.2.1"), "0"), outside("b", "eu", true, "192.0.2.2"),
				weighted(outside("c", "us", true, "192.0.2.3"), "0"), outside("d", "us", false, "192.0.2.4"),
			},
			map[string]string{
				" A": "192.0.2.2", "eu A": "192.0.2.2", "us A": "192.0.2.3",
				"a A": "192.0.2.1", "b A": "192.0.2.2", "c A": "192.0.2.3", "d A": "192.0.2.4",
			},
		},
		"X8: a wrong weight is the default": {
			list{weighted(outside("a", "", true, "192.0.2.1"), "-0.1"), outside("b", "", true, "192.0.2.2")},
			map[string]string{" A": "192.0.2.1 192.0.2.2", "a A": "192.0.2.1", "b A": "192.0.2.2"},
		},
		"a type that only clusters have that are down": {
			list{outside("a", "", false, "192.0.2.1"), outside("b", "", true, "2001:db8::1")},
			map[string]string{" AAAA": "2001:db8::1", "a A": "192.0.2.1", "b AAAA": "2001:db8::1"},
		},
		"a cluster with addresses has no host name": {
			list{outside("a", "", true, "a.lb.example"), outside("a", "", true, "192.0.2.1")},
			map[string]string{" A": "192.0.2.1", "a A": "192.0.2.1"},
		},
		"X8: wrong cluster IDs, addresses and regions count for nothing": {
			list{
				outside("Not_An_ID", "", true, "192.0.2.9"), outside("a", "not a label", true, "192.0.2.1"),
				typed(outside("b", "", true, "192.0.2.2"), discoveryv1.AddressTypeIPv6),
				typed(outside("c", "", true, "::ffff:192.0.2.3"), discoveryv1.AddressTypeIPv6),
				typed(outside("d", "", true, "not a host"), discoveryv1.AddressTypeFQDN),
				outside("e", "", true, strings.Repeat("e", 64)+".example"),
			},
			map[string]string{" A": "192.0.2.1", "a A": "192.0.2.1"},
		},
		"X8: a cluster is not up by an address that counts for nothing": {
			list{
				outside("a", "", false, "192.0.2.1"), typed(outside("a", "", true, "192.0.2.9"), "IPv6"),
				outside("b", "", true, "192.0.2.2"),
			},
			map[string]string{" A": "192.0.2.2", "a A": "192.0.2.1", "b A": "192.0.2.2"},
		},
		"X8: sixteen addresses": {
			list{outside("a", "", true, many(20)...)},
			map[string]string{" A": strings.Join(many(16), " "), "a A": strings.Join(many(16), " ")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.external)
			for i := range before {
				before[i] = *before[i].DeepCopy()
			}
			got := map[string]string{}
			for _, r := range Records(zone, shop, c.external) {
				below, found := strings.CutSuffix(r.DNSName, "shop.eu."+zone)
				key := strings.TrimSuffix(below, ".") + " " + r.RecordType
				if !found || got[key] != "" || r.RecordTTL != 30 {
					t.Errorf("unexpected %+v", r)
				}
				got[key] = strings.Join(r.Targets, " ")
			}
			sorted := func(texts map[string]string) map[string]string {
				out := maps.Clone(texts)
				for k, v := range out {
					out[k] = strings.Join(slices.Sorted(slices.Values(strings.Fields(v))), " ")
				}
				return out
			}
			if !reflect.DeepEqual(sorted(got), sorted(c.want)) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
			slices.Reverse(c.external)
			again := Records(zone, shop, c.external)
			slices.Reverse(c.external)
			if !reflect.DeepEqual(again, Records(zone, shop, c.external)) {
				t.Error("the order of the slices matters")
			}
			if !reflect.DeepEqual(before, c.external) {
				t.Error("the slices were changed")
			}
		})
	}
}

// TestX5TheNameServerHasItsName: a Service ns in a namespace dns has no records.
func TestX5TheNameServerHasItsName(t *testing.T) {
	s := outside("a", "", true, "192.0.2.1")
	s.Namespace, s.Labels[external.Label] = "dns", "ns"
	ns := types.NamespacedName{Namespace: "dns", Name: "ns"}
	if got := Records(zone, ns, []discoveryv1.EndpointSlice{s}); got != nil {
		t.Errorf("%v", got)
	}
}

func TestX8ClustersAreBounded(t *testing.T) {
	var all []discoveryv1.EndpointSlice
	for i := range 300 {
		all = append(all, outside(fmt.Sprintf("c%03d", i), "", true, fmt.Sprintf("192.0.%d.%d", 2+i/250, i%250)))
	}
	records := Records(zone, shop, all)
	if len(records) != 1+256 || len(records[len(records)-1].Targets) != 256 {
		t.Errorf("%d records, the last is %v", len(records), records[len(records)-1])
	}
}

// TestNamesThatAreTooLongHaveNoRecords: the others of the Service have.
func TestNamesThatAreTooLongHaveNoRecords(t *testing.T) {
	long := strings.Repeat(strings.Repeat("z", 48)+".", 5)[:253-len("shop.eu.")]
	records := Records(long, shop, []discoveryv1.EndpointSlice{outside("a", "", true, "192.0.2.1")})
	if len(records) != 1 || records[0].DNSName != "shop.eu."+long {
		t.Errorf("%v", records)
	}
}
