package explain_test

import (
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
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
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
}

// TestAnImportWithoutIPHasNoTargets: CoreDNS answers NODATA for its ports, too.
func TestAnImportWithoutIPHasNoTargets(t *testing.T) {
	f := member()
	f.Import.Spec.IPs = nil
	if r := f.explain(); r.Outcome != explain.NoData || len(r.Answers) > 0 {
		t.Errorf("%s: %+v", r.Outcome, r.Answers)
	}
}

// TestExportsToOtherClusters: one of two is named as withheld; without another one, the name does not exist, and the
// remedy says where to change that.
func TestExportsToOtherClusters(t *testing.T) {
	to := func(list string) func(*hubv1alpha1.ServiceExportRecordSpec) {
		return func(s *hubv1alpha1.ServiceExportRecordSpec) { s.ExportTo = list }
	}
	f := member()
	f.Records = []hubv1alpha1.ServiceExportRecord{record("west", 1, nil), record("east", 2, to("cluster=north"))}
	r := f.explain()
	if len(r.Exporters) != 1 || len(r.Withheld) != 1 || len(r.Findings) > 0 ||
		!strings.Contains(text(&r), "it goes to cluster=north only") {
		t.Error(text(&r))
	}

	f.Records, f.Import, f.Slices = f.Records[1:], nil, nil
	if r = f.explain(); len(r.Findings) != 1 || r.Outcome != explain.NameError {
		t.Error(text(&r))
	}
	f.Properties = append(f.Properties, aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: "region"},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: "eu"}})
	f.Records = []hubv1alpha1.ServiceExportRecord{record("east", 2, to("cluster=north,region=eu"))}
	if r = f.explain(); len(r.Exporters) != 1 || len(r.Withheld) != 0 {
		t.Error(text(&r))
	}
}

// TestPreferenceOfTheCorefileIsTold: the order of answers is CoreDNS's own, and the option is shown (T2).
func TestPreferenceOfTheCorefileIsTold(t *testing.T) {
	const east, west = "10.0.101.1 10.0.101.2", "10.0.119.1"
	const none = "10.0.101.1 10.0.119.1 10.0.101.2" // clusters take turns
	for name, c := range map[string]struct{ options, answers, shown string }{
		"none":               {"", none, ""},
		"order":              {"prefer local west", west + " " + east, "prefer local west"},
		"subset":             {"prefer local WEST subset", west, "prefer local WEST subset"},
		"nobody's":           {"prefer local north subset", none, "prefer local north subset"},
		"zone":               {"prefer zone Z2", "10.0.101.2 10.0.101.1 " + west, "prefer zone Z2"},
		"not what it takes":  {"prefer west", none, ""},
		"cluster, then zone": {"prefer local east\nprefer zone z2", "10.0.101.2 10.0.101.1 " + west, "prefer zone z2"},
		"among other options": {"ttl 5\nprefer local west order\nfallthrough", west + " " + east,
			"prefer local west order"},
	} {
		t.Run(name, func(t *testing.T) {
			f := member()
			headless(f)
			zone := "z2"
			f.Slices[1].Endpoints[1].Zone = &zone
			f.Corefile = ".:53 {\n multicluster clusterset.local {\n" + c.options + "\n}\n}\n"
			r := f.explain()
			if got := strings.Join(r.Answers[0].Data, " "); got != c.answers {
				t.Errorf("the answers are %s, want %s", got, c.answers)
			}
			got := strings.Join(strings.Fields(text(&r)), " ")
			if shown := c.shown + " the Corefile here"; strings.Contains(got, "the Corefile here") != (c.shown != "") ||
				c.shown != "" && !strings.Contains(got, shown) {
				t.Errorf("no %q in\n%s", c.shown, text(&r))
			}
		})
	}
}

// TestAClusterWithTrafficInOneFamilyHasTraffic: order is by family, and a dual-stack cluster may serve one alone.
func TestAClusterWithTrafficInOneFamilyHasTraffic(t *testing.T) {
	f := member()
	f.Records[1] = record("east", 2,
		func(s *hubv1alpha1.ServiceExportRecordSpec) { s.Preference = hubv1alpha1.PreferLocal })
	f.Slices[1].Labels[endpoints.LabelStandby] = "true"
	other := slice("east", 2, 0)
	other.Name, other.AddressType = "derived-east-6", discoveryv1.AddressTypeIPv6
	f.Slices = append(f.Slices, other)
	r := f.explain()
	if got := text(&r); strings.Contains(got, "no traffic from the VIP") {
		t.Error(got)
	}
}

// TestWhereAVIPSendsTrafficIsTold by the preference of the oldest export.
func TestWhereAVIPSendsTrafficIsTold(t *testing.T) {
	f := member()
	f.Records[1] = record("east", 2,
		func(s *hubv1alpha1.ServiceExportRecordSpec) { s.Preference = hubv1alpha1.PreferLocal })
	f.Slices[1].Labels[endpoints.LabelStandby] = "true"
	r := f.explain()
	for _, want := range []string{"gets the traffic from the VIP (prefer-local)",
		"no traffic from the VIP"} {
		if !strings.Contains(text(&r), want) {
			t.Errorf("no %q in\n%s", want, text(&r))
		}
	}
	f = member()
	if r := f.explain(); strings.Contains(text(&r), "prefer") {
		t.Errorf("nothing is preferred, and yet:\n%s", text(&r))
	}
}
