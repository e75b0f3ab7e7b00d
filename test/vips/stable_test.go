package vips

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestI6TheVIPStaysInEachMode: through a restart of the agent, an outage of the hub, the loss of the derived Service, an import that is
// deleted, an exporter that comes back, a flip to Headless and back, and another mode.
func TestI6TheVIPStaysInEachMode(t *testing.T) {
	for i, c := range []struct {
		mode   ipam.Mode
		blocks []string
		in     []string
		next   ipam.Mode
	}{
		{ipam.ModeShared, nil, []string{"10.96.0.0/16", "fd00:96::/112"}, ipam.ModePreferred},
		{ipam.ModePreferred, []string{"10.230.0.0/24", "fd00:230::/120"}, []string{"10.230.0.0/24", "fd00:230::/120"}, ipam.ModeExclusive},
		{ipam.ModeExclusive, []string{"10.231.0.0/28", "fd00:231::/124"}, []string{"10.231.0.0/28", "fd00:231::/124"}, ipam.ModeShared},
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
				given = e.metric(t, e.series("allocations_total", "range", "ordinary"))
			}
			lose()
			still("the derived Service was deleted")
			if c.mode == ipam.ModeShared {
				e.wantMetric(t, e.series("allocations_total", "range", "ordinary"), func(value string) bool {
					n, err := strconv.Atoi(value)
					return err == nil && n >= given+2
				})
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

			in := []string{fmt.Sprintf("10.235.%d.0/28", i), fmt.Sprintf("fd00:235:%d::/124", i+1)} // one of a name that is going is not made again at once
			e.mode(t, c.next, in...)
			lose()
			still("another mode")
			e.export(t, ns, "next", both)
			if c.next == ipam.ModeShared {
				in = []string{"10.96.0.0/16", "fd00:96::/112"}
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
	if err := e.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: svc.Name}}); err != nil {
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

// TestV2AnotherModeOnTheSameBlocks, which is what an admin gets who changes nothing but the mode: VIPs stay, new ones come from a range of the
// new mode beside or instead of the old one.
func TestV2AnotherModeOnTheSameBlocks(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	blocks := []string{"10.236.0.0/28", "fd00:236::/124"}
	vips := map[string][]netip.Addr{}
	for i, mode := range []ipam.Mode{ipam.ModePreferred, ipam.ModeExclusive, ipam.ModePreferred} {
		e.mode(t, mode, blocks...)
		name := fmt.Sprint("web-", i)
		e.export(t, ns, name, both)
		vips[name] = e.wantVIPs(t, ns, name, both)
		wantIn(t, vips[name], blocks...)
		for _, b := range blocks {
			e.wantUse(t, b, map[ipam.Mode]ipam.Use{ipam.ModePreferred: ipam.Shared, ipam.ModeExclusive: ipam.Exclusive}[mode])
		}
		for name, was := range vips {
			if now := e.wantVIPs(t, ns, name, both); !slices.Equal(now, was) {
				t.Fatalf("mode %s moved %s from %v to %v", mode, name, was, now)
			}
		}
	}
}

// wantUse waits until a ServiceCIDR of ours with this prefix is ready for this use.
func (e *env) wantUse(t *testing.T, prefix string, use ipam.Use) {
	t.Helper()
	eventually(t, string(use)+" ServiceCIDR of "+prefix, func() error {
		var list networkingv1.ServiceCIDRList
		if err := e.List(t.Context(), &list, client.MatchingLabels{derived.LabelManagedBy: kube.Manager}); err != nil {
			return err
		}
		for i := range list.Items {
			ranges, err := ipam.Ranges(&list.Items[i])
			if err == nil && len(ranges) == 1 && ranges[0].Prefix.String() == prefix && ranges[0].Use == use && ranges[0].State == ipam.Ready {
				return nil
			}
		}
		return fmt.Errorf("there is none among %d", len(list.Items))
	})
}
