package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// modes are those that the clusterset is in by turns, in a world with ranges.
var modes = []hubv1alpha1.VIPMode{hubv1alpha1.VIPModeShared, hubv1alpha1.VIPModePreferred}

// Blocks are of two addresses and three: they fill up, and freed addresses are used again.
const (
	blockBits4 = 30
	blockBits6 = 126
)

func init() { actions = append(actions, rangeActions...) }

// rangeActions are what users and others do to ranges and addresses. They do nothing in a world without.
var rangeActions = []action{
	{"mode", 1, func(w *World, _ *member, _ types.NamespacedName) { w.anotherMode() }},
	{"block", 2, func(w *World, m *member, _ types.NamespacedName) { w.grant(m) }},
	{"range", 2, (*World).rangeByHand},
	{"delete range", 1, (*World).deleteRange},
	{"squatter", 3, (*World).squat},
	{"ordinary", 10, (*World).ordinary},
}

func (w *World) clusterSet() *hubv1alpha1.ClusterSet {
	set, _ := w.hub.Get(api.Key{Kind: api.ClusterSet, NamespacedName: types.NamespacedName{Namespace: hubNamespace, Name: "set"}}).(*hubv1alpha1.ClusterSet)
	return set.DeepCopy()
}

func (w *World) anotherMode() {
	if !w.ranges {
		return
	}
	set := w.clusterSet()
	set.Spec.VIPs = hubv1alpha1.VIPs{Mode: pick(w, modes), Pools: []string{"10.100.0.0/14", "fd00:100::/32"}}
	w.note("admin: the mode of VIPs is %s", set.Spec.VIPs.Mode)
	w.must(w.hub.Update("admin", set, false))
}

// grant is the hub's: another block of each family that a member has. What a restored hub has forgotten it knows by the member's records
// (controllers/blocks); here, since no block is ever another member's.
func (w *World) grant(m *member) {
	if !w.ranges {
		return
	}
	set := w.clusterSet()
	at := slices.Index(w.members, m)
	for _, f := range m.server.Families {
		m.blocks[f]++
		cut := fmt.Sprintf("10.%d.0.%d/%d", 100+at, 8*m.blocks[f], blockBits4)
		if f == corev1.IPv6Protocol {
			cut = fmt.Sprintf("fd00:10%d::%x/%d", at, 8*m.blocks[f], blockBits6)
		}
		set.Status.Blocks = append(set.Status.Blocks, hubv1alpha1.Block{ClusterID: m.id, CIDR: cut})
		w.note("hub: %s is granted %s", m.id, cut)
	}
	w.must(w.hub.Update("hub", set, false))
}

// grants are the steps of a hub that gives members the blocks that they ask for. In trouble it takes its time.
func (w *World) grants(out []step) []step {
	if !w.ranges || !w.quiet {
		return out
	}
	set := w.clusterSet()
	for _, m := range w.honest() {
		p := get[*aboutv1beta1.ClusterProperty](
			m,
			api.ClusterProperty,
			types.NamespacedName{Name: clusterset.PropertyBlocks},
		)
		if p == nil || set.Spec.VIPs.Mode == hubv1alpha1.VIPModeShared {
			continue
		}
		asked, err := clusterset.ParseBlocks(p.Spec.Value)
		w.must(err)
		var has4, has6 int
		for _, b := range set.Status.Blocks {
			switch {
			case b.ClusterID != m.id:
			case strings.Contains(b.CIDR, ":"):
				has6++
			default:
				has4++
			}
		}
		both := len(m.server.Families) > 1
		if has4 < asked.IPv4 || both && has6 < asked.IPv6 {
			out = append(out, step{10, func() { w.grant(m) }})
		}
	}
	return out
}

func (w *World) rangeByHand(m *member, _ types.NamespacedName) {
	if !w.ranges || len(m.byHand()) > 2 {
		return
	}
	w.hands++
	c := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("by-hand-%d", w.hands), Labels: map[string]string{
			ipam.LabelVIPs: ipam.Shared}},
	}
	c.Spec.CIDRs = []string{fmt.Sprintf("10.110.%d.%d/%d", w.hands>>5, w.hands<<3&255, 29+w.rng.IntN(2))}
	w.create(m, c)
}

func (m *member) byHand() []*networkingv1.ServiceCIDR {
	return slices.DeleteFunc(
		all[*networkingv1.ServiceCIDR](m.server, api.ServiceCIDR),
		func(c *networkingv1.ServiceCIDR) bool {
			return !strings.HasPrefix(c.Name, "by-hand-") || c.DeletionTimestamp != nil
		},
	)
}

func (w *World) deleteRange(m *member, _ types.NamespacedName) {
	if ranges := m.byHand(); len(ranges) > 0 {
		w.remove(m, pick(w, ranges))
	}
}

// somewhere is an address of a range for VIPs; not valid where there is none.
func (w *World) somewhere(m *member) (a netip.Addr) {
	var ranges []netip.Prefix
	for _, c := range all[*networkingv1.ServiceCIDR](m.server, api.ServiceCIDR) {
		for _, text := range c.Spec.CIDRs {
			if c.Labels[ipam.LabelVIPs] != "" {
				ranges = append(ranges, netip.MustParsePrefix(text))
			}
		}
	}
	if len(ranges) == 0 {
		return a
	}
	a = pick(w, ranges).Addr()
	for range 1 + w.rng.IntN(5) {
		a = a.Next()
	}
	return a
}

// squat is another controller that takes an address for itself, or gives up one.
func (w *World) squat(m *member, _ types.NamespacedName) {
	a := w.somewhere(m)
	if !a.IsValid() || m.used(a.String()) {
		return
	}
	ip := &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name:   a.String(),
			Labels: map[string]string{networkingv1.LabelManagedBy: squatter},
		},
	}
	ip.Spec.ParentRef = &networkingv1.ParentReference{Resource: "widgets", Name: "theirs"}
	if there := get[*networkingv1.IPAddress](
		m,
		api.IPAddress,
		types.NamespacedName{Name: a.String()},
	); there != nil &&
		there.Labels[networkingv1.LabelManagedBy] == squatter {
		w.remove(m, there)
		return
	}
	w.create(m, ip)
}

const squatter = "somebody"

// used tells whether a Service has an address.
func (m *member) used(address string) bool {
	return slices.ContainsFunc(
		all[*corev1.Service](m.server, api.Service),
		func(svc *corev1.Service) bool { return slices.Contains(svc.Spec.ClusterIPs, address) },
	)
}

// ordinary makes or deletes a Service that nobody exports, which may get any address.
func (w *World) ordinary(m *member, n types.NamespacedName) {
	if !w.ranges || m.namespace(n.Namespace) == nil {
		return
	}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: fmt.Sprintf("plain-%d", w.rng.IntN(4))},
	}
	svc.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	if there := get[*corev1.Service](
		m,
		api.Service,
		types.NamespacedName{Namespace: n.Namespace, Name: svc.Name},
	); there != nil {
		w.remove(m, there)
		return
	}
	if a := w.somewhere(m); a.IsValid() && w.chance(0.3) && !m.used(a.String()) { // by name
		svc.Spec.ClusterIP = a.String()
	}
	w.create(m, svc)
}
