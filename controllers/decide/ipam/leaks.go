package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// checkOwners finds the other Services that have an address of svc. Who keeps it is whom its IPAddress names, else the oldest; nothing
// moves unasked, so that the others are named to a person.
func (r *repair) checkOwners(svc *corev1.Service, a netip.Addr) {
	users := slices.Clone(r.users[a])
	if len(users) < 2 {
		return
	}
	ip := r.addresses[a]
	slices.SortFunc(users, func(x, y *corev1.Service) int {
		if ip != nil && refers(ip, nameOf(x)) != refers(ip, nameOf(y)) {
			if refers(ip, nameOf(x)) {
				return -1
			}
			return 1
		}
		if c := x.CreationTimestamp.Compare(y.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(nameOf(x).String(), nameOf(y).String())
	})
	first := slices.IndexFunc(users, func(u *corev1.Service) bool { return derived.Is(u, r.Manager) && u.DeletionTimestamp == nil })
	if users[first] != svc {
		return // said once, for all
	}
	for _, loser := range users[1:] {
		r.find(Doubled, Report, loser, a, "", "%s belongs to Service %s, and Service %s has it as well; delete the latter to get it another address%s", a, nameOf(users[0]), nameOf(loser), r.asWhom(loser))
	}
}

// AsAgent is how what only the agent may delete is deleted (deploy/member/derived.yaml).
const AsAgent = " (kubectl delete --as=system:serviceaccount:clusterset-system:clusterset-controller)"

// asWhom is as whom a Service is to be deleted; "" for one that its own users may delete.
func (r *repair) asWhom(svc *corev1.Service) string {
	if of := derived.Import(svc.Annotations).Namespace; !derived.Is(svc, r.Manager) || of != "" && of != svc.Namespace {
		return ""
	}
	return AsAgent
}

// checkAddress finds what holds an address that nobody uses: a fence whose ServiceCIDR is gone, and what the API server left of a derived
// Service.
func (r *repair) checkAddress(ip *networkingv1.IPAddress) {
	a, err := netip.ParseAddr(ip.Name)
	ref := ip.Spec.ParentRef
	if err != nil || ref == nil || ip.DeletionTimestamp != nil {
		return
	}
	var user string // who ought to use it; none if it is none of ours
	var inUse bool
	var service types.NamespacedName
	switch ours := ip.Labels[networkingv1.LabelManagedBy] == r.Manager; {
	case ours && ref.Group == networkingv1.GroupName && ref.Resource == "servicecidrs":
		user, inUse = "the fence of ServiceCIDR "+ref.Name, r.fences(ref.Name, a)
	case ours:
		user = Parent(ip) + ", which is nothing we refer to"
	case ip.Labels[networkingv1.LabelManagedBy] == APIServer && ref.Group == "" && ref.Resource == "services" && derived.Named(ref.Name):
		service = types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
		svc := r.services[service]
		if svc != nil && !derived.Is(svc, r.Manager) {
			return
		}
		user, inUse = "Service "+service.String(), svc != nil && slices.Contains(vips(svc), a)
	default:
		return
	}
	if inUse || r.givenOut(a) || !r.old(ip.CreationTimestamp.Time) {
		return
	}
	r.findings = append(r.findings, Finding{Kind: Leaked, Action: Delete, Service: service, Address: a, UID: ip.UID,
		Message: fmt.Sprintf("IPAddress %s is of %s, which does not use it; it is freed", a, user)})
}

// fences tells whether the fence of this ServiceCIDR has a place for a.
func (r *repair) fences(cidr string, a netip.Addr) bool {
	inside := func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(r.cidrs[cidr], inside) || slices.ContainsFunc(r.Fencing, inside)
}

// givenOut tells whether a derived Service has the address all the same: then its IPAddress is replaced, and never merely deleted.
func (r *repair) givenOut(a netip.Addr) bool { return len(r.users[a]) > 0 }
