package packets

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// preference is the annotation of a ServiceExport, and of the ServiceImport (T2).
const preference = "clusterset-dns.io/preference"

// ready sets whether the cluster's own backends are.
func (c *cluster) ready(t *testing.T, namespace string, ready bool) {
	t.Helper()
	for _, name := range []string{"web-ipv4", "web-ipv6"} {
		eventually(t, c.ID+": readiness", func() error {
			var s discoveryv1.EndpointSlice
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &s); err != nil {
				return err
			}
			for i := range s.Endpoints {
				s.Endpoints[i].Conditions.Ready, s.Endpoints[i].Conditions.Serving = &ready, &ready
			}
			return c.Update(t.Context(), &s)
		})
	}
}

// atOnce is what a hand-over may take on a machine that has others to do.
const atOnce = 10 * time.Second

// TestPreferLocalHandsOverAndBack (T2): a cluster with ready backends of its own uses those alone; when the last of them goes unready the
// others take over at once, and hand back, without a question that fails; a cluster without any uses everybody's. With local-only nobody takes over. How long a hand-over
// takes is logged.
func TestPreferLocalHandsOverAndBack(t *testing.T) {
	w, ns := clusters(t)
	svc := service(ns, tcp("http", 80))
	prefers := func(c *cluster, what string, backends ...string) {
		t.Helper()
		c.create(t, svc.DeepCopy())
		c.create(t, c.endpoints(svc, backends...)...)
		e := export(svc)
		e.Annotations = map[string]string{preference: what}
		c.create(t, e)
	}
	prefers(w.a, "prefer-local", "a1", "a2")
	w.a.imported(t, ns, "a")
	prefers(w.b, "prefer-local", "b1")
	vip := map[*cluster]netip.AddrPort{}
	for _, c := range w.clusters {
		v4, v6 := c.vips(t, ns, "a", "b")
		vip[c] = netip.AddrPortFrom(v4, 80)
		if c == w.b {
			vip[c] = netip.AddrPortFrom(v6, 80)
		}
	}
	own, others := []string{"a1:8080", "a2:8080"}, []string{"b1:8080"}
	w.a.wantAnswers(t, "tcp", vip[w.a], own...)
	w.b.wantAnswers(t, "tcp", vip[w.b], others...)
	w.c.wantAnswers(t, "tcp", vip[w.c], "a1:8080", "a2:8080", "b1:8080")

	asking := newRecord(t)
	asking.renewed(w.a, "tcp", vip[w.a])
	asking.more(20)
	var took []time.Duration
	for range 10 {
		for _, ready := range []bool{false, true} {
			began := time.Now()
			w.a.ready(t, ns, ready)
			for want := map[bool]string{false: "b", true: "a"}[ready]; ; {
				if answer, err := w.a.pod.ask("tcp", netip.Addr{}, vip[w.a]); err == nil && strings.HasPrefix(answer, want) {
					break
				} else if time.Since(began) > atOnce {
					t.Fatalf("ready %v: after %v %q, %v", ready, atOnce, answer, err)
				}
			}
			took = append(took, time.Since(began))
			if ready {
				w.a.wantAnswers(t, "tcp", vip[w.a], own...)
			} else {
				w.a.wantAnswers(t, "tcp", vip[w.a], others...)
			}
		}
	}
	asking.more(20)
	if bad := asking.stop(); len(bad) > 0 {
		t.Errorf("%d questions failed while traffic was handed over and back", len(bad))
	}
	slices.Sort(took)
	t.Logf("hand-over, from the write of two slices to the first right answer, of %d: p50 %v, longest %v", len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))

	eventually(t, "the annotation is changed", func() error {
		e := &mcsv1beta1.ServiceExport{}
		if err := w.a.Get(t.Context(), client.ObjectKeyFromObject(export(svc)), e); err != nil {
			return err
		}
		e.Annotations[preference] = "local-only"
		return w.a.Update(t.Context(), e)
	})
	w.c.wantRefused(t, "tcp", vip[w.c])
	w.a.wantAnswers(t, "tcp", vip[w.a], own...)
	if got := w.b.imported(t, ns, "a", "b").Annotations[preference]; got != "local-only" {
		t.Errorf("b's import has the preference %q", got)
	}
	w.a.ready(t, ns, false)
	w.a.wantRefused(t, "tcp", vip[w.a])
	e := &mcsv1beta1.ServiceExport{}
	eventually(t, "b's export is told of the conflict", func() error {
		if err := w.b.Get(t.Context(), client.ObjectKeyFromObject(export(svc)), e); err != nil {
			return err
		}
		for _, c := range e.Status.Conditions {
			if c.Reason == "PreferenceConflict" {
				return nil
			}
		}
		return fmt.Errorf("%+v", e.Status.Conditions)
	})
}
