package vips

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// TestCAFullRangeIsToldAndRecovers: a condition and an Event, other imports and other families go on, and room ends it without help: a
// block, or a range by hand.
func TestCAFullRangeIsToldAndRecovers(t *testing.T) {
	for i, c := range []struct {
		mode       ipam.Mode
		first, six string
		room       func(*env)
	}{
		{ipam.ModeExclusive, "10.214.0.0/30", "fd00:214::/124", func(e *env) { e.mode(t, ipam.ModeExclusive, "10.214.0.0/30", "10.214.0.8/29", "fd00:214::/124") }},
		{ipam.ModeExclusive, "10.215.0.0/30", "fd00:215::/124", func(e *env) {
			e.create(t, cidr("by-hand", ipam.Exclusive, "10.215.0.8/29"))
		}},
	} {
		t.Run([]string{"a block", "a range by hand"}[i], func(t *testing.T) {
			e := start(t)
			ns := e.namespace(t)
			e.mode(t, c.mode, c.first, c.six)
			e.wantRange(t, c.first)
			e.wantRange(t, c.six)
			had := map[string]string{}
			for _, name := range []string{"one", "two"} { // a /30 has two
				e.export(t, ns, name, v4)
				had[name] = e.wantVIPs(t, ns, name, v4)[0].String()
			}
			refused := e.metric(t, e.series("errors_total", "range", "IPv4", "reason", "full"))
			e.export(t, ns, "three", both)
			e.wantFull(t, ns, "three")
			e.wantMetric(t, e.series("errors_total", "range", "IPv4", "reason", "full"), func(value string) bool {
				n, err := strconv.Atoi(value)
				return err == nil && n > refused
			})
			eventually(t, "the other family", func() error {
				imp, err := e.imported(t.Context(), ns, "three")
				if err == nil && (len(imp.Spec.IPs) != 1 || len(imp.Spec.IPFamilies) != 1 || imp.Spec.IPFamilies[0] != v6[0]) {
					err = fmt.Errorf("%v %v", imp.Spec.IPs, imp.Spec.IPFamilies)
				}
				return err
			})
			e.export(t, ns, "six", v6)
			e.wantVIPs(t, ns, "six", v6)
			c.room(e)
			wantIn(t, e.wantVIPs(t, ns, "three", both)[:1], "10.214.0.8/29", "10.215.0.8/29")
			for name, vip := range had {
				if now := e.wantVIPs(t, ns, name, v4)[0].String(); now != vip {
					t.Errorf("%s moved from %s to %s", name, vip, now)
				}
			}
		})
	}
}

// TestCAFullIPv6RangeIsToldAndRecovers: in mode exclusive, and IPv4 is not concerned.
func TestCAFullIPv6RangeIsToldAndRecovers(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	const four, six, room = "10.218.0.0/28", "fd00:218::/126", "fd00:218::8/125"
	e.mode(t, ipam.ModeExclusive, four, six)
	e.wantRange(t, four)
	e.wantRange(t, six)
	had := map[string]netip.Addr{}
	for range ipam.Addresses(netip.MustParsePrefix(six)) {
		name := fmt.Sprint("six-", len(had))
		e.export(t, ns, name, v6)
		had[name] = e.wantVIPs(t, ns, name, v6)[0]
		wantIn(t, []netip.Addr{had[name]}, six)
	}
	e.export(t, ns, "over", v6)
	e.wantFull(t, ns, "over")
	e.wantMetric(t, e.series("range_available", "range", six), is("0"))
	e.wantMetric(t, e.series("range_allocated", "range", six), is(strconv.Itoa(len(had))))
	e.export(t, ns, "both", both)
	e.wantFull(t, ns, "both")
	eventually(t, "the other family", func() error {
		imp, err := e.imported(t.Context(), ns, "both")
		if err == nil && (len(imp.Spec.IPs) != 1 || !netip.MustParsePrefix(four).Contains(netip.MustParseAddr(imp.Spec.IPs[0]))) {
			err = fmt.Errorf("%v", imp.Spec.IPs)
		}
		return err
	})
	e.export(t, ns, "four", v4)
	wantIn(t, e.wantVIPs(t, ns, "four", v4), four)
	e.mode(t, ipam.ModeExclusive, four, six, room)
	wantIn(t, e.wantVIPs(t, ns, "over", v6), room)
	wantIn(t, e.wantVIPs(t, ns, "both", both), four, room)
	for name, vip := range had {
		if now := e.wantVIPs(t, ns, name, v6)[0]; now != vip {
			t.Errorf("%s moved from %s to %s", name, vip, now)
		}
	}
}

// TestCFullPreferredRangesAreTold: VIPs of each family come from the cluster's own ranges then, and of the next block once there is one.
func TestCFullPreferredRangesAreTold(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	for name, families := range map[string][]corev1.IPFamily{"four-0": v4, "four-1": v4, "six": v6, "over": both, "next": both} {
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

// TestCAFullClusterIsToldAndRecovers: in modes shared and preferred the API server has the last word; an IPv6 range gives a cluster of IPv4
// no room.
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

// wantFull waits until an import says that there is no room for it.
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
