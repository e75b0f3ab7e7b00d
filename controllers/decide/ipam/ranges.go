package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

const (
	// LabelVIPs marks a ServiceCIDR that VIPs come from. Ordinary Services may draw from it as well.
	LabelVIPs = "clusterset-dns.io/vips"
	// AnnotationDrain on a ServiceCIDR asks that no new VIP comes from it.
	AnnotationDrain = "clusterset-dns.io/drain"
)

// Mode is where new VIPs come from (DESIGN §5).
type Mode string

// ModeShared leaves the choice to the API server; ModePreferred uses the ranges for VIPs while they have free
// addresses.
const (
	ModeShared    Mode = "shared"
	ModePreferred Mode = "preferred"
)

// Use is the value of LabelVIPs.
type Use string

// Ordinary ranges are for the cluster's own Services; Shared ranges are for VIPs as well.
const (
	Ordinary Use = ""
	Shared   Use = "shared"
	retired  Use = "exclusive" // of earlier versions: read as Shared
)

// State says what a range gives out.
type State uint8

// A Ready range gives out any free address; the others give out no new ones. A Service can still request a specific
// address of a Draining range.
const (
	Ready State = iota
	NotReady
	Draining
	Terminating
)

// Range is one prefix of a ServiceCIDR.
type Range struct {
	Name   string // of the ServiceCIDR
	Prefix netip.Prefix
	State  State
	Use    Use
}

// mapped holds IPv4 addresses in IPv6 notation, which no ServiceCIDR may have.
var mapped = netip.MustParsePrefix("::ffff:0:0/96")

// Ranges returns the ranges of a ServiceCIDR. The error names what it leaves out, and the remedy.
func Ranges(cidr *networkingv1.ServiceCIDR) (ranges []Range, err error) {
	use := Use(cidr.Labels[LabelVIPs])
	switch use {
	case Ordinary, Shared:
	case retired:
		use = Shared
	default:
		err = fmt.Errorf(
			"ServiceCIDR %s: label %s=%s is not %q; no VIP comes from it",
			cidr.Name,
			LabelVIPs,
			use,
			Shared,
		)
		use = Ordinary
	}
	_, drain := cidr.Annotations[AnnotationDrain]
	state := Ready
	switch ready := meta.FindStatusCondition(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady); {
	case cidr.DeletionTimestamp != nil:
		state = Terminating
	case ready != nil && ready.Status != "True": // without the condition it is ready, as in the API server's allocator
		state = NotReady
	case drain:
		state = Draining
	}
	for _, text := range cidr.Spec.CIDRs {
		p, parseErr := netip.ParsePrefix(text)
		if parseErr != nil || p.Overlaps(mapped) {
			err = fmt.Errorf("ServiceCIDR %s: %q is no CIDR of IPv4 or IPv6; it is left out", cidr.Name, text)
			continue
		}
		ranges = append(ranges, Range{Name: cidr.Name, Prefix: p.Masked(), State: state, Use: use})
	}
	return ranges, err
}

// Holding returns the held addresses that r covers and no other remaining range does. They prevent the deletion of r
// (SPEC V3).
func Holding(r Range, all []Range, held []Held) (out []Held) {
	var cover []span
	for _, other := range all {
		if s, ok := usable(other.Prefix); ok && other != r && other.State != Terminating {
			cover = append(cover, s)
		}
	}
	cover = merge(cover)
	own, ok := usable(r.Prefix)
	for _, h := range held {
		a := h.Address.Unmap()
		if ok && r.Prefix.Contains(a) && contains([]span{own}, numberOf(a)) && !contains(cover, numberOf(a)) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b Held) int { return a.Address.Compare(b.Address) })
	return out
}

// Usage counts the addresses of a range (SPEC V6).
type Usage struct {
	Range     Range
	Allocated uint64
	Available uint64 // saturates
}

// Usages returns the Usage of each range. An address in two ranges counts in both.
func Usages(ranges []Range, taken []netip.Addr) []Usage {
	sorted := make([]number, 0, len(taken))
	for _, a := range taken {
		if a.IsValid() {
			sorted = append(sorted, numberOf(a.Unmap()))
		}
	}
	slices.SortFunc(sorted, number.cmp)
	sorted = slices.Compact(sorted)
	usages := make([]Usage, 0, len(ranges))
	for _, r := range ranges {
		u := Usage{Range: r}
		if s, ok := usable(r.Prefix); ok {
			from, _ := slices.BinarySearchFunc(sorted, s.first, number.cmp)
			to, found := slices.BinarySearchFunc(sorted, s.last, number.cmp)
			if found {
				to++
			}
			u.Allocated = uint64(to - from)
			size := s.last.minus(s.first)
			if u.Available = ^uint64(0); size.high == 0 && size.low < ^uint64(0) {
				u.Available = size.low + 1 - u.Allocated
			}
		}
		usages = append(usages, u)
	}
	return usages
}
