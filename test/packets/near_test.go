package packets

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestTrafficStaysInItsZoneAcrossClusters (C6, S2): a and c are in one zone, b in another. A zone that has lost its
// backends is served
// by the other.
func TestTrafficStaysInItsZoneAcrossClusters(t *testing.T) {
	w, ns := clusters(t)
	near := service(ns, tcp("http", 80))
	zone := corev1.ServiceTrafficDistributionPreferSameZone
	near.Spec.TrafficDistribution = &zone
	w.a.exports(t, near.DeepCopy(), "a1", "a2")
	w.b.exports(t, near.DeepCopy(), "b1")
	vips := map[*cluster][]netip.AddrPort{}
	for _, c := range w.clusters {
		vips[c] = c.asked(t, ns, 80, "a", "b")
	}
	expect := func(want ...[]string) {
		t.Helper()
		for i, c := range w.clusters {
			for _, vip := range vips[c] {
				c.wantAnswers(t, "tcp", vip, want[i]...)
			}
		}
	}
	east, west := []string{"a1:8080", "a2:8080"}, []string{"b1:8080"}
	expect(east, west, east)
	w.a.unexports(t, near)
	expect(west, west, west)
	w.a.create(t, export(near))
	expect(east, west, east)
	w.c.exports(t, near.DeepCopy(), "c1")
	both := []string{"a1:8080", "a2:8080", "c1:8080"}
	expect(both, west, both)
}

// TestLocalTrafficStaysInItsCluster (C6, S2): with internalTrafficPolicy Local a pod reaches the backends of its
// own node. Another
// cluster's node of the same name is not its own.
func TestLocalTrafficStaysInItsCluster(t *testing.T) {
	w, ns := clusters(t)
	local := service(ns, tcp("http", 80))
	policy := corev1.ServiceInternalTrafficPolicyLocal
	local.Spec.InternalTrafficPolicy = &policy
	w.a.exports(t, local.DeepCopy(), "a1", "a2")
	w.b.exports(t, local.DeepCopy(), "b1")
	for c, want := range map[*cluster][]string{w.a: {"a1:8080", "a2:8080"}, w.b: {"b1:8080"}} {
		for _, vip := range c.asked(t, ns, 80, "a", "b") {
			c.wantAnswers(t, "tcp", vip, want...)
		}
	}
}
