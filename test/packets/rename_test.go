package packets

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// TestC3C9PortRenamedByMergeKeepsItsConnections: as the oldest exporters leave one after the other, the next one's
// port names take over. From every cluster, by TCP and UDP, connections of before live on and new ones are taken
// throughout. Who leaves has no backend
// for UDP, so that what is lost would be lost by the renaming; its TCP connections live on after it has left.
func TestC3C9PortRenamedByMergeKeepsItsConnections(t *testing.T) {
	w, ns := clusters(t)
	ports := func(prefix string) *corev1.Service {
		return service(ns, tcp(prefix+"-tcp", 80), udp(prefix+"-udp", 53))
	}
	first, second, last := ports("first"), ports("second"), ports("last")
	w.a.create(t, first)
	w.a.create(t, w.a.endpoints(service(ns, first.Spec.Ports[0]), "a1")...)
	w.a.create(t, export(first))
	w.a.imported(t, ns, "a")
	w.b.exports(t, second)
	w.b.imported(t, ns, "a", "b")
	w.c.exports(t, last, "c1", "c2")

	r := newRecord(t)
	for _, c := range w.clusters {
		v4, v6 := c.vips(t, ns, "a", "b", "c")
		c.wantAnswers(t, "tcp", netip.AddrPortFrom(v4, 80), "a1:8080", "c1:8080", "c2:8080")
		c.wantAnswers(t, "udp", netip.AddrPortFrom(v4, 53), "c1:8081", "c2:8081")
		c.wantAnswers(t, "tcp", netip.AddrPortFrom(v6, 80), "a1:8080", "c1:8080", "c2:8080")
		r.renewed(c, "tcp", netip.AddrPortFrom(v4, 80))
		r.renewed(c, "tcp", netip.AddrPortFrom(v6, 80))
		r.renewed(c, "udp", netip.AddrPortFrom(v4, 53))
		r.lasting(c, "tcp", netip.AddrPortFrom(v4, 80), "a1:8080")
		r.lasting(c, "tcp", netip.AddrPortFrom(v6, 80), "c1:8080")
		r.lasting(c, "udp", netip.AddrPortFrom(v4, 53), "c1:8081")
	}
	r.more(100)
	w.a.unexports(t, first)
	w.renamed(t, ns, "first", "second", "b", "c")
	r.more(100)
	w.b.unexports(t, second)
	w.renamed(t, ns, "second", "last", "c")
	r.more(100)
	if failed := r.stop(); len(failed) > 0 {
		t.Errorf("%d attempts failed", len(failed))
	}
}

// renamed waits until every cluster imports from these exporters under port names with the prefix, nothing has kept
// a name with the
// prefix old, and kube-proxy has caught up.
func (w *world) renamed(t *testing.T, namespace, old, prefix string, exporters ...string) {
	t.Helper()
	for _, c := range w.clusters {
		eventually(t, c.ID+": the import has the new names, and no slice the old ones", func() error {
			var errs []error
			for _, p := range c.imported(t, namespace, exporters...).Spec.Ports {
				if !strings.HasPrefix(p.Name, prefix) {
					errs = append(errs, fmt.Errorf("the import has %s", p.Name))
				}
			}
			var imported discoveryv1.EndpointSliceList
			errs = append(
				errs,
				c.List(
					t.Context(),
					&imported,
					client.InNamespace(namespace),
					client.HasLabels{mcsv1beta1.LabelSourceCluster},
				),
			)
			for _, s := range imported.Items {
				for _, p := range s.Ports {
					if strings.HasPrefix(*p.Name, old) {
						errs = append(errs, fmt.Errorf("%s has %s", s.Name, *p.Name))
					}
				}
			}
			return errors.Join(errs...)
		})
		c.caughtUp(t, namespace, prefix)
	}
}

// caughtUp waits until kube-proxy has seen all that was written so far: it sees Services in their order, and slices
// in theirs, and so
// one more of each comes last.
func (c *cluster) caughtUp(t *testing.T, namespace, name string) {
	t.Helper()
	last := service(namespace, tcp("last", 80))
	last.Name = name
	c.create(t, last)
	c.create(t, c.endpoints(last, c.ID+"1")...)
	for _, ip := range last.Spec.ClusterIPs {
		c.wantAnswers(t, "tcp", netip.AddrPortFrom(netip.MustParseAddr(ip), 80), c.ID+"1:8080")
	}
}

// TestARenamingInTheWrongOrderIsSeen shows that what the test above counts is there to be counted: a Service whose
// port is renamed
// before its slices refuses connections until they are, too.
func TestARenamingInTheWrongOrderIsSeen(t *testing.T) {
	w, ns := clusters(t)
	svc := service(ns, tcp("first", 80))
	w.a.create(t, svc)
	slices := w.a.endpoints(svc, "a1")
	w.a.create(t, slices...)
	vip := netip.AddrPortFrom(netip.MustParseAddr(svc.Spec.ClusterIPs[0]), 80)
	w.a.wantAnswers(t, "tcp", vip, "a1:8080")

	r := newRecord(t)
	r.renewed(w.a, "tcp", vip)
	r.more(10)
	svc.Spec.Ports[0].Name = "second"
	w.a.update(t, svc)
	w.a.wantRefused(t, "tcp", vip)
	renamed := w.a.endpoints(svc, "a1")
	for i := range renamed {
		renamed[i].SetResourceVersion(slices[i].GetResourceVersion())
	}
	w.a.update(t, renamed...)
	w.a.wantAnswers(t, "tcp", vip, "a1:8080")
	failures := r.stop()
	if len(failures) == 0 {
		t.Error("no attempt failed while no slice had the port's name")
	}
	for _, f := range failures {
		if !refused(f.err) {
			t.Errorf("not refused, as it should be at once: %v", f)
		}
	}
}
