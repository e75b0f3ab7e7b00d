package packets

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// TestC7ExportersDisagreeAboutFamilies (C7, C9, I3): the import has what its exporters have in common. Where one
// has nothing in common with those before it, no family reaches all backends, and all of them are told. The VIP of
// the family that is left over is given up by nobody: its clients are answered throughout, and it is back in its
// place, the oldest's, once the exporters that are left have it.
func TestC7ExportersDisagreeAboutFamilies(t *testing.T) {
	w, ns := clusters(t)
	sixFirst := service(ns, tcp("http", 80))
	sixFirst.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	w.a.exports(t, sixFirst, "a1", "a2")
	own, withB, withC := []string{
		"a1:8080",
		"a2:8080",
	}, []string{
		"a1:8080",
		"a2:8080",
		"b1:8080",
	}, []string{
		"a1:8080",
		"a2:8080",
		"c1:8080",
	}
	v4, v6 := map[*cluster]netip.AddrPort{}, map[*cluster]netip.AddrPort{}
	wantAnswers := func(four, six []string) {
		t.Helper()
		for _, c := range w.clusters {
			c.wantAnswers(t, "tcp", v4[c], four...)
			c.wantAnswers(t, "tcp", v6[c], six...)
		}
	}
	wantVIPs := func(order []map[*cluster]netip.AddrPort, exporters ...string) {
		t.Helper()
		for _, c := range w.clusters {
			var vips []netip.Addr
			for _, v := range order {
				vips = append(vips, v[c].Addr())
			}
			c.wantVIPs(t, ns, exporters, vips...)
		}
	}
	both, common := []map[*cluster]netip.AddrPort{v6, v4}, []map[*cluster]netip.AddrPort{v4}
	r := newRecord(t)
	for _, c := range w.clusters {
		vips := c.asked(t, ns, 80, "a")
		v4[c], v6[c] = vips[0], vips[1]
	}
	wantVIPs(both, "a")
	wantAnswers(own, own)
	for _, c := range w.clusters {
		r.renewed(c, "tcp", v4[c])
		r.renewed(c, "tcp", v6[c])
	}

	// single exports a Service of one family, which is its cluster's slice of that number.
	single := func(c *cluster, family corev1.IPFamily, slice int, backend string) *corev1.Service {
		t.Helper()
		svc, policy := service(ns, tcp("http", 80)), corev1.IPFamilyPolicySingleStack
		svc.Spec.IPFamilyPolicy, svc.Spec.IPFamilies = &policy, []corev1.IPFamily{family}
		c.create(t, svc)
		c.create(t, c.endpoints(svc, backend)[slice], export(svc))
		return svc
	}
	fourOnly := single(w.b, corev1.IPv4Protocol, 0, "b1")
	wantVIPs(common, "a", "b")
	wantAnswers(withB, own)
	sixOnly := single(w.c, corev1.IPv6Protocol, 1, "c1")
	wantVIPs(common, "a", "b", "c")
	wantAnswers(withB, withC)
	for _, c := range w.clusters {
		c.wantConflict(t, ns, string(mcsv1beta1.ServiceExportReasonIPFamilyConflict))
	}

	w.b.unexports(t, fourOnly)
	w.c.unexports(t, sixOnly)
	wantVIPs(both, "a")
	wantAnswers(own, own)
	if failed := r.stop(); len(failed) > 0 {
		t.Errorf("%d attempts failed", len(failed))
	}
}

// wantVIPs waits until the import from these exporters has these VIPs and their families, in this order.
func (c *cluster) wantVIPs(t *testing.T, namespace string, exporters []string, vips ...netip.Addr) {
	t.Helper()
	var ips []string
	var families []corev1.IPFamily
	for _, v := range vips {
		family := corev1.IPv6Protocol
		if v.Is4() {
			family = corev1.IPv4Protocol
		}
		ips, families = append(ips, v.String()), append(families, family)
	}
	eventually(t, fmt.Sprintf("%s: the import's VIPs are %v", c.ID, ips), func() error {
		if imp := c.imported(
			t,
			namespace,
			exporters...); !slices.Equal(imp.Spec.IPs, ips) ||
			!slices.Equal(imp.Spec.IPFamilies, families) {
			return fmt.Errorf("%v %v, want %v %v", imp.Spec.IPs, imp.Spec.IPFamilies, ips, families)
		}
		return nil
	})
}
