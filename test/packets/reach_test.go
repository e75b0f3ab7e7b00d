package packets

import (
	"net/netip"
	"strings"
	"testing"
)

// TestVIPIsReachedFromEveryClusterByBothFamilies: the exporter itself, another exporter, and a cluster that only
// imports.
func TestVIPIsReachedFromEveryClusterByBothFamilies(t *testing.T) {
	w, ns := clusters(t)
	w.a.exports(t, service(ns, tcp("http", 80), udp("dns", 53)), "a1", "a2")
	w.b.exports(t, service(ns, tcp("http", 80), udp("dns", 53)), "b1")
	for _, c := range w.clusters {
		v4, v6 := c.vips(t, ns, "a", "b")
		for _, vip := range []netip.Addr{v4, v6} {
			c.wantAnswers(t, "tcp", netip.AddrPortFrom(vip, 80), "a1:8080", "a2:8080", "b1:8080")
			c.wantAnswers(t, "udp", netip.AddrPortFrom(vip, 53), "a1:8081", "a2:8081", "b1:8081")
		}
	}
}

// TestOnlyExportersGetTraffic: a Service of the same name that is not exported gets none, whoever comes and goes.
func TestOnlyExportersGetTraffic(t *testing.T) {
	w, ns := clusters(t)
	svc := service(ns, tcp("http", 80))
	w.c.create(t, svc.DeepCopy())
	w.c.create(t, w.c.endpoints(svc, "c1", "c2")...)
	w.a.exports(t, svc.DeepCopy(), "a1")
	vips := map[*cluster][]netip.AddrPort{}
	for _, c := range w.clusters {
		vips[c] = c.asked(t, ns, 80, "a")
	}
	expect := func(want ...string) {
		t.Helper()
		for _, c := range w.clusters {
			for _, vip := range vips[c] {
				for answer := range c.wantAnswers(t, "tcp", vip, want...) {
					if strings.HasPrefix(answer, "c") {
						t.Errorf("%s got an answer at %v from %s, which is not exported", c.ID, vip, answer)
					}
				}
			}
		}
	}
	expect("a1:8080")
	w.b.exports(t, svc.DeepCopy(), "b1", "b2")
	expect("a1:8080", "b1:8080", "b2:8080")
	w.a.unexports(t, svc)
	expect("b1:8080", "b2:8080")
	w.b.unexports(t, svc)
	for _, c := range w.clusters {
		for _, vip := range vips[c] {
			c.wantRefused(t, "tcp", vip)
		}
	}
	w.a.create(t, export(svc))
	expect("a1:8080")
}
