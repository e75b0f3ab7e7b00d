package ipam

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// LabelVIPs with the value Shared marks a ServiceCIDR that VIPs come from. Ordinary Services may draw from it as well.
const (
	LabelVIPs = "clusterset-dns.io/vips"
	Shared    = "shared"
)

// Mode is where new VIPs come from (DESIGN §5).
type Mode string

// ModeShared leaves the choice to the API server; ModePreferred uses the ranges for VIPs while they have free
// addresses.
const (
	ModeShared    Mode = "shared"
	ModePreferred Mode = "preferred"
)

// State says whether the API server allocates from a range.
type State uint8

// It allocates any free address of a Ready range, and none of the others.
const (
	Ready State = iota
	NotReady
	Terminating
)

// Range is one prefix of a ServiceCIDR.
type Range struct {
	Name   string // of the ServiceCIDR
	Prefix netip.Prefix
	State  State
	VIPs   bool // VIPs come from it
}

// mapped has the IPv4 addresses in IPv6 notation, which no ServiceCIDR may contain.
var mapped = netip.MustParsePrefix("::ffff:0:0/96")

// AllRanges returns the ranges of ServiceCIDRs, in the order of their names, and the errors of Ranges.
func AllRanges(cidrs []networkingv1.ServiceCIDR) (ranges []Range, errs []error) {
	for i := range cidrs {
		of, faults := Ranges(&cidrs[i])
		ranges, errs = append(ranges, of...), append(errs, faults...)
	}
	slices.SortStableFunc(ranges, func(a, b Range) int { return strings.Compare(a.Name, b.Name) })
	return ranges, errs
}

// Ranges returns the valid ranges of a ServiceCIDR. Each error is a fault in it, with what follows.
func Ranges(cidr *networkingv1.ServiceCIDR) (ranges []Range, errs []error) {
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("ServiceCIDR %s: "+format, append([]any{cidr.Name}, args...)...))
	}
	label := cidr.Labels[LabelVIPs]
	if label != "" && label != Shared {
		fault("label %s=%s is not %q; no VIP comes from it", LabelVIPs, label, Shared)
	}
	state := Ready
	switch ready := meta.FindStatusCondition(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady); {
	case cidr.DeletionTimestamp != nil:
		state = Terminating
	case ready != nil && ready.Status != "True": // without the condition it is ready, as in the API server's allocator
		state = NotReady
	}
	for _, text := range cidr.Spec.CIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Overlaps(mapped) {
			fault("%q is no CIDR of IPv4 or IPv6, or has IPv4 addresses in IPv6 notation; it is left out", text)
			continue
		}
		vips := label == Shared
		if vips && whole64(p) != p {
			vips = false
			fault("the API server allocates nothing from %s, which is larger than a /64; no VIP comes from it", p)
		}
		ranges = append(ranges, Range{Name: cidr.Name, Prefix: p.Masked(), State: state, VIPs: vips})
	}
	return ranges, errs
}

// Holding returns the held VIPs in r that are in no other range that remains. They prevent the deletion of r (SPEC V3).
func Holding(r Range, all []Range, held []Held) (out []Held) {
	for _, h := range held {
		a := h.Address.Unmap()
		if usable(r.Prefix, a) && !slices.ContainsFunc(all, func(o Range) bool {
			return o != r && o.State != Terminating && whole64(o.Prefix) == o.Prefix && usable(o.Prefix, a)
		}) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b Held) int { return a.Address.Compare(b.Address) })
	return out
}

// usable reports whether the API server allocates an address from p: any but the network address and, for IPv4, the
// broadcast address.
func usable(p netip.Prefix, a netip.Addr) bool {
	return p.Contains(a) && a != p.Masked().Addr() && (a.Is6() || a != lastOf(p))
}

// size returns how many addresses of p are usable. It saturates.
func size(p netip.Prefix) uint64 {
	n := p.Addr().BitLen() - p.Bits()
	if n >= 64 {
		return ^uint64(0)
	}
	all := uint64(1) << n
	if p.Addr().Is4() {
		return max(all, 2) - 2
	}
	return all - 1
}

// nth returns the nth address after the network address of p.
func nth(p netip.Prefix, n uint64) netip.Addr {
	b := p.Masked().Addr().As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+n)
	return netip.AddrFrom16(b).Unmap()
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// Usage counts the addresses of a range (SPEC V6).
type Usage struct {
	Range     Range
	Allocated uint64
	Available uint64 // saturates
}

// OtherRanges is the label in metrics of all ranges that have none of their own.
const OtherRanges = "others"

// RangeLabel returns the label in metrics of the range for VIPs at index i. From index 64 on, all share OtherRanges.
func RangeLabel(i int, r netip.Prefix) string {
	if i >= 64 {
		return OtherRanges
	}
	return r.String()
}

// Usages returns the Usage of each range. An address in two ranges counts in both.
func Usages(ranges []Range, taken []netip.Addr) []Usage {
	sorted := make([]netip.Addr, 0, len(taken))
	for _, a := range taken {
		sorted = append(sorted, a.Unmap())
	}
	slices.SortFunc(sorted, netip.Addr.Compare)
	sorted = slices.Compact(sorted)
	usages := make([]Usage, 0, len(ranges))
	for _, r := range ranges {
		from, _ := slices.BinarySearchFunc(sorted, r.Prefix.Masked().Addr(), netip.Addr.Compare)
		u := Usage{Range: r}
		for _, a := range sorted[from:] {
			if !r.Prefix.Contains(a) {
				break
			}
			if usable(r.Prefix, a) {
				u.Allocated++
			}
		}
		u.Available = size(r.Prefix) - u.Allocated
		usages = append(usages, u)
	}
	return usages
}
