package sim

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// watchRanges is V, at every change of a member: no address has two owners, what is somebody else's stays, and no VIP is refused to an
// ordinary Service.
func (w *World) watchRanges(m *member, c *api.Write) {
	if !w.ranges {
		return
	}
	switch o := c.New.(type) {
	case *corev1.Service:
		w.oneOwner(m, o)
	case *networkingv1.IPAddress:
		w.excuse(m, o)
	}
	if ip, ok := c.Old.(*networkingv1.IPAddress); ok && c.New == nil && c.User == api.Agent {
		w.mayFree(m, ip)
	}
	if c.Key.Kind == api.ServiceCIDR {
		w.excuseUncovered(m)
	}
}

func (w *World) oneOwner(m *member, svc *corev1.Service) {
	for _, ip := range svc.Spec.ClusterIPs {
		for _, other := range all[*corev1.Service](m.server, api.Service) {
			if ip != corev1.ClusterIPNone && client.ObjectKeyFromObject(other) != client.ObjectKeyFromObject(svc) &&
				slices.Contains(other.Spec.ClusterIPs, ip) {
				w.fail(
					"V: %s in %s has two owners, %s/%s and %s/%s",
					ip,
					m.id,
					svc.Namespace,
					svc.Name,
					other.Namespace,
					other.Name,
				)
			}
		}
	}
}

// mayFree: an agent frees its own reservations, and what nobody uses of derived Services.
func (w *World) mayFree(m *member, ip *networkingv1.IPAddress) {
	ours := ip.Labels[networkingv1.LabelManagedBy] == kube.Manager
	left := ip.Labels[networkingv1.LabelManagedBy] == api.Allocator &&
		strings.HasPrefix(ip.Spec.ParentRef.Name, "derived-")
	if !ours && !left {
		w.fail("V4: the agent of %s frees %s, which is %s's", m.id, ip.Name, ip.Labels[networkingv1.LabelManagedBy])
	}
	if of, _ := m.server.Owner(ip.Name); left && of.Name != "" && m.used(ip.Name) {
		w.fail("V4: the agent of %s frees %s, which Service %s has", m.id, ip.Name, of)
	}
}

// excuse: an import whose VIP somebody else has may get another.
func (w *World) excuse(m *member, ip *networkingv1.IPAddress) {
	of, _ := m.server.Owner(ip.Name)
	for _, n := range names {
		if derivedOf := (types.NamespacedName{Namespace: n.Namespace, Name: derivedName(n)}); of != derivedOf &&
			ip.Labels[networkingv1.LabelManagedBy] != kube.Manager {
			w.guard.excused[address{m.id, n, ip.Name}] = true
		}
	}
}

// excuseUncovered: so may one whose VIP is in no range that is ready.
func (w *World) excuseUncovered(m *member) {
	for _, n := range names {
		for _, ip := range w.guard.vips[w.guard.life[place{m.id, n}]] {
			if !m.serves(netip.MustParseAddr(ip)) {
				w.guard.excused[address{m.id, n, ip}] = true
			}
		}
	}
}

// serves reports whether a range that is ready holds an address.
func (m *member) serves(a netip.Addr) bool {
	for _, c := range all[*networkingv1.ServiceCIDR](m.server, api.ServiceCIDR) {
		holds := func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(a) }
		if api.Ready(c) && slices.ContainsFunc(c.Spec.CIDRs, holds) {
			return true
		}
	}
	return false
}

// address is one that an import had.
type address struct {
	member string
	name   types.NamespacedName
	ip     string
}

// checkAddresses: in quiet every VIP has its IPAddress, and no address leaks.
func (w *World) checkAddresses(m *member) (problems []string) {
	if !w.ranges {
		return nil
	}
	for _, svc := range all[*corev1.Service](m.server, api.Service) {
		for _, ip := range svc.Spec.ClusterIPs {
			if _, there := m.server.Owner(ip); ip != corev1.ClusterIPNone && strings.HasPrefix(svc.Name, "derived-") &&
				!there {
				problems = append(problems, ip+" of "+svc.Name+" has no IPAddress (V4)")
			}
		}
	}
	for _, ip := range all[*networkingv1.IPAddress](m.server, api.IPAddress) {
		of, _ := m.server.Owner(ip.Name)
		switch manager := ip.Labels[networkingv1.LabelManagedBy]; {
		case manager == kube.Manager:
			problems = append(problems, ip.Name+" is an IPAddress of the agent, which makes none (V4)")
		case strings.HasPrefix(of.Name, "derived-") && !m.used(ip.Name) && m.server.Now().Sub(ip.CreationTimestamp.Time) > api.RepairAge: // the API server frees older ones
			problems = append(problems, ip.Name+" is "+of.String()+"'s, which does not have it (V4)")
		}
	}
	return problems
}
