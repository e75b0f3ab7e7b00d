package packets

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestSessionAffinityKeepsEachClientAtItsBackendOfWhateverCluster (C5).
func TestSessionAffinityKeepsEachClientAtItsBackendOfWhateverCluster(t *testing.T) {
	w, ns := clusters(t)
	sticky := service(ns, tcp("http", 80))
	sticky.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	w.a.exports(t, sticky, "a1", "a2")
	w.a.imported(t, ns, "a")
	w.b.exports(t, service(ns, tcp("http", 80)), "b1", "b2") // which asks for none, and is younger
	for _, c := range w.clusters {
		for _, vip := range c.asked(t, ns, 80, "a", "b") {
			// Clients that have not asked before, until all backends have one.
			backend := map[netip.Addr]string{}
			reached := map[string]bool{}
			sources := c.pod.sources(vip.Addr())
			source := sources.Addr()
			eventually(t, c.ID+": clients at every backend", func() error {
				source = source.Next()
				if !sources.Contains(source) {
					t.Fatalf(
						"%s: no client of %d got to all backends of %v, only to %v",
						c.ID,
						len(backend),
						vip,
						reached,
					)
				}
				answer, err := c.pod.ask("tcp", source, vip)
				if err != nil {
					return err
				}
				backend[source], reached[answer] = answer, true
				if len(reached) < 4 {
					return fmt.Errorf("only %v", reached)
				}
				return nil
			})
			for range 10 {
				for source, want := range backend {
					if got, err := c.pod.ask("tcp", source, vip); err != nil || got != want {
						t.Fatalf("%s: client %v got %q, %v; it was at %s before", c.ID, source, got, err, want)
					}
				}
			}
		}
	}
}
