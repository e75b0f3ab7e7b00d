package vips

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// TestV3ARangeInUseIsSwapped: deleting it is held back and says why, until another covers what is in use, a larger or a
// smaller one. The
// VIPs stay, and can be had again, throughout.
func TestV3ARangeInUseIsSwapped(t *testing.T) {
	for _, c := range []struct {
		mode, first ipam.Mode // first: of the VIPs; in shared the API server would choose where they are
		use         string
		larger      [2]string
		smaller     string // the half that the VIP is in
	}{
		{
			ipam.ModePreferred, ipam.ModePreferred, ipam.Shared, [2]string{"10.220.0.0/28", "10.220.0.0/27"},
			"fd00:220::/124",
		},
		{
			ipam.ModeShared, ipam.ModePreferred, ipam.Shared, [2]string{"10.225.0.0/28", "10.225.0.0/27"},
			"fd00:225::/124",
		},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			e := start(t)
			e.mode(t, c.first)
			for _, s := range []*swap{
				{e, e.namespace(t, "larger"), c.mode, c.use, v4, c.larger[0], c.larger[1]},
				{e, e.namespace(t, "smaller"), c.mode, c.use, v6, c.smaller, ""},
			} {
				t.Run(s.ns, func(t *testing.T) {
					vip := s.begin(t)
					t.Parallel() // Kubernetes takes ten seconds to delete a ServiceCIDR
					s.finish(t, vip)
				})
			}
			e.mode(t, c.mode) // what is parallel goes on after this
		})
	}
}

// swap is of a range that a VIP is in.
type swap struct {
	*env
	ns         string
	mode       ipam.Mode
	use        string
	families   []corev1.IPFamily
	from, into string
}

// begin gives a VIP out of the range.
func (s *swap) begin(t *testing.T) netip.Addr {
	// An ordinary Service outside of a smaller range would hold the first one back, too.
	for _, name := range []string{"web", "meanwhile"} {
		s.create(t, service(s.ns, name, s.families))
	}
	s.create(t, cidr("from-"+s.ns, s.use, s.from))
	s.wantMetric(t, s.series("range_available", "range", s.from), nil)
	s.exportMade(t, s.ns, "web")
	vip := s.wantVIPs(t, s.ns, "web", s.families)[0]
	wantIn(t, []netip.Addr{vip}, s.from)
	return vip
}

// finish deletes the range, and makes another.
func (s *swap) finish(t *testing.T, vip netip.Addr) {
	own := map[corev1.IPFamily]string{
		corev1.IPv4Protocol: "10.96.0.0/16", corev1.IPv6Protocol: "fd00:96::/112",
	}[s.families[0]]
	if s.into == "" {
		s.into = netip.PrefixFrom(vip, netip.MustParsePrefix(s.from).Bits()+1).Masked().String()
	}
	from := s.wantFinalizer(t, "from-"+s.ns, true)
	if err := s.Delete(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	s.wantEvent(t, "default", from.Name, "VIPRangeHeld", vip.String())
	s.exportMade(t, s.ns, "meanwhile") // what is being deleted gives out nothing
	wantIn(t, s.wantVIPs(t, s.ns, "meanwhile", s.families), own)
	s.create(t, cidr("into-"+s.ns, s.use, s.into))
	s.wantGone(t, from)
	s.deleteAsAgent(t, derivedOf(s.ns, "web"))
	s.wantMade(t, s.ns, "web")
	if now := s.wantVIPs(t, s.ns, "web", s.families)[0]; now != vip {
		t.Errorf("it moved from %s to %s", vip, now)
	}
	s.export(t, s.ns, "new", s.families)
	in := []string{s.into}
	if s.mode == ipam.ModeShared {
		in = append(in, own)
	}
	wantIn(t, s.wantVIPs(t, s.ns, "new", s.families), in...)
}

// TestV2ARangeThatIsDeletedGivesOutNothing: in each family; the VIPs that must move are listed, and none moves unasked.
func TestV2ARangeThatIsDeletedGivesOutNothing(t *testing.T) {
	for _, c := range []struct {
		mode, first       ipam.Mode // first: of the VIPs that are in the range; in shared the API server would choose
		use               string
		old, other, extra []string // new VIPs may come from the last two
	}{
		{
			ipam.ModePreferred, ipam.ModePreferred, ipam.Shared, []string{"10.223.0.0/28", "fd00:223::/124"},
			[]string{"10.223.0.32/27", "fd00:223::20/123"}, nil,
		},
		{
			ipam.ModeShared, ipam.ModePreferred, ipam.Shared, []string{"10.226.0.0/28", "fd00:226::/124"},
			[]string{"10.226.0.32/27", "fd00:226::20/123"}, strings.Split(serviceRanges, ","),
		},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			e := start(t)
			ns := e.namespace(t)
			old, other, others := "old-"+string(c.mode), "other-"+string(c.mode), slices.Concat(c.other, c.extra)
			e.mode(t, c.first)
			e.create(t, cidr(old, c.use, c.old...))
			for _, p := range c.old {
				e.wantMetric(
					t,
					e.series("range_available", "range", p),
					nil,
				) // a range by hand is not waited for before it is seen
			}
			e.export(t, ns, "stays", both)
			vips := e.wantVIPs(t, ns, "stays", both)
			wantIn(t, vips, c.old...)
			e.create(t, cidr(other, c.use, c.other...))
			if c.mode != c.first {
				e.mode(t, c.mode)
			}
			if err := e.Delete(t.Context(), cidr(old, c.use)); err != nil {
				t.Fatal(err)
			}
			for _, vip := range vips {
				e.wantEvent(t, "default", old, "VIPRangeHeld", vip.String()+" ("+ns+"/")
			}
			for i := range 8 {
				name := fmt.Sprint("web-", i)
				e.export(t, ns, name, both)
				wantIn(t, e.wantVIPs(t, ns, name, both), others...)
			}
			if now := e.wantVIPs(t, ns, "stays", both); !slices.Equal(now, vips) {
				t.Errorf("they moved unasked, from %v to %v", vips, now)
			}
			e.deleteAsAgent(t, derivedOf(ns, "stays")) // asked
			eventually(t, "the VIPs move", func() error {
				imp, err := e.imported(t.Context(), ns, "stays")
				if err == nil &&
					slices.ContainsFunc(
						vips,
						func(vip netip.Addr) bool { return slices.Contains(imp.Spec.IPs, vip.String()) },
					) {
					err = fmt.Errorf("%v", imp.Spec.IPs)
				}
				return err
			})
			wantIn(t, e.wantVIPs(t, ns, "stays", both), others...)
			for _, vip := range vips {
				e.wantEvent(t, ns, "stays", "VIPLost", vip.String())
			}
			eventually(t, "it is not held by us", func() error { // ordinary Services may be in it
				c := &networkingv1.ServiceCIDR{}
				err := e.Get(t.Context(), client.ObjectKey{Name: old}, c)
				if err == nil && slices.Contains(c.Finalizers, clusterset.FinalizerVIPs) {
					return fmt.Errorf("%v", c.Finalizers)
				}
				return client.IgnoreNotFound(err)
			})
		})
	}
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
		if err := e.Get(
			t.Context(),
			client.ObjectKeyFromObject(o),
			o,
		); client.IgnoreNotFound(err) != nil ||
			err == nil {
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
