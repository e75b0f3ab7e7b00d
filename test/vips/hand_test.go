package vips

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// TestV3ARangeInUseIsSwapped: deleting it is held back and says why, until another covers what is in use, a larger or a smaller one. The
// VIPs stay, and can be had again, throughout.
func TestV3ARangeInUseIsSwapped(t *testing.T) {
	type swap struct {
		name, from, into string // into "": the half that the VIP is in
	}
	for _, c := range []struct {
		mode  ipam.Mode
		use   ipam.Use
		swaps []swap
	}{
		{ipam.ModePreferred, ipam.Shared, []swap{{"larger", "10.220.0.0/28", "10.220.0.0/27"}}},
		{ipam.ModeExclusive, ipam.Exclusive, []swap{{"larger", "10.221.0.0/29", "10.221.0.0/28"}, {"smaller", "fd00:222::/124", ""}}},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			e := start(t)
			e.mode(t, c.mode)
			for _, s := range c.swaps {
				ns := e.namespace(t, s.name)
				t.Run(s.name, func(t *testing.T) {
					t.Parallel() // Kubernetes takes ten seconds to delete a ServiceCIDR
					e.swap(t, ns, c.use, s.from, s.into)
				})
			}
		})
	}
}

func (e *env) swap(t *testing.T, ns string, use ipam.Use, first, second string) {
	before, after := "from-"+ns, "into-"+ns
	e.create(t, cidr(before, use, first))
	e.wantMetric(t, e.series("range_available", "range", first), nil)
	families := v4
	if netip.MustParsePrefix(first).Addr().Is6() {
		families = v6
	}
	e.export(t, ns, "web", families)
	vip := e.wantVIPs(t, ns, "web", families)[0]
	wantIn(t, []netip.Addr{vip}, first)
	if second == "" {
		second = netip.PrefixFrom(vip, netip.MustParsePrefix(first).Bits()+1).Masked().String()
	}
	from := e.wantFinalizer(t, before, true)
	if err := e.Delete(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	e.wantEvent(t, "default", before, "VIPRangeHeld", vip.String())
	e.export(t, ns, "meanwhile", families) // what is being deleted gives out nothing
	if use == ipam.Exclusive {
		e.wantNotReady(t, ns, "meanwhile", "being deleted")
	} else {
		wantIn(t, e.wantVIPs(t, ns, "meanwhile", families), "10.96.0.0/16")
	}
	e.create(t, cidr(after, use, second))
	e.wantGone(t, from)
	e.deleteAsAgent(t, derivedOf(ns, "web"))
	e.wantMade(t, ns, "web")
	if now := e.wantVIPs(t, ns, "web", families)[0]; now != vip {
		t.Errorf("it moved from %s to %s", vip, now)
	}
	e.export(t, ns, "new", families)
	wantIn(t, e.wantVIPs(t, ns, "new", families), second)
	if use == ipam.Exclusive {
		wantIn(t, e.wantVIPs(t, ns, "meanwhile", families), second)
	}
}

// TestV2ADrainedRangeGivesOutNothing: the VIPs that must move are listed, and none moves unasked. In mode shared as well, in which the API
// server chooses, that knows of no drain.
func TestV2ADrainedRangeGivesOutNothing(t *testing.T) {
	for _, c := range []struct {
		mode         ipam.Mode
		drain, other string
		others       []string // that new VIPs may come from
	}{
		{ipam.ModePreferred, "10.223.0.0/28", "10.223.0.16/28", []string{"10.223.0.16/28"}},
		{ipam.ModeShared, "10.226.0.0/28", "10.226.0.16/28", []string{"10.226.0.16/28", "10.96.0.0/16"}},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			e := start(t)
			ns := e.namespace(t)
			drain, other := "drain-"+string(c.mode), "other-"+string(c.mode)
			e.mode(t, ipam.ModePreferred)
			e.create(t, cidr(drain, ipam.Shared, c.drain))
			e.wantMetric(t, e.series("range_available", "range", c.drain), nil) // a range by hand is not waited for before it is seen
			e.export(t, ns, "stays", v4)
			vip := e.wantVIPs(t, ns, "stays", v4)[0]
			wantIn(t, []netip.Addr{vip}, c.drain)
			e.create(t, cidr(other, ipam.Shared, c.other))
			if c.mode != ipam.ModePreferred {
				e.mode(t, c.mode)
			}
			e.change(t, drain, func(c *networkingv1.ServiceCIDR) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, ipam.AnnotationDrain, "")
			})
			e.wantEvent(t, "default", drain, "VIPRangeDraining", vip.String()+" ("+ns+"/")
			for i := range 8 {
				name := fmt.Sprint("web-", i)
				e.export(t, ns, name, v4)
				wantIn(t, e.wantVIPs(t, ns, name, v4), c.others...)
			}
			if now := e.wantVIPs(t, ns, "stays", v4)[0]; now != vip {
				t.Errorf("it moved unasked, from %s to %s", vip, now)
			}
			e.deleteAsAgent(t, derivedOf(ns, "stays")) // asked
			eventually(t, "the VIP moves", func() error {
				imp, err := e.imported(t.Context(), ns, "stays")
				if err == nil && slices.Contains(imp.Spec.IPs, vip.String()) {
					err = fmt.Errorf("%v", imp.Spec.IPs)
				}
				return err
			})
			wantIn(t, e.wantVIPs(t, ns, "stays", v4), c.others...)
			e.wantEvent(t, ns, "stays", "VIPLost", vip.String())
			e.wantEvent(t, "default", drain, "VIPRangeDrained", "")
			if err := e.Delete(t.Context(), cidr(drain, ipam.Shared)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is not held by us", func() error { // ordinary Services may be in it
				c := &networkingv1.ServiceCIDR{}
				err := e.Get(t.Context(), client.ObjectKey{Name: drain}, c)
				if err == nil && slices.Contains(c.Finalizers, clusterset.FinalizerVIPs) {
					return fmt.Errorf("%v", c.Finalizers)
				}
				return client.IgnoreNotFound(err)
			})
		})
	}
}

// TestV2NothingLargerThanAFenceIsFenced: a range by hand that is too large says so, and gives out nothing in mode exclusive.
func TestV2NothingLargerThanAFenceIsFenced(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	e.mode(t, ipam.ModeExclusive)
	e.create(t, cidr("large", ipam.Exclusive, "10.224.0.0/23"), cidr("fits", ipam.Exclusive, "10.224.2.0/28"))
	e.wantEvent(t, "default", "large", "VIPRangeTooLarge", "10.224.0.0/23")
	e.export(t, ns, "web", v4)
	wantIn(t, e.wantVIPs(t, ns, "web", v4), "10.224.2.0/28")
	if n := e.reservations(t, "10.224.0.0/23"); n > 0 {
		t.Errorf("%d addresses of it are fenced", n)
	}
}

func (e *env) change(t *testing.T, name string, f func(*networkingv1.ServiceCIDR)) {
	t.Helper()
	c := &networkingv1.ServiceCIDR{}
	eventually(t, "write of "+name, func() error {
		if err := e.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
			return err
		}
		f(c)
		return e.Update(t.Context(), c)
	})
}

// wantFinalizer waits until a range is held, or is not.
func (e *env) wantFinalizer(t *testing.T, name string, held bool) *networkingv1.ServiceCIDR {
	t.Helper()
	c := &networkingv1.ServiceCIDR{}
	eventually(t, "finalizer of "+name, func() error {
		err := e.Get(t.Context(), client.ObjectKey{Name: name}, c)
		if err == nil && slices.Contains(c.Finalizers, clusterset.FinalizerVIPs) != held {
			err = fmt.Errorf("%v", c.Finalizers)
		}
		return err
	})
	return c
}

func (e *env) wantGone(t *testing.T, o client.Object) {
	t.Helper()
	eventually(t, o.GetName()+" is gone", func() error {
		if err := e.Get(t.Context(), client.ObjectKeyFromObject(o), o); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("%v %v %w", o.GetFinalizers(), o.GetDeletionTimestamp(), err)
		}
		return nil
	})
}

// wantMade waits until the derived Service is there.
func (e *env) wantMade(t *testing.T, ns, name string) {
	t.Helper()
	eventually(t, "derived Service of "+ns+"/"+name, func() error {
		svc := derivedOf(ns, name)
		err := e.Get(t.Context(), client.ObjectKeyFromObject(svc), svc)
		if err == nil && svc.DeletionTimestamp != nil {
			err = fmt.Errorf("it is going")
		}
		return err
	})
}

// reservations is how many addresses of a range are fenced.
func (e *env) reservations(t *testing.T, prefix string) (n int) {
	t.Helper()
	var list networkingv1.IPAddressList
	if err := e.List(t.Context(), &list, client.MatchingLabels{networkingv1.LabelManagedBy: "clusterset-controller.clusterset-dns.io"}); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if netip.MustParsePrefix(prefix).Contains(netip.MustParseAddr(list.Items[i].Name)) {
			n++
		}
	}
	return n
}
