package vips

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// TestI6TheVIPStaysInEachMode: through a restart of the agent, an outage of the hub, the loss of the derived Service,
// an import that is
// deleted, an exporter that comes back, a flip to Headless and back, and another mode.
func TestI6TheVIPStaysInEachMode(t *testing.T) {
	for i, c := range []struct {
		mode   ipam.Mode
		blocks []string
		in     []string
		next   ipam.Mode
	}{
		{ipam.ModeShared, nil, []string{"10.96.0.0/16", "fd00:96::/112"}, ipam.ModePreferred},
		{
			ipam.ModePreferred, []string{"10.230.0.0/24", "fd00:230::/120"},
			[]string{"10.230.0.0/24", "fd00:230::/120"}, ipam.ModeShared,
		},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			e := start(t)
			ns := e.namespace(t)
			e.mode(t, c.mode, c.blocks...)
			for _, b := range c.blocks {
				e.wantRange(t, b)
			}
			e.export(t, ns, "web", both)
			vip := e.wantVIPs(t, ns, "web", both)
			wantIn(t, vip, c.in...)
			still := func(what string) {
				t.Helper()
				e.wantMade(t, ns, "web")
				if now := e.wantVIPs(t, ns, "web", both); now[0] != vip[0] || now[1] != vip[1] {
					t.Fatalf("%s: %v became %v", what, vip, now)
				}
			}
			lose := func() { e.deleteAsAgent(t, derivedOf(ns, "web")) }

			given := 0
			if c.mode == ipam.ModeShared { // V6
				given = e.metric(t, e.series("allocation_duration_seconds_count", "range", "ordinary"))
			}
			lose()
			still("the derived Service was deleted")
			if c.mode == ipam.ModeShared {
				e.wantMetric(
					t,
					e.series("allocation_duration_seconds_count", "range", "ordinary"),
					func(value string) bool {
						n, err := strconv.Atoi(value)
						return err == nil && n >= given+2
					},
				)
			}
			imp, err := e.imported(t.Context(), ns, "web")
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Delete(t.Context(), imp); err != nil {
				t.Fatal(err)
			}
			still("the import was deleted")

			e.ToHub.Cut()
			lose()
			still("the derived Service was deleted while the hub was away")
			e.Agent.Kill()
			lose()
			if err := e.Agent.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			still("the agent was restarted without the hub")
			e.export(t, ns, "blind", both)
			wantIn(t, e.wantVIPs(t, ns, "blind", both), c.in...)
			e.ToHub.Restore()

			e.reexport(t, ns, service(ns, "web", both), func() { e.wantNoImport(t, ns, "web") })
			still("its exporter came back")
			headless := service(ns, "web", both)
			headless.Spec.ClusterIP = corev1.ClusterIPNone
			e.reexport(t, ns, headless, func() {})
			e.wantType(t, ns, mcsv1beta1.Headless)
			e.reexport(t, ns, service(ns, "web", both), func() {})
			e.wantType(t, ns, mcsv1beta1.ClusterSetIP)
			still("it was headless for a while")

			in := []string{
				fmt.Sprintf("10.235.%d.0/28", i),
				fmt.Sprintf("fd00:235:%d::/124", i+1),
			} // one of a name that is going is not made again at once
			e.mode(t, c.next, in...)
			lose()
			still("another mode")
			e.export(t, ns, "next", both)
			if c.next == ipam.ModeShared {
				in = append([]string{"10.96.0.0/16", "fd00:96::/112"}, c.blocks...) // they stay while a VIP is in them
			} else {
				e.wantRange(t, in[0])
				e.wantRange(t, in[1])
			}
			wantIn(t, e.wantVIPs(t, ns, "next", both), in...)
		})
	}
}

// deleteAsAgent deletes what the policies let only the agent delete.
func (e *env) deleteAsAgent(t *testing.T, o client.Object) {
	t.Helper()
	if err := e.asAgent.Delete(t.Context(), o); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// reexport deletes an exported Service, and exports another of the name after between.
func (e *env) reexport(t *testing.T, ns string, svc *corev1.Service, between func()) {
	t.Helper()
	if err := e.Delete(
		t.Context(),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: svc.Name}},
	); err != nil {
		t.Fatal(err)
	}
	between()
	e.create(t, svc)
}

func (e *env) wantNoImport(t *testing.T, ns, name string) {
	t.Helper()
	e.wantGone(t, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
}

func (e *env) wantType(t *testing.T, ns string, kind mcsv1beta1.ServiceImportType) {
	t.Helper()
	eventually(t, "type of the import", func() error {
		imp, err := e.imported(t.Context(), ns, "web")
		if err == nil && imp.Spec.Type != kind {
			err = errType(imp.Spec.Type)
		}
		return err
	})
}

type errType mcsv1beta1.ServiceImportType

func (e errType) Error() string { return "it is " + string(e) }
