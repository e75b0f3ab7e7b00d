package kube

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
)

// TestOnlyOwnEndpointsHaveASource: what other clusters serve is not exported again, whoever brought it here.
func TestOnlyOwnEndpointsHaveASource(t *testing.T) {
	service := derived.Name("shop", "web")
	imported := endpoints.SliceName(service, endpoints.SourceName(0, "b"), discoveryv1.AddressTypeIPv4)
	for _, c := range []struct {
		what, name string
		labels     map[string]string
		want       string
	}{
		{"of this cluster", "web-1", map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}, "web"},
		{"of this cluster, with a label of its Service", "web-2", map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			mcsv1beta1.LabelSourceCluster: "b",
		}, "web"},
		{"of this cluster, with labels of the MCS API of its Service", "web-3", map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: "b",
		}, "web"},
		{"imported", imported, endpoints.Labels("web", service, "b", Manager), ""},
		{"imported, without labels", imported, nil, service},
		{"imported by another program", "web-b", map[string]string{
			mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: "b",
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "lighthouse",
		}, ""},
		{"synchronised by Cilium's Cluster Mesh", "web-b-1", map[string]string{
			discoveryv1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: "b",
			discoveryv1.LabelManagedBy: "endpointslice-mesh-controller.cilium.io",
		}, ""},
		{"of no Service", "web-1", nil, ""},
	} {
		slice := &discoveryv1.EndpointSlice{}
		slice.Namespace, slice.Name, slice.Labels = "shop", c.name, c.labels
		if got := SourceOf(slice); got.Name != c.want {
			t.Errorf("%s: a slice of %q, want %q", c.what, got.Name, c.want)
		}
	}
}
