package explain_test

import (
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

func dead(cluster string) coordinationv1.Lease {
	noon := metav1.NewMicroTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	lease := coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{liveness.LabelSource: cluster},
			Annotations: map[string]string{},
		},
	}
	lease.Spec.RenewTime = &noon
	liveness.State{Expired: true, OnExpiry: hubv1alpha1.ExpiryRemove}.Write(lease.Annotations)
	return lease
}

// TestADeadClusterIsTheReason why its endpoints are withheld, not its pods, its agent or the way there.
func TestADeadClusterIsTheReason(t *testing.T) {
	for name, endpoints := range map[string][]discoveryv1.EndpointSlice{"removed": nil,
		"not ready": {slice("west", 0, 2)}} {
		f := member()
		f.Leases = []coordinationv1.Lease{dead("west")}
		f.Slices = append(endpoints, f.Slices[1])
		if r := f.explain(); len(r.Withheld) != 1 || !strings.HasPrefix(r.Withheld[0].Why,
			"the cluster has expired") {
			t.Errorf("%s: %+v", name, r.Withheld)
		}
	}
}

// TestTheMergedTypeDecidesWhatIsSaid of an exporter whose own type lost (C1).
func TestTheMergedTypeDecidesWhatIsSaid(t *testing.T) {
	f := member()
	f.Records[1].Spec.Preference = hubv1alpha1.PreferLocal // east, the oldest: ClusterSetIP
	f.Records = append(f.Records, record("north", 1,
		func(s *hubv1alpha1.ServiceExportRecordSpec) { s.Type = mcsv1beta1.Headless }))
	f.Slices = append(f.Slices, slice("north", 1, 0))
	for _, i := range []int{1, 2} {
		f.Slices[i].Labels[endpoints.LabelStandby] = "true"
	}
	for _, x := range f.explain().Exporters {
		if x.NoTraffic != (x.Cluster != "west") {
			t.Errorf("%+v", x)
		}
	}
	f = member()
	headless(f)
	f.Records[0].Spec.Type = mcsv1beta1.ClusterSetIP // west, the younger
	f.Corefile = ".:53 {\n multicluster {\n prefer local west\n}\n}\n"
	r := f.explain()
	if got := text(&r); strings.Contains(got, "gets the traffic") {
		t.Error(got)
	}
}

// TestFamiliesAreTheImports: what is in effect here; and DNS answers every address of a Headless name (N6).
func TestFamiliesAreTheImports(t *testing.T) {
	f := member()
	for i := range f.Records {
		f.Records[i].Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	f.Import.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	r := f.explain()
	at := slices.IndexFunc(r.Properties, func(p check.Property) bool { return p.Name == "ipFamilies" })
	if r.Properties[at].Value != "IPv4" || len(r.Properties[at].Others) != 2 {
		t.Errorf("%+v", r.Properties[at])
	}
	f = member()
	headless(f)
	f.Records[0].Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	f.Slices[0].AddressType = discoveryv1.AddressTypeIPv6
	f.Slices[0].Endpoints[0].Addresses = []string{"fd00::1"}
	r = f.explain()
	if len(r.Withheld) > 0 || !strings.Contains(text(&r), "AAAA") {
		t.Errorf("%s", text(&r))
	}
}

// TestAPodOfBothFamiliesCountsOnce though it is in a slice of each.
func TestAPodOfBothFamiliesCountsOnce(t *testing.T) {
	f := member()
	six := slice("west", 2, 1)
	six.AddressType = discoveryv1.AddressTypeIPv6
	f.Slices = append(f.Slices, six, slice("west", 0, 1))
	r := f.explain()
	if x := r.Exporters[1]; x.Cluster != "west" || x.Ready != 2 || x.NotReady != 1 {
		t.Errorf("%+v", x)
	}
	if len(r.Withheld) != 1 || r.Withheld[0].What != "1 endpoint" {
		t.Errorf("%+v", r.Withheld)
	}
}
