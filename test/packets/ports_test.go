package packets

import (
	"net/netip"
	"testing"
)

// TestConflictingPortReachesOnlyClustersThatExposeIt (C3, C4): a port that both have, under two names; one of each
// alone; and one that
// lost its name to another number.
func TestConflictingPortReachesOnlyClustersThatExposeIt(t *testing.T) {
	w, ns := clusters(t)
	w.a.exports(t, service(ns, tcp("http", 80), tcp("admin", 9090)), "a1")
	w.a.imported(t, ns, "a")
	w.b.exports(t, service(ns, tcp("web", 80), tcp("admin", 9091), tcp("debug", 7070)), "b1")
	for _, c := range w.clusters {
		v4, v6 := c.vips(t, ns, "a", "b")
		for _, vip := range []netip.Addr{v4, v6} {
			c.wantAnswers(t, "tcp", netip.AddrPortFrom(vip, 80), "a1:8080", "b1:8080")
			c.wantAnswers(t, "tcp", netip.AddrPortFrom(vip, 9090), "a1:8081")
			c.wantAnswers(t, "tcp", netip.AddrPortFrom(vip, 7070), "b1:8082")
			c.wantRefused(t, "tcp", netip.AddrPortFrom(vip, 9091))
		}
	}
}
