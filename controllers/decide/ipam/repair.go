package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// Grace is how old an object must be before it counts as left over: the API server's own limit on a request, as in its repair loop; objects
// that are made together are all seen within it (V4).
const Grace = 60 * time.Second

// APIServer is who the API server says manages the addresses of Services.
const APIServer = "ipallocator.k8s.io"

// Seen is the cluster as the watches show it. Nothing of it is changed.
type Seen struct {
	Imports   []*mcsv1beta1.ServiceImport
	Services  []*corev1.Service // all, not only derived ones: any may have a VIP of ours
	Addresses []*networkingv1.IPAddress
	Ranges    []*networkingv1.ServiceCIDR
	// Unsupported: the API server has neither ServiceCIDRs nor IPAddresses (V7), and nothing can be said about them.
	Unsupported bool
	// Fencing are ranges whose reservations are being made: those come before the ServiceCIDR.
	Fencing []netip.Prefix
	Manager string // who we are, in managed-by labels
	Now     time.Time
}

// Kind is what is wrong, as the reason of an Event.
type Kind string

// They are the ways in which the relation ServiceImport – derived Service – IPAddress – ServiceCIDR breaks (V4).
const (
	Missing    Kind = "VIPMissing"             // a VIP without its IPAddress, or an import's without its Service
	Leaked     Kind = "VIPLeaked"              // an IPAddress or a derived Service that nobody uses
	Doubled    Kind = "VIPDoubled"             // an address with two owners
	OutOfRange Kind = "VIPOutOfRange"          // a VIP that no ServiceCIDR covers
	Foreign    Kind = "VIPReferencesSomeother" // the IPAddress of a VIP names somebody else
)

// Action is what mends it.
type Action string

const (
	Report Action = "Report" // only a person can
	// The next three are found in what may be late: an API server is asked first whether it still is so.
	Create  Action = "Create"  // the IPAddress, as Reference makes it; that it is there already is as good
	Delete  Action = "Delete"  // the IPAddress, if it still has this UID
	Replace Action = "Replace" // Delete, then Create: what an IPAddress names is immutable
	Requeue Action = "Requeue" // the import, whose next pass mends it
)

// Finding is one fault. Owner is the import; Service the derived Service, where there is one.
type Finding struct {
	Kind    Kind
	Action  Action
	Owner   Owner
	Service types.NamespacedName
	Address netip.Addr
	UID     types.UID // of the IPAddress to delete
	Message string
}

// Reference is the IPAddress of a Service as the API server's allocator makes it.
func Reference(address netip.Addr, service types.NamespacedName) *networkingv1.IPAddress {
	ip := &networkingv1.IPAddress{}
	ip.Name = address.String()
	ip.Labels = map[string]string{networkingv1.LabelIPAddressFamily: string(family(address)), networkingv1.LabelManagedBy: APIServer}
	ip.Spec.ParentRef = &networkingv1.ParentReference{Resource: "services", Namespace: service.Namespace, Name: service.Name}
	return ip
}

// Repair compares what is there. next is when something young will be old enough to be judged; zero if nothing is.
func Repair(seen Seen) (findings []Finding, next time.Time) {
	r := &repair{Seen: seen, imports: map[Owner]*mcsv1beta1.ServiceImport{}, derived: map[types.NamespacedName]bool{}, services: map[types.NamespacedName]*corev1.Service{},
		users: map[netip.Addr][]*corev1.Service{}, addresses: map[netip.Addr]*networkingv1.IPAddress{}, cidrs: map[string][]netip.Prefix{}}
	r.index()
	for _, imp := range seen.Imports {
		r.checkImport(imp)
	}
	for _, svc := range seen.Services {
		if derived.Is(svc, seen.Manager) && svc.DeletionTimestamp == nil {
			r.checkUse(svc)
			r.checkService(svc)
		}
	}
	if !seen.Unsupported {
		for _, ip := range seen.Addresses {
			r.checkAddress(ip)
		}
	}
	slices.SortFunc(r.findings, func(a, b Finding) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Service.String(), b.Service.String()), cmp.Compare(a.Owner.String(), b.Owner.String()))
	})
	return r.findings, r.next
}

type repair struct {
	Seen
	imports   map[Owner]*mcsv1beta1.ServiceImport
	derived   map[types.NamespacedName]bool // what the imports' derived Services are called
	services  map[types.NamespacedName]*corev1.Service
	users     map[netip.Addr][]*corev1.Service
	addresses map[netip.Addr]*networkingv1.IPAddress
	cidrs     map[string][]netip.Prefix // by ServiceCIDR
	covered   []span
	findings  []Finding
	next      time.Time
}

func (r *repair) index() {
	for _, imp := range r.Imports {
		r.imports[nameOf(imp)] = imp
		r.derived[types.NamespacedName{Namespace: imp.Namespace, Name: derived.Name(imp.Namespace, imp.Name)}] = true
	}
	for _, svc := range r.Services {
		r.services[nameOf(svc)] = svc
		for _, a := range vips(svc) {
			r.users[a] = append(r.users[a], svc)
		}
	}
	for _, ip := range r.Addresses {
		if a, err := netip.ParseAddr(ip.Name); err == nil {
			r.addresses[a] = ip
		}
	}
	for _, cidr := range r.Ranges {
		ranges, _ := Ranges(cidr) // what cannot be read covers nothing
		for _, one := range ranges {
			r.cidrs[cidr.Name] = append(r.cidrs[cidr.Name], one.Prefix)
			if s, ok := usable(one.Prefix); ok {
				r.covered = append(r.covered, s)
			}
		}
	}
	r.covered = merge(r.covered)
}

type object interface {
	GetNamespace() string
	GetName() string
}

func nameOf(o object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// vips are the addresses of a Service; none for a headless one.
func vips(svc *corev1.Service) []netip.Addr {
	var all []netip.Addr
	for _, text := range svc.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// old tells whether the grace of what was made then is over; if not, it is looked at again when it is.
func (r *repair) old(created time.Time) bool {
	end := created.Add(Grace)
	if !r.Now.Before(end) {
		return true
	}
	r.next = earliest(r.next, end)
	return false
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (r *repair) find(kind Kind, action Action, svc *corev1.Service, a netip.Addr, uid types.UID, format string, args ...any) {
	r.findings = append(r.findings, Finding{Kind: kind, Action: action, Owner: derived.Import(svc.Annotations), Service: nameOf(svc), Address: a, UID: uid, Message: fmt.Sprintf(format, args...)})
}

// checkImport finds an import whose VIP has no Service behind it.
func (r *repair) checkImport(imp *mcsv1beta1.ServiceImport) {
	if imp.Labels[derived.LabelManagedBy] != r.Manager || imp.DeletionTimestamp != nil || len(imp.Spec.IPs) == 0 {
		return
	}
	service := types.NamespacedName{Namespace: imp.Namespace, Name: derived.Name(imp.Namespace, imp.Name)}
	if svc := r.services[service]; svc == nil {
		r.findings = append(r.findings, Finding{Kind: Missing, Action: Requeue, Owner: nameOf(imp), Service: service,
			Message: fmt.Sprintf("ServiceImport %s has %s, and its derived Service is gone; it is made again", nameOf(imp), strings.Join(imp.Spec.IPs, ", "))})
	}
}

// checkUse finds a derived Service that its import should have taken with it: no import, and no quarantine that still runs. One that was
// copied into another namespace is no import's.
func (r *repair) checkUse(svc *corev1.Service) {
	owner := derived.Import(svc.Annotations)
	if owner.Name != "" && owner.Namespace != svc.Namespace {
		r.find(Leaked, Report, svc, netip.Addr{}, "", "Service %s is a copy: ServiceImport %s has its VIP by the one in its own namespace; whoever may delete Services here can delete this one", nameOf(svc), owner)
		return
	}
	if derived.Name(owner.Namespace, owner.Name) != svc.Name {
		if r.old(svc.CreationTimestamp.Time) && !r.derived[nameOf(svc)] {
			r.find(Leaked, Report, svc, netip.Addr{}, "", "Service %s looks like a derived one, and is no ServiceImport's: the agent did not make it, and does not delete it; delete it%s", nameOf(svc), AsAgent)
		}
		return
	}
	if r.imports[owner] != nil {
		return
	}
	left, dated := derived.QuarantineLeft(svc, r.Now)
	if dated && left > 0 {
		r.next = earliest(r.next, r.Now.Add(left))
		return
	}
	if r.old(svc.CreationTimestamp.Time) {
		r.find(Leaked, Requeue, svc, netip.Addr{}, "", "no ServiceImport uses Service %s any more; it goes once its quarantine is over", nameOf(svc))
	}
}

// checkService looks at each VIP from its Service: whose it is, whether a range covers it, and what its IPAddress says.
func (r *repair) checkService(svc *corev1.Service) {
	for _, a := range vips(svc) {
		r.checkOwners(svc, a)
		if r.Unsupported {
			continue
		}
		if !contains(r.covered, numberOf(a)) {
			if r.old(svc.CreationTimestamp.Time) {
				r.find(OutOfRange, Report, svc, a, "", "%s of Service %s is in no ServiceCIDR; create one that covers it, or delete the Service to get another address%s", a, nameOf(svc), r.asWhom(svc))
			}
			continue
		}
		ip := r.addresses[a]
		switch {
		case ip == nil: // however young: an API server that shows a Service had its IPAddress, and takes it back where a client left it too soon
			r.find(Missing, Create, svc, a, "", "%s of Service %s has no IPAddress, and could be given to another; it is made again", a, nameOf(svc))
		case !refers(ip, nameOf(svc)) && !r.usedByParent(ip, a):
			r.foreign(svc, a, ip)
		}
	}
}

func refers(ip *networkingv1.IPAddress, service types.NamespacedName) bool {
	ref := ip.Spec.ParentRef
	return ref != nil && ref.Group == "" && ref.Resource == "services" && ref.Namespace == service.Namespace && ref.Name == service.Name
}

// usedByParent tells whether the Service that an IPAddress names exists and has the address.
func (r *repair) usedByParent(ip *networkingv1.IPAddress, a netip.Addr) bool {
	return slices.ContainsFunc(r.users[a], func(svc *corev1.Service) bool { return refers(ip, nameOf(svc)) })
}

func (r *repair) foreign(svc *corev1.Service, a netip.Addr, ip *networkingv1.IPAddress) {
	manager := ip.Labels[networkingv1.LabelManagedBy]
	if manager != r.Manager && !r.old(ip.CreationTimestamp.Time) { // a fence of ours is no part of a Service that is being made
		return
	}
	if manager != r.Manager && manager != APIServer {
		r.find(Foreign, Report, svc, a, "", "%s of Service %s has an IPAddress of %q, which refers to %s; ask who made it, and delete the IPAddress, or the Service%s", a, nameOf(svc), manager, Parent(ip), r.asWhom(svc))
		return
	}
	r.find(Foreign, Replace, svc, a, ip.UID, "the IPAddress %s of Service %s refers to %s, which does not use it; it is made anew", a, nameOf(svc), Parent(ip))
}

// Parent is what an IPAddress refers to, for a person.
func Parent(ip *networkingv1.IPAddress) string {
	ref := ip.Spec.ParentRef
	if ref == nil {
		return "nothing"
	}
	return strings.Trim(ref.Group+"/"+ref.Resource+" "+strings.TrimPrefix(ref.Namespace+"/"+ref.Name, "/"), "/")
}
