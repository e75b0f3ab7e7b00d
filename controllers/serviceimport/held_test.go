package serviceimport

import (
	"net/netip"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestS4OwnEndpointsToo: what goes to no other cluster goes to its own neither. What --reserved-cidrs has is its own.
func TestS4OwnEndpointsToo(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for _, address := range []string{"100.100.100.200", "172.20.0.1", "168.63.129.16", "0.1.2.3", "224.0.1.5"} {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	r := Config{Member: kube.Member{
		Cluster: "me", Reserved: []netip.Prefix{netip.MustParsePrefix("172.20.0.0/16")},
	}}
	s := &snapshot{own: clusterset.Place{Cluster: "me"}, native: []*discoveryv1.EndpointSlice{slice}}
	merged := &conflict.Merged{Names: map[string]map[clusterset.PortKey]string{"me": {}}, Clusters: []string{"me"}}
	out := r.sources(s, &exporters{}, nil, merged).sources
	if len(out) != 1 || len(out[0].Native) != 1 || out[0].Native[0].Addresses[0] != "172.20.0.1" {
		t.Errorf("%+v", out)
	}
}

// TestS4HeldEndpointsToo: what the hub no longer shows is held, but not at addresses that no peer may claim by now.
// The slice is the cache's and stays as it is.
func TestS4HeldEndpointsToo(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      "held",
			Labels: map[string]string{
				mcsv1beta1.LabelServiceName:   "web",
				mcsv1beta1.LabelSourceCluster: "a",
				discoveryv1.LabelManagedBy:    kube.Manager,
			},
			Annotations: map[string]string{
				endpoints.AnnotationSource:   "0.a",
				endpoints.AnnotationRevision: "1 1",
				endpoints.AnnotationPorts:    "[]",
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"172.20.0.1"}},
			{Addresses: []string{"10.0.0.1"}},
			{Addresses: []string{"100.100.100.200"}},
		},
	}
	reserved := []netip.Prefix{netip.MustParsePrefix("172.20.0.0/16")}
	r := Config{Member: kube.Member{Cluster: "me", Reserved: reserved}}
	s := &snapshot{name: types.NamespacedName{Namespace: "shop", Name: "web"}} // without a hub
	merged := &conflict.Merged{Names: map[string]map[clusterset.PortKey]string{"a": {}}, Clusters: []string{"a"}}
	found := r.sources(s, &exporters{managed: []*discoveryv1.EndpointSlice{slice}}, nil, merged)
	if out := found.sources; !found.held["a"] || len(out) != 1 || len(out[0].Native) != 1 ||
		out[0].Native[0].Addresses[0] != "10.0.0.1" {
		t.Errorf("held %v: %+v", found.held, out)
	}
	if says := found.lost["a"].Message; !strings.Contains(says, "--reserved-cidrs has") {
		t.Errorf("the user is told %q", says)
	}
	another := slice.DeepCopy() // of the family that the group had before
	another.Name, another.AddressType = "before", discoveryv1.AddressTypeIPv6
	both := &exporters{managed: []*discoveryv1.EndpointSlice{slice, another}}
	if out := r.sources(s, both, nil, merged).sources; len(out) != 2 {
		t.Errorf("of two slices of one group, %d are held", len(out))
	}
	if len(slice.Endpoints) != 3 || slice.Endpoints[0].Addresses[0] != "172.20.0.1" {
		t.Error("the cache's slice was changed")
	}
}
