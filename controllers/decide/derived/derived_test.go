package derived

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

const (
	v4 = corev1.IPv4Protocol
	v6 = corev1.IPv6Protocol
)

func merged() *conflict.Merged {
	return &conflict.Merged{
		Type:                  mcsv1beta1.ClusterSetIP,
		Ports:                 []clusterset.Port{{Name: "http", Protocol: "TCP", Number: 80, AppProtocol: "http"}},
		SessionAffinity:       corev1.ServiceAffinityClientIP,
		InternalTrafficPolicy: corev1.ServiceInternalTrafficPolicyLocal,
		TrafficDistribution:   corev1.ServiceTrafficDistributionPreferClose,
	}
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// TestNameIsFixed: others build on it (DESIGN §11). The value was computed with sha256sum and basenc.
func TestNameIsFixed(t *testing.T) {
	if got := Name("shop", "web"); got != "derived-isrlchlhrq" {
		t.Errorf("derived Service of shop/web: %s", got)
	}
	if Name("a-b", "c") == Name("a", "b-c") {
		t.Error("a-b/c and a/b-c have one derived Service")
	}
}

// TestFamiliesAreOnlyAdded: the primary family stays, and none is given up (C7, I6).
func TestFamiliesAreOnlyAdded(t *testing.T) {
	svc := Service("shop", "web", "m", merged(), []corev1.IPFamily{v4}, nil, nil)
	if *svc.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack ||
		!slices.Equal(svc.Spec.IPFamilies, []corev1.IPFamily{v4}) {
		t.Errorf("%+v", svc.Spec)
	}
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1"}
	before := svc.DeepCopy()
	both := Service("shop", "web", "m", merged(), []corev1.IPFamily{v6, v4}, svc, nil)
	if *both.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyRequireDualStack ||
		!slices.Equal(both.Spec.IPFamilies, []corev1.IPFamily{v4, v6}) ||
		both.Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("%+v", both.Spec)
	}
	if !equality.Semantic.DeepEqual(before, svc) {
		t.Error("the existing Service was changed")
	}
	both.Spec.ClusterIPs = append(both.Spec.ClusterIPs, "fd00::1")
	one := Service("shop", "web", "m", merged(), []corev1.IPFamily{v6}, both, nil)
	if len(one.Spec.IPFamilies) != 2 || !slices.Equal(IPs(one, []corev1.IPFamily{v6}), []string{"fd00::1"}) {
		t.Errorf("%+v", one.Spec)
	}
	if got := IPs(both, []corev1.IPFamily{v6, v4}); !slices.Equal(got, []string{"fd00::1", "10.0.0.1"}) {
		t.Errorf("IPs %v, want them in the import's order (I3)", got)
	}
	if got := IPs(before, []corev1.IPFamily{v4, v6}); got != nil {
		t.Errorf("IPs %v before the API server has given both", got)
	}
}

// TestI9EditsArePutRight: whatever a user writes into the spec goes, and the VIP stays.
func TestI9EditsArePutRight(t *testing.T) {
	good := Service("shop", "web", "m", merged(), []corev1.IPFamily{v4}, nil, addrs("10.0.0.1"))
	if good.Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("a Service made again asks for %q, want its VIP", good.Spec.ClusterIP)
	}
	edited := good.DeepCopy()
	edited.Labels = map[string]string{LabelServiceProxy: "none", "user": "s"} // kube-proxy ignores it
	edited.Annotations = map[string]string{"user": "s"}
	edited.Spec.Selector = map[string]string{"app": "x"}
	edited.Spec.ExternalIPs = []string{"192.0.2.1"}
	edited.Spec.Ports[0].Port = 81
	edited.Spec.Type = corev1.ServiceTypeLoadBalancer
	edited.Spec.SessionAffinity = corev1.ServiceAffinityNone
	repaired := Service("shop", "web", "m", merged(), []corev1.IPFamily{v4}, edited, nil)
	if !equality.Semantic.DeepEqual(repaired.Spec, good.Spec) || repaired.Annotations["user"] != "s" ||
		!maps.Equal(repaired.Labels, map[string]string{LabelManagedBy: "m", "user": "s"}) {
		t.Errorf("%+v", repaired)
	}
	if !Same(good, good.DeepCopy()) || Same(repaired, edited) {
		t.Error("Same does not tell")
	}
}

// TestC9PortsKeepTheirNames: kube-proxy's name of a port does not depend on what exporters call it.
func TestC9PortsKeepTheirNames(t *testing.T) {
	for _, name := range []string{"http", "web", "", "tcp-81", "clusterset-tcp-81"} {
		m := merged()
		m.Ports[0].Name = name
		got := Service("shop", "web", "m", m, []corev1.IPFamily{v4}, nil, nil).Spec.Ports[0].Name
		if got != "clusterset-tcp-80" {
			t.Errorf("port %q is called %q, want clusterset-tcp-80", name, got)
		}
	}
}

// TestNamed: of names that begin like one, those that cannot be one are not.
func TestNamed(t *testing.T) {
	for name, want := range map[string]bool{
		Name("shop", "web"): true, "derived-collection": true, "derived-": false, "derived-web": false,
		"derived-01234567890": false, "derived-012345678-": false, "derived-012345678z": false, "web": false,
	} {
		if Named(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// TestQuarantine: an unused VIP is kept for Quarantine from the date on it, and a Service that comes into use again
// bears none.
func TestQuarantine(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	svc := Service("shop", "web", "m", merged(), []corev1.IPFamily{v4}, nil, nil)
	if _, dated := QuarantineLeft(svc, now); dated {
		t.Error("a Service in use is dated")
	}
	svc.Annotations[AnnotationUnusedSince] = now.Format(time.RFC3339)
	if left, dated := QuarantineLeft(svc, now.Add(Quarantine-time.Second)); !dated || left != time.Second {
		t.Errorf("left %v", left)
	}
	if left, _ := QuarantineLeft(svc, now.Add(Quarantine)); left > 0 {
		t.Errorf("left %v", left)
	}
	if again := Service(
		"shop", "web", "m", merged(), []corev1.IPFamily{v4}, svc, nil,
	); again.Annotations[AnnotationUnusedSince] != "" {
		t.Error("in use, and still dated")
	}
}

// TestI6KnownVIPsAreAskedForFamilyByFamily: the Service that is made again begins with the family whose address the
// import had.
func TestI6KnownVIPsAreAskedForFamilyByFamily(t *testing.T) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	for _, c := range []struct {
		previous []string
		families []corev1.IPFamily
		ips      []string
		order    []corev1.IPFamily
	}{
		{nil, []corev1.IPFamily{v6, v4}, nil, []corev1.IPFamily{v6, v4}},
		{[]string{"10.96.0.8"}, []corev1.IPFamily{v6, v4}, []string{"10.96.0.8"}, []corev1.IPFamily{v4, v6}},
		{[]string{"fd00::8", "10.96.0.8"}, []corev1.IPFamily{v4}, []string{"fd00::8", "10.96.0.8"},
			[]corev1.IPFamily{v6, v4}},
		{[]string{"10.96.0.8", "fd00::8"}, []corev1.IPFamily{v6, v4}, []string{"10.96.0.8", "fd00::8"},
			[]corev1.IPFamily{v4, v6}},
		{[]string{"10.96.0.8"}, []corev1.IPFamily{v6}, []string{"10.96.0.8"}, []corev1.IPFamily{v4, v6}},
	} {
		svc := Service("shop", "web", "m", merged(), c.families, nil, addrs(c.previous...))
		if !slices.Equal(svc.Spec.ClusterIPs, c.ips) || !slices.Equal(svc.Spec.IPFamilies, c.order) ||
			len(c.ips) > 0 && svc.Spec.ClusterIP != c.ips[0] {
			t.Errorf(
				"previous %v, families %v: %v %v", c.previous, c.families, svc.Spec.ClusterIPs, svc.Spec.IPFamilies,
			)
		}
	}
}
