package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

func shared(name, p string, state State) Range {
	return Range{Name: name, Prefix: prefix(p), State: state, VIPs: true}
}

func addresses(p string) (out []netip.Addr) {
	for a := prefix(p).Addr(); prefix(p).Contains(a); a = a.Next() {
		out = append(out, a)
	}
	return out
}

// TestPlan: blocks become ranges, another block is asked for in time, and what no VIP needs goes in mode shared.
func TestPlan(t *testing.T) {
	vip := Held{
		Owner:   types.NamespacedName{Namespace: "shop", Name: "derived-web"},
		Address: netip.MustParseAddr("10.1.0.5"),
	}
	block := []netip.Prefix{prefix("10.1.0.0/24")}
	for name, c := range map[string]struct {
		s    Standing
		want string
	}{
		"no block yet": {Standing{Mode: ModePreferred}, "create [] delete [] want 1"},
		"a block": {
			Standing{Mode: ModePreferred, Blocks: block},
			"create [clusterset-vips-shared-10-1-0-0-24] delete [] want 1",
		},
		"a range for it": {
			Standing{Mode: ModePreferred, Blocks: block, Ranges: []Range{shared("x", "10.1.0.0/24", NotReady)}},
			"create [] delete [] want 1",
		},
		"a larger range": {
			Standing{Mode: ModePreferred, Blocks: block, Ranges: []Range{shared("x", "10.1.0.0/16", Ready)}},
			"create [] delete [] want 1",
		},
		"an ordinary one": {
			Standing{Mode: ModePreferred, Blocks: block, Ranges: []Range{{Name: "x", Prefix: prefix("10.1.0.0/16")}}},
			"create [clusterset-vips-shared-10-1-0-0-24] delete [] want 1",
		},
		"its name is used": {
			Standing{
				Mode: ModePreferred, Blocks: block, Ranges: []Range{shared(Name(block[0]), "10.1.0.0/24", Terminating)},
			},
			"create [clusterset-vips-shared-10-1-0-0-24-2] delete [] want 1",
		},
		"a block of IPv6 in a cluster of IPv4": {
			Standing{Mode: ModePreferred, Blocks: []netip.Prefix{prefix("fd00::/112")}}, "create [] delete [] want 1",
		},
		"no pool of its family": {
			Standing{Mode: ModePreferred, Pools: map[corev1.IPFamily]bool{v6: true}}, "create [] delete [] want 0",
		},
		"no pool of its family any more": {
			Standing{
				Mode: ModePreferred, Pools: map[corev1.IPFamily]bool{}, Blocks: []netip.Prefix{prefix("10.1.0.0/28")},
				Ranges: []Range{shared("x", "10.1.0.0/28", Ready)}, Taken: addresses("10.1.0.0/28"),
			},
			"create [] delete [] want 1",
		},
		"nearly full": {Standing{Mode: ModePreferred, Blocks: []netip.Prefix{prefix("10.1.0.0/28")}, Ranges: []Range{
			shared("x", "10.1.0.0/28", Ready),
		},
			Taken: addresses("10.1.0.0/28")[1:13]}, "create [] delete [] want 2"},
		"mode shared, a VIP is in it": {
			Standing{
				Mode: ModeShared, Ours: map[string]bool{"x": true}, Ranges: []Range{shared("x", "10.1.0.0/24", Ready)},
				VIPs: []Held{vip},
			},
			"create [] delete [] want 0",
		},
		"mode shared, none is": {
			Standing{
				Mode: ModeShared, Ours: map[string]bool{"x": true}, Ranges: []Range{shared("x", "10.2.0.0/24", Ready)},
				VIPs: []Held{vip},
			},
			"create [] delete [x] want 0",
		},
		"mode shared, a VIP is in one of its prefixes": {
			Standing{
				Mode: ModeShared, Ours: map[string]bool{"x": true}, VIPs: []Held{vip},
				Ranges: []Range{shared("x", "10.1.0.0/24", Ready), shared("x", "fd00::/112", Ready)},
			},
			"create [] delete [] want 0",
		},
		"mode shared, a user's": {
			Standing{Mode: ModeShared, Ranges: []Range{shared("x", "10.2.0.0/24", Ready)}},
			"create [] delete [] want 0",
		},
		"mode shared, two cover the VIP": {Standing{Mode: ModeShared, Ours: map[string]bool{"x": true, "y": true},
			Ranges: []Range{shared("x", "10.1.0.0/24", Ready), shared("y", "10.1.0.0/25", Ready)}, VIPs: []Held{vip}},
			"create [] delete [x] want 0"},
	} {
		if c.s.Families = []corev1.IPFamily{v4}; c.s.Pools == nil {
			c.s.Pools = map[corev1.IPFamily]bool{v4: true}
		}
		plan := Plan(c.s)
		created := []string{}
		for _, r := range plan.Create {
			created = append(created, r.Name)
		}
		if got := fmt.Sprintf("create %v delete %v want %d", created, plan.Delete, plan.Want[v4]); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	large := Plan(
		Standing{Mode: ModePreferred, Families: []corev1.IPFamily{v6}, Blocks: []netip.Prefix{prefix("fd00::/56")}},
	)
	if len(large.Create) != 1 || large.Create[0].Prefix != prefix("fd00::/64") {
		t.Errorf("a /56: %+v, want its first /64", large.Create)
	}
}

// TestV2BlocksThatNoServiceCIDRIsMadeOf: the hub may be wrong, or taken over.
func TestV2BlocksThatNoServiceCIDRIsMadeOf(t *testing.T) {
	var many []netip.Prefix
	for i := range byte(clusterset.MaxBlocksWanted + 9) {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, i, 0}), 24))
	}
	inUse := []Range{shared("x", "10.244.7.0/24", Ready)}
	for name, c := range map[string]struct {
		blocks  []netip.Prefix
		ranges  []Range
		created int
		says    string
	}{
		"half of all addresses":       {[]netip.Prefix{prefix("0.0.0.0/1")}, nil, 0, "0.0.0.0/1 overlaps"},
		"too many addresses":          {[]netip.Prefix{prefix("100.0.0.0/7")}, nil, 0, "larger than a /8"},
		"among its Pods":              {[]netip.Prefix{prefix("10.244.7.0/24")}, nil, 0, "overlaps 10.244.0.0/16"},
		"around its Pods":             {[]netip.Prefix{prefix("10.0.0.0/8")}, nil, 0, "overlaps 10.244.0.0/16"},
		"among its Pods, and in use":  {[]netip.Prefix{prefix("10.244.7.0/24")}, inUse, 0, ""},
		"more than it may ask for":    {many, nil, clusterset.MaxBlocksWanted, "after the first 64"},
		"another one beside its Pods": {[]netip.Prefix{prefix("10.244.7.0/24"), many[0]}, nil, 1, "10.244.7.0/24"},
	} {
		plan := Plan(Standing{
			Mode: ModePreferred, Families: []corev1.IPFamily{v4}, Blocks: c.blocks, Ranges: c.ranges,
			Pods: []netip.Prefix{prefix("fd00::/64"), prefix("10.244.0.0/16")},
		})
		if got := fmt.Sprint(plan.Invalid); len(plan.Create) != c.created || len(plan.Invalid) > 1 ||
			(len(plan.Invalid) == 1) != (c.says != "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %d ServiceCIDRs, %s", name, len(plan.Create), got)
		}
	}
}

// TestV3WhatHoldsARange: only VIPs that no other range gives out, and a range that is being deleted covers none.
func TestV3WhatHoldsARange(t *testing.T) {
	vip := []Held{{Address: netip.MustParseAddr("10.1.0.5")}}
	one := shared("one", "10.1.0.0/28", Terminating)
	for name, c := range map[string]struct {
		other Range
		held  int
	}{
		"nothing else":              {shared("other", "10.2.0.0/24", Ready), 1},
		"a larger one":              {shared("other", "10.1.0.0/24", Ready), 0},
		"one by hand":               {Range{Name: "other", Prefix: prefix("10.1.0.0/24")}, 0},
		"one that is going":         {shared("other", "10.1.0.0/24", Terminating), 1},
		"the VIP is at its edge":    {shared("other", "10.1.0.5/32", Ready), 1},
		"the same, another's label": {shared("other", "10.1.0.0/28", Ready), 0},
	} {
		if got := Holding(one, []Range{one, c.other}, vip); len(got) != c.held {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := Holding(one, []Range{one}, []Held{{Address: netip.MustParseAddr("10.1.0.15")}}); len(got) > 0 {
		t.Errorf("its broadcast address: %v", got)
	}
}

func TestRanges(t *testing.T) {
	cidr := func(label string, change func(*networkingv1.ServiceCIDR)) []networkingv1.ServiceCIDR {
		c := networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{LabelVIPs: label}},
		}
		c.Spec.CIDRs = []string{"10.1.0.0/24", "fd00::/112"}
		if change != nil {
			change(&c)
		}
		return []networkingv1.ServiceCIDR{c}
	}
	notReady := metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse}
	for name, c := range map[string]struct {
		cidr  []networkingv1.ServiceCIDR
		vips  bool
		state State
		err   string
	}{
		"ordinary": {cidr("", nil), false, Ready, ""},
		"shared":   {cidr("shared", nil), true, Ready, ""},
		"unknown":  {cidr("mine", nil), false, Ready, "mine"},
		"not ready": {
			cidr("shared", func(c *networkingv1.ServiceCIDR) { c.Status.Conditions = []metav1.Condition{notReady} }),
			true, NotReady, "",
		},
		"being deleted": {
			cidr("shared", func(c *networkingv1.ServiceCIDR) { c.DeletionTimestamp = &metav1.Time{} }), true,
			Terminating, "",
		},
	} {
		got, errs := AllRanges(c.cidr)
		err := errors.Join(errs...)
		if len(got) != 2 || got[0].VIPs != c.vips || got[0].State != c.state || (err != nil) != (c.err != "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	got, errs := AllRanges(cidr("mine", func(c *networkingv1.ServiceCIDR) {
		c.Spec.CIDRs = []string{"10.1.0.0/24", "nonsense", "::ffff:10.0.0.0/112"}
	}))
	if len(got) != 1 || len(errs) != 3 {
		t.Errorf("each fault is an error: %+v %v", got, errs)
	}
	got, errs = AllRanges(cidr("shared", func(c *networkingv1.ServiceCIDR) {
		c.Spec.CIDRs = []string{"10.1.0.0/24", "fd00::/63"}
	}))
	if len(got) != 2 || !got[0].VIPs || got[1].VIPs || len(errs) != 1 {
		t.Errorf("the API server has no allocator for a /63: %+v %v", got, errs)
	}
}

func TestV6Usages(t *testing.T) {
	taken := slices.Concat(addresses("10.1.0.0/30"), []netip.Addr{netip.MustParseAddr("fd00::1")})
	got := Usages(
		[]Range{
			shared("a", "10.1.0.0/28", Ready),
			shared("b", "fd00::/64", Ready),
			shared("c", "10.1.0.9/32", Ready),
		},
		taken,
	)
	if got[0].Allocated != 3 || got[0].Available != 11 || got[1].Allocated != 1 || got[1].Available != 1<<64-2 ||
		got[2].Available != 0 {
		t.Errorf("%+v", got)
	}
}
