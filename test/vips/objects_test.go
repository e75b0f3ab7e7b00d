package vips

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// namespace makes one that is the test's own; more tells several apart.
func (e *env) namespace(t *testing.T, more ...string) string {
	t.Helper()
	name := strings.ToLower(
		strings.TrimPrefix(strings.NewReplacer("/", "-", "_", "-", ", ", "-").Replace(t.Name()), "Test"),
	)
	name = strings.Join(append([]string{strings.Trim(name[max(0, len(name)-40):], "-")}, more...), "-")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	e.create(t, ns)
	e.namespaces = append(e.namespaces, ns)
	return name
}

func (e *env) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := e.Create(t.Context(), o); err != nil {
			t.Fatalf("%T %s/%s: %v", o, o.GetNamespace(), o.GetName(), err)
		}
	}
}

// The families of an exported Service.
var (
	v4   = []corev1.IPFamily{corev1.IPv4Protocol}
	v6   = []corev1.IPFamily{corev1.IPv6Protocol}
	both = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
)

// export makes a Service of these families, and exports it.
func (e *env) export(t *testing.T, ns, name string, families []corev1.IPFamily) {
	t.Helper()
	e.create(t, service(ns, name, families))
	e.exportMade(t, ns, name)
}

// exportMade exports a Service that is there. Ordinary Services are made before a range that they may draw from as
// well.
func (e *env) exportMade(t *testing.T, ns, name string) {
	t.Helper()
	e.create(t, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
}

func service(ns, name string, families []corev1.IPFamily) *corev1.Service {
	policy := corev1.IPFamilyPolicySingleStack
	if len(families) > 1 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ServiceSpec{
		IPFamilies:     families,
		IPFamilyPolicy: &policy,
		Ports:          []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
	}}
}

func (e *env) imported(ctx context.Context, ns, name string) (*mcsv1beta1.ServiceImport, error) {
	imp := &mcsv1beta1.ServiceImport{}
	return imp, e.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, imp)
}

// wantVIPs waits until the import is Ready with an address of each family, and returns them.
func (e *env) wantVIPs(t *testing.T, ns, name string, families []corev1.IPFamily) (ips []netip.Addr) {
	t.Helper()
	eventually(t, "VIPs of "+ns+"/"+name, func() error {
		imp, err := e.imported(t.Context(), ns, name)
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(imp.Status.Conditions, "Ready") || len(imp.Spec.IPs) != len(families) {
			return fmt.Errorf("%v %+v", imp.Spec.IPs, imp.Status.Conditions)
		}
		ips = nil
		for i, text := range imp.Spec.IPs {
			a := netip.MustParseAddr(text)
			if a.Is4() != (families[i] == corev1.IPv4Protocol) {
				return fmt.Errorf("%v, want %v", imp.Spec.IPs, families)
			}
			ips = append(ips, a)
		}
		return nil
	})
	return ips
}

// wantIn fails unless every address is in one of the prefixes.
func wantIn(t *testing.T, ips []netip.Addr, prefixes ...string) {
	t.Helper()
	for _, a := range ips {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return netip.MustParsePrefix(p).Contains(a) }) {
			t.Errorf("%v: %s is in none of %v", ips, a, prefixes)
		}
	}
}

func derivedOf(ns, name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: derived.Name(ns, name)}}
}
