// Package outside compares what the agent writes for external-dns with what the plugin transfers (F6, X6). Both ask
// the package names, so this tests how the agent reads slices and writes answers, not the rules.
package outside

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/dnsendpoint"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
)

const zone = "example.org"

var shop = types.NamespacedName{Namespace: "eu", Name: "shop"}

// random returns slices of up to five clusters, and the records that the plugin makes of them.
func random(r *rand.Rand) (list []discoveryv1.EndpointSlice, records map[string]names.Record) {
	records = map[string]names.Record{}
	for i := range 1 + r.IntN(5) {
		id := []string{"a", "b", "c.a", "eu", "us"}[i]
		region := []string{"", "eu", "us", "asia"}[r.IntN(4)]
		weight := []int{0, 100, 300}[r.IntN(3)]
		for t, of := range []discoveryv1.AddressType{
			discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN,
		} {
			if r.IntN(2) == 0 {
				continue
			}
			rec := names.Record{Cluster: id, Region: region, Weight: weight, Type: names.Type(t)}
			s := discoveryv1.EndpointSlice{AddressType: of}
			s.Name = external.SliceName(shop.Name, id, of)
			s.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: id}
			s.Annotations = map[string]string{external.AnnotationWeight: strconv.Itoa(weight)}
			if region != "" {
				s.Annotations[external.AnnotationRegion] = region
			}
			up := r.IntN(2) == 0
			rec.Up = up
			for range 1 + r.IntN(3) {
				n := r.IntN(20)
				text := []string{fmt.Sprintf("192.0.2.%d", n), fmt.Sprintf("2001:db8::%x", n),
					fmt.Sprintf("h%d.example.net", n)}[t]
				packed := text + "."
				if addr, err := netip.ParseAddr(text); err == nil {
					packed = string(addr.AsSlice())
				}
				rec.Addrs = append(rec.Addrs, packed)
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{text}, Conditions: discoveryv1.EndpointConditions{Ready: &up},
				})
			}
			slices.Sort(rec.Addrs)
			rec.Addrs = slices.Compact(rec.Addrs)
			records[s.Name], list = rec, append(list, s)
		}
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list, records
}

// transferred is what the plugin transfers of a Service: "name type data" each, sorted.
func transferred(s *names.Service) (out []string) {
	if s == nil {
		return nil
	}
	add := func(name string, c names.Content) {
		for a := range slices.Chunk([]byte(c.V4), 4) {
			addr, _ := netip.AddrFromSlice(a)
			out = append(out, name+" A "+addr.String())
		}
		for a := range slices.Chunk([]byte(c.V6), 16) {
			addr, _ := netip.AddrFromSlice(a)
			out = append(out, name+" AAAA "+addr.String())
		}
		if c.Alias != "" {
			out = append(out, name+" CNAME "+strings.TrimSuffix(c.Alias, "."))
		}
	}
	name := shop.Name + "." + shop.Namespace + "." + zone
	add(name, s.Everyone(""))
	for _, region := range s.Regions() {
		add(region+"."+name, s.Everyone(region))
	}
	for i := range s.Clusters() {
		c := &s.Clusters()[i]
		add(c.ID+"."+name, c.Content())
	}
	slices.Sort(out)
	return out
}

func TestF6DNSEndpointsAreWhatATransferHas(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(20000) {
		list, records := random(rand.New(rand.NewPCG(seed, 0)))
		want := transferred(names.New(shop.Name+"."+shop.Namespace, records))
		var got []string
		for _, e := range dnsendpoint.Records(zone, shop, list) {
			seen[e.RecordType] = true
			for _, target := range e.Targets {
				got = append(got, e.DNSName+" "+e.RecordType+" "+target)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Fatalf("seed %d: of %+v\nDNSEndpoints have\n%s\na transfer has\n%s", seed, records,
				strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if len(seen) != 3 {
		t.Errorf("only records of types %v", seen)
	}
}
