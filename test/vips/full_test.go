package vips

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// TestCFullPreferredRangesAreTold: VIPs of each family come from the cluster's own ranges then, and of the next block
// once there is one.
func TestCFullPreferredRangesAreTold(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	for name, families := range map[string][]corev1.IPFamily{
		"four-0": v4, "four-1": v4, "six": v6, "over": both, "next": both,
	} {
		e.create(t, service(ns, name, families)) // before there is a block that they could draw from
	}
	export := func(name string) { e.exportMade(t, ns, name) }
	e.mode(t, ipam.ModePreferred, "10.217.0.0/30", "fd00:217::/127")
	e.wantRange(t, "10.217.0.0/30")
	e.wantRange(t, "fd00:217::/127")
	for i := range 2 {
		export(fmt.Sprint("four-", i))
		wantIn(t, e.wantVIPs(t, ns, fmt.Sprint("four-", i), v4), "10.217.0.0/30")
	}
	export("six")
	wantIn(t, e.wantVIPs(t, ns, "six", v6), "fd00:217::/127")
	export("over")
	wantIn(t, e.wantVIPs(t, ns, "over", both), "10.96.0.0/16", "fd00:96::/112")
	for _, family := range both {
		e.wantEvent(t, "clusterset-system", "clusterset-system", "VIPRangeOverflow", "New VIPs of "+string(family))
	}
	e.mode(t, ipam.ModePreferred, "10.217.0.0/30", "fd00:217::/127", "10.217.0.8/29", "fd00:217::8/125")
	e.wantRange(t, "10.217.0.8/29")
	e.wantRange(t, "fd00:217::8/125")
	export("next")
	wantIn(t, e.wantVIPs(t, ns, "next", both), "10.217.0.8/29", "fd00:217::8/125")
}

// TestCAFullClusterIsToldAndRecovers: in modes shared and preferred the API server has the last word; an IPv6 range
// gives a cluster of IPv4
// no free address.
func TestCAFullClusterIsToldAndRecovers(t *testing.T) {
	for _, mode := range []ipam.Mode{ipam.ModeShared, ipam.ModePreferred} {
		t.Run(string(mode), func(t *testing.T) {
			a := start(t)
			h := a.small(t)
			ns := h.namespace(t)
			a.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
			a.namespaces = append(a.namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
			h.mode(t, mode, "fd00:216::/112")
			a.export(t, ns, "before", both)
			vip := h.wantVIPs(t, ns, "before", v4)
			plain := 0
			for h.Create(t.Context(), service(ns, fmt.Sprint("plain-", plain), v4)) == nil {
				plain++
			}
			if plain < 5 || plain > 13 {
				t.Fatalf("%d ordinary Services fill a /28", plain)
			}
			a.export(t, ns, "web", both)
			h.wantFull(t, ns, "web")
			if now := h.wantVIPs(t, ns, "before", v4); now[0] != vip[0] {
				t.Errorf("%v moved to %v", vip, now)
			}
			h.create(t, cidr("by-hand-"+string(mode), ipam.Shared, "10.216.0.0/28"))
			wantIn(t, h.wantVIPs(t, ns, "web", v4), "10.216.0.0/28")
			if made := h.ours(t); len(made) > 0 {
				t.Errorf("ranges of a family that the cluster has not: %v", made)
			}
		})
	}
}

// wantFull waits until an import says that no address is free for it.
func (e *env) wantFull(t *testing.T, ns, name string) {
	t.Helper()
	eventually(t, "VIPRangeFull of "+ns+"/"+name, func() error {
		imp, err := e.imported(t.Context(), ns, name)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(imp.Status.Conditions, "Ready")
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "VIPRangeFull" {
			return fmt.Errorf("%+v", imp.Status.Conditions)
		}
		return nil
	})
	e.wantEvent(t, ns, name, "VIPRangeFull", "full")
}
