package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

const (
	manager    = "us"
	apiManager = "ipallocator.k8s.io"
	grace      = time.Minute // V4
)

// TryRepair lets repair look at a cluster, does what it says, and lets it look again. It says what was touched that is not ours or is in
// use or is young, and what is still wrong in the end.
func TryRepair(seen ipam.Seen, repair func(ipam.Seen) ([]ipam.Finding, time.Time)) error {
	before := copied(seen)
	findings, next := repair(seen)
	if !reflect.DeepEqual(before, seen) {
		return fmt.Errorf("what was seen was changed")
	}
	if err := permitted(seen, findings); err != nil {
		return fmt.Errorf("%w\n%s", err, describe(seen))
	}
	if !next.IsZero() && !next.After(seen.Now) {
		return fmt.Errorf("next is %s, and it is %s", next, seen.Now)
	}
	mend(&seen, findings)
	seen.Now = seen.Now.Add(2 * grace)
	for range 2 { // what was young is old now
		findings, _ = repair(seen)
		if err := permitted(seen, findings); err != nil {
			return fmt.Errorf("later: %w\n%s", err, describe(seen))
		}
		mend(&seen, findings)
	}
	findings, _ = repair(seen)
	for _, f := range findings {
		if f.Action != ipam.Report && f.Action != ipam.Requeue {
			return fmt.Errorf("not mended: %+v\n%s", f, describe(seen))
		}
	}
	return sound(seen, findings)
}

func copied(seen ipam.Seen) ipam.Seen {
	for i, x := range seen.Imports {
		seen.Imports = slices.Clone(seen.Imports)
		seen.Imports[i] = x.DeepCopy()
	}
	for i, x := range seen.Services {
		seen.Services = slices.Clone(seen.Services)
		seen.Services[i] = x.DeepCopy()
	}
	for i, x := range seen.Addresses {
		seen.Addresses = slices.Clone(seen.Addresses)
		seen.Addresses[i] = x.DeepCopy()
	}
	for i, x := range seen.Ranges {
		seen.Ranges = slices.Clone(seen.Ranges)
		seen.Ranges[i] = x.DeepCopy()
	}
	return seen
}

func find(seen ipam.Seen, a netip.Addr) *networkingv1.IPAddress {
	for _, ip := range seen.Addresses {
		if ip.Name == a.String() {
			return ip
		}
	}
	return nil
}

// user tells whether some Service has this address; with ip, whether one has that ip names.
func user(seen ipam.Seen, a netip.Addr, ip *networkingv1.IPAddress) bool {
	return slices.ContainsFunc(seen.Services, func(s *corev1.Service) bool {
		named := ip == nil || ip.Spec.ParentRef.Resource == "services" && ip.Spec.ParentRef.Name == s.Name && ip.Spec.ParentRef.Namespace == s.Namespace
		return named && slices.Contains(s.Spec.ClusterIPs, a.String())
	})
}

// permitted refuses what repair must never do, whatever it sees.
func permitted(seen ipam.Seen, findings []ipam.Finding) error {
	for _, f := range findings {
		ip := find(seen, f.Address)
		switch f.Action {
		case ipam.Create:
			if ip != nil || !user(seen, f.Address, nil) {
				return fmt.Errorf("makes what is there, or nobody uses: %+v", f)
			}
		case ipam.Delete, ipam.Replace:
			if ip == nil || ip.UID != f.UID {
				return fmt.Errorf("deletes what is not there: %+v", f)
			}
			if m := ip.Labels[networkingv1.LabelManagedBy]; m != manager && m != apiManager {
				return fmt.Errorf("deletes what %q made: %+v", m, f)
			}
			fenced := f.Action == ipam.Replace && ip.Labels[networkingv1.LabelManagedBy] == manager // below a live VIP: no client of an API server made it
			if seen.Now.Sub(ip.CreationTimestamp.Time) < grace && !fenced {
				return fmt.Errorf("deletes what is young: %+v", f)
			}
			if used := user(seen, f.Address, nil); used != (f.Action == ipam.Replace) || user(seen, f.Address, ip) {
				return fmt.Errorf("deletes what is in use, or makes anew what is not: %+v", f)
			}
		case ipam.Report, ipam.Requeue:
		default:
			return fmt.Errorf("unknown action %+v", f)
		}
		if f.Message == "" {
			return fmt.Errorf("says nothing: %+v", f)
		}
	}
	return nil
}

func mend(seen *ipam.Seen, findings []ipam.Finding) {
	seen.Addresses = slices.Clone(seen.Addresses)
	for _, f := range findings {
		if f.Action == ipam.Delete || f.Action == ipam.Replace {
			seen.Addresses = slices.DeleteFunc(seen.Addresses, func(ip *networkingv1.IPAddress) bool { return ip.UID == f.UID })
		}
		if f.Action == ipam.Create || f.Action == ipam.Replace {
			ip := ipam.Reference(f.Address, f.Service)
			ip.UID, ip.CreationTimestamp = types.UID("made "+ip.Name), metav1.NewTime(seen.Now)
			seen.Addresses = append(seen.Addresses, ip)
		}
	}
}

// sound demands of a mended cluster in which nothing is young that each VIP is one owner's, is in a range and has its IPAddress, or that
// somebody was told; and that no address is taken by what we or the API server made for an import and nobody uses.
func sound(seen ipam.Seen, told []ipam.Finding) error {
	if seen.Unsupported {
		return nil
	}
	for _, svc := range seen.Services {
		for _, text := range svc.Spec.ClusterIPs {
			a := netip.MustParseAddr(text)
			reported := slices.ContainsFunc(told, func(f ipam.Finding) bool { return f.Address == a && f.Action == ipam.Report })
			if ip := find(seen, a); svc.Labels[derived.LabelManagedBy] == manager && !reported && (ip == nil || ip.Spec.ParentRef.Name != svc.Name || !covered(seen, a)) {
				return fmt.Errorf("%s of %s is not sound, and nobody was told\n%s", a, svc.Name, describe(seen))
			}
		}
	}
	for _, ip := range seen.Addresses {
		a, ref := netip.MustParseAddr(ip.Name), ip.Spec.ParentRef
		made := ip.Labels[networkingv1.LabelManagedBy]
		if user(seen, a, nil) || made != manager && (made != apiManager || !strings.HasPrefix(ref.Name, "derived-")) {
			continue
		}
		if fence := ref.Resource == "servicecidrs" && covered(seen, a); !fence {
			return fmt.Errorf("%s is leaked\n%s", a, describe(seen))
		}
	}
	return nil
}

func covered(seen ipam.Seen, a netip.Addr) bool {
	return slices.ContainsFunc(seen.Ranges, func(c *networkingv1.ServiceCIDR) bool { return netip.MustParsePrefix(c.Spec.CIDRs[0]).Contains(a) })
}

func describe(seen ipam.Seen) string {
	var b strings.Builder
	fmt.Fprintf(&b, "now %s\n", seen.Now)
	for _, x := range seen.Imports {
		fmt.Fprintf(&b, "import %s/%s %v\n", x.Namespace, x.Name, x.Spec.IPs)
	}
	for _, x := range seen.Services {
		fmt.Fprintf(&b, "service %s/%s %v %v of %s, made %s\n", x.Namespace, x.Name, x.Spec.ClusterIPs, x.Annotations, x.Labels[derived.LabelManagedBy], x.CreationTimestamp)
	}
	for _, x := range seen.Addresses {
		fmt.Fprintf(&b, "address %s %+v of %s, made %s\n", x.Name, *x.Spec.ParentRef, x.Labels[networkingv1.LabelManagedBy], x.CreationTimestamp)
	}
	for _, x := range seen.Ranges {
		fmt.Fprintf(&b, "range %s %v\n", x.Name, x.Spec.CIDRs)
	}
	return b.String()
}

// RandomCluster is one in which everything that can be broken is.
func RandomCluster(r *rand.Rand) ipam.Seen {
	seen := ipam.Seen{Manager: manager, Now: start.Add(time.Hour), Unsupported: r.IntN(20) == 0}
	made := func() metav1.Time {
		return metav1.NewTime(seen.Now.Add(-time.Duration(1+r.IntN(120)) * time.Second))
	}
	vip := func() string { return fmt.Sprintf("10.0.0.%d", 1+r.IntN(12)) }
	for i := range 5 {
		name := fmt.Sprintf("s%d", i)
		imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{derived.LabelManagedBy: manager}}}
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: derived.Name("a", name), CreationTimestamp: made(),
			Labels: map[string]string{derived.LabelManagedBy: manager}, Annotations: map[string]string{derived.AnnotationImport: "a/" + name}}}
		svc.Spec.ClusterIPs = []string{vip()}
		imp.Spec.IPs = svc.Spec.ClusterIPs
		if r.IntN(4) == 0 {
			svc.Annotations[derived.AnnotationUnusedSince] = seen.Now.Add(-time.Duration(r.IntN(120)) * time.Minute).Format(time.RFC3339)
		}
		if r.IntN(4) > 0 {
			seen.Imports = append(seen.Imports, imp)
		}
		if r.IntN(4) > 0 {
			seen.Services = append(seen.Services, svc)
		}
	}
	for i := range r.IntN(3) {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprintf("other%d", i), CreationTimestamp: made()}}
		svc.Spec.ClusterIPs = []string{vip()}
		seen.Services = append(seen.Services, svc)
	}
	for i, cidr := range []string{"10.0.0.0/29", "10.0.0.8/30"} {
		if r.IntN(5) > 0 {
			c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("range%d", i)}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
			seen.Ranges = append(seen.Ranges, c)
		}
	}
	for i := range 12 {
		if r.IntN(3) > 0 {
			seen.Addresses = append(seen.Addresses, randomAddress(r, i+1, made()))
		}
	}
	return seen
}

func randomAddress(r *rand.Rand, last int, made metav1.Time) *networkingv1.IPAddress {
	ip := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("10.0.0.%d", last), UID: types.UID(fmt.Sprint(last)), CreationTimestamp: made,
		Labels: map[string]string{networkingv1.LabelManagedBy: pick(r, manager, apiManager, apiManager, "metallb")}}}
	name := fmt.Sprintf("s%d", r.IntN(6))
	ip.Spec.ParentRef = pick(r,
		&networkingv1.ParentReference{Resource: "services", Namespace: "a", Name: derived.Name("a", name)},
		&networkingv1.ParentReference{Resource: "services", Namespace: "a", Name: fmt.Sprintf("other%d", r.IntN(3))},
		&networkingv1.ParentReference{Group: networkingv1.GroupName, Resource: "servicecidrs", Name: fmt.Sprintf("range%d", r.IntN(2))},
		&networkingv1.ParentReference{Group: "example.com", Resource: "things", Name: "x"})
	return ip
}
