package packets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
)

// readyAre makes these backends of the cluster ready, and all others of it not.
func (c *cluster) readyAre(t *testing.T, namespace string, names ...string) {
	t.Helper()
	for _, slice := range []string{"web-ipv4", "web-ipv6"} {
		eventually(t, c.ID+": readiness", func() error {
			var s discoveryv1.EndpointSlice
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: slice}, &s); err != nil {
				return err
			}
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				is := slices.ContainsFunc(names, func(name string) bool {
					p := c.backends[name]
					return e.Addresses[0] == p.v4.String() || e.Addresses[0] == p.v6.String()
				})
				e.Conditions.Ready, e.Conditions.Serving = &is, &is
			}
			return c.Update(t.Context(), &s)
		})
	}
}

// regions puts a and b into eu, and c into us, until the end of the test.
func (w *world) regions(t *testing.T) {
	t.Helper()
	for c, region := range map[*cluster]string{w.a: "eu", w.b: "eu", w.c: "us"} {
		p := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: "region"}}
		p.Spec.Value = region
		c.create(t, p)
		t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), p) })
	}
}

// prefer sets the annotations of the cluster's export of web.
func (c *cluster) prefer(t *testing.T, namespace string, annotations map[string]string) {
	t.Helper()
	eventually(t, c.ID+": annotations of the ServiceExport", func() error {
		e := &mcsv1beta1.ServiceExport{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, e); err != nil {
			return err
		}
		e.Annotations = annotations
		return c.Update(t.Context(), e)
	})
}

// TestT2OrderOfClusters: the first tier with enough ready endpoints carries the traffic of each cluster. It changes
// without a failed connection while endpoints drain, returns after 10 s, and a list without any fails closed.
func TestT2OrderOfClusters(t *testing.T) {
	w, ns := clusters(t)
	w.regions(t)
	svc := service(ns, tcp("http", 80))
	vip := map[*cluster]netip.AddrPort{}
	for _, c := range w.clusters {
		c.create(t, svc.DeepCopy())
		c.create(t, c.endpoints(svc, c.ID+"1", c.ID+"2")...)
		e := export(svc)
		e.Annotations = map[string]string{
			preference: "local, same:region, any", "clusterset-dns.io/preference-min-ready": "2",
		}
		c.create(t, e)
	}
	for _, c := range w.clusters {
		v4, _ := c.vips(t, ns, "a", "b", "c")
		vip[c] = netip.AddrPortFrom(v4, 80)
		c.wantAnswers(t, "tcp", vip[c], c.ID+"1:8080", c.ID+"2:8080")
	}
	asking := newRecord(t)
	for _, c := range w.clusters {
		asking.renewed(c, "tcp", vip[c])
	}
	asking.more(20)

	w.a.readyAre(t, ns, "a2") // too few: those of the region help
	w.a.wantAnswers(t, "tcp", vip[w.a], "a2:8080", "b1:8080", "b2:8080")
	w.b.wantAnswers(t, "tcp", vip[w.b], "b1:8080", "b2:8080")
	w.b.readyAre(t, ns) // too few in the region
	for _, c := range []*cluster{w.a, w.b} {
		c.wantAnswers(t, "tcp", vip[c], "a2:8080", "c1:8080", "c2:8080")
	}
	w.c.wantAnswers(t, "tcp", vip[w.c], "c1:8080", "c2:8080")

	began := time.Now()
	w.a.readyAre(t, ns, "a1", "a2")
	w.b.readyAre(t, ns, "b1", "b2")
	for _, c := range w.clusters {
		c.wantAnswers(t, "tcp", vip[c], c.ID+"1:8080", c.ID+"2:8080")
	}
	back := time.Since(began)
	if back < 10*time.Second {
		t.Errorf("traffic is back after %v, sooner than after 10 s", back)
	}
	asking.more(20)
	if bad := asking.stop(); len(bad) > 0 {
		t.Errorf("%d questions failed while the traffic moved", len(bad))
	}
	figures = append(
		figures,
		fmt.Sprintf("packets: three tiers: back in all clusters after %v", back.Round(time.Millisecond)),
	)

	for _, c := range w.clusters {
		c.prefer(t, ns, map[string]string{preference: "cluster=b"})
	}
	for _, c := range w.clusters {
		c.wantAnswers(t, "tcp", vip[c], "b1:8080", "b2:8080")
	}
	w.b.readyAre(t, ns)
	for _, c := range w.clusters {
		c.wantRefused(t, "tcp", vip[c])
	}
	w.b.readyAre(t, ns, "b1", "b2")
	for _, c := range w.clusters {
		c.prefer(t, ns, map[string]string{preference: "region=us, local"})
	}
	for _, c := range w.clusters {
		c.wantAnswers(t, "tcp", vip[c], "c1:8080", "c2:8080")
	}
	w.c.prefer(t, ns, map[string]string{preference: "local"})
	for _, c := range w.clusters {
		c.wantConflict(t, ns, "PreferenceConflict")
	}
}
