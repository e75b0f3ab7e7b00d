package packets

import (
	"net/netip"
	"strings"
	"testing"
)

// TestVIPIsReachedFromEveryClusterByBothFamilies: the exporter itself, another exporter, and a cluster that only imports.
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
	vip := map[*cluster]netip.AddrPort{}
	for _, c := range w.clusters {
		v4, _ := c.vips(t, ns, "a")
		vip[c] = netip.AddrPortFrom(v4, 80)
	}
	expect := func(want ...string) {
		t.Helper()
		for _, c := range w.clusters {
			for answer := range c.wantAnswers(t, "tcp", vip[c], want...) {
				if strings.HasPrefix(answer, "c") {
					t.Errorf("%s got an answer from %s, which is not exported", c.ID, answer)
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
		c.wantRefused(t, "tcp", vip[c])
	}
	w.a.create(t, export(svc))
	expect("a1:8080")
}
