package doctor_test

import (
	"errors"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
)

// outside is a slice for clients outside the clusters.
func outside(cluster string, of discoveryv1.AddressType, address string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{AddressType: of, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}}}
	s.Namespace = "shop"
	s.Labels = map[string]string{external.Label: "web", mcsv1beta1.LabelSourceCluster: cluster}
	return s
}

var inExternal = []planted{
	{"a load balancer without an address", "external-exports", notice, func(f *doctor.Facts) {
		e := mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		e.Status.Conditions = []metav1.Condition{conditions.ValidWithout(errors.New("annotation " +
			"clusterset-dns.io/external: it has no address yet"))}
		f.Exported = []mcsv1beta1.ServiceExport{e}
	}, "ServiceExport shop/web: annotation clusterset-dns.io/external: it has no address yet"},
	{"one cluster has private addresses only", "external-addresses", notice, func(f *doctor.Facts) {
		f.ExternalSlices = []discoveryv1.EndpointSlice{
			outside("east", discoveryv1.AddressTypeIPv4, "192.0.2.1"),
			outside("west", discoveryv1.AddressTypeIPv4, "10.0.0.1"),
			outside("west", discoveryv1.AddressTypeIPv6, "fd00::1"),
		}
	}, "web.shop: clients outside the clusters may get 10.0.0.1, fd00::1 of cluster west, which are private " +
		"addresses; those of east are public"},
	{"carrier-grade address translation", "external-addresses", notice, func(f *doctor.Facts) {
		f.ExternalSlices = []discoveryv1.EndpointSlice{
			outside("east", discoveryv1.AddressTypeFQDN, "lb.example.com"),
			outside("west", discoveryv1.AddressTypeIPv4, "100.64.0.1"),
		}
	}, "100.64.0.1 of cluster west"},
}

// TestPrivateAddressesAloneAreNoFinding: that is a name for clients of a private network.
func TestPrivateAddressesAloneAreNoFinding(t *testing.T) {
	f := sound(t)
	f.ExternalSlices = []discoveryv1.EndpointSlice{
		outside("east", discoveryv1.AddressTypeIPv4, "10.1.0.1"),
		outside("west", discoveryv1.AddressTypeIPv4, "10.2.0.1"),
	}
	r := doctor.Examine(f)
	if all := r.Findings(); len(all) > 0 {
		t.Errorf("%+v", all)
	}
}
