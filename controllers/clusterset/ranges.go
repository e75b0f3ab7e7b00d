package clusterset

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// The ClusterProperties by which a member asks the hub for blocks, and reports which ranges no block may overlap
// (DESIGN §5). They reach the hub in the status of its ClusterProfile.
const (
	// PropertyBlocks is how many blocks of each family the member wants in all: BlocksWanted. Absent: one of each
	// family that has a pool.
	PropertyBlocks = "vip-blocks.clusterset-dns.io"
	// PropertyServiceRanges are its ServiceCIDRs; for one inside a block of its own, that block: FormatRanges.
	PropertyServiceRanges = "service-ranges.clusterset-dns.io"
	// PropertyPodRanges are its pod CIDRs.
	PropertyPodRanges = "pod-ranges.clusterset-dns.io"
)

// What a member may ask for and report.
const (
	MaxBlocksWanted = 64 // of each family
	MaxRanges       = 64 // in one property
)

// The shortest prefixes that a member may call its own. No cluster needs more, and one that reported more
// would leave no block to the others.
const (
	minRangeBitsV4 = 8
	minRangeBitsV6 = 16
)

// BlocksWanted is how many blocks of each family a member wants in all. 0 is a request, too: of a
// cluster without that family.
type BlocksWanted struct{ IPv4, IPv6 int }

// String is the value of PropertyBlocks.
func (b BlocksWanted) String() string { return fmt.Sprintf("ipv4=%d ipv6=%d", b.IPv4, b.IPv6) }

// ParseBlocks reads what String wrote; a family that is not named is not wanted.
func ParseBlocks(value string) (BlocksWanted, error) {
	var b BlocksWanted
	if len(value) > len("ipv4=64 ipv6=64") {
		return BlocksWanted{}, errors.New("must be ipv4=N ipv6=N")
	}
	seen := map[string]bool{}
	for field := range strings.SplitSeq(value, " ") {
		name, text, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > MaxBlocksWanted || strconv.Itoa(n) != text {
			return BlocksWanted{}, fmt.Errorf("%q: must be ipv4=N or ipv6=N, N of 0 to %d", field, MaxBlocksWanted)
		}
		switch {
		case seen[name]:
			return BlocksWanted{}, fmt.Errorf("%s is there twice", name)
		case name == "ipv4":
			b.IPv4 = n
		case name == "ipv6":
			b.IPv6 = n
		default:
			return BlocksWanted{}, fmt.Errorf("%q: must be ipv4=N or ipv6=N", field)
		}
		seen[name] = true
	}
	return b, nil
}

// FormatRanges is the value of PropertyServiceRanges or PropertyPodRanges: ranges inside others are left out. It is
// "" if there are none; then do not create the property. left are those that are not in it, because checkRange refuses
// them, or because they did not fit: the largest go in first.
func FormatRanges(ranges []netip.Prefix) (value string, left []netip.Prefix) {
	var in []netip.Prefix
	length := 0
	largest := Outermost(ranges)
	slices.SortStableFunc(largest, func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) })
	for _, p := range largest {
		text := p.String()
		if checkRange(p) != nil || len(in) == MaxRanges || length+len(text) > inventoryv1alpha1.MaxPropertyValue {
			left = append(left, p)
			continue
		}
		in = append(in, p)
		length += len(text) + len(" ")
	}
	slices.SortFunc(in, netip.Prefix.Compare)
	texts := make([]string, 0, len(in))
	for _, p := range in {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, " "), left
}

// Outermost returns the ranges that lie in no other, masked and sorted.
func Outermost(ranges []netip.Prefix) (out []netip.Prefix) {
	all := make([]netip.Prefix, 0, len(ranges))
	for _, p := range ranges {
		all = append(all, p.Masked())
	}
	slices.SortFunc(all, netip.Prefix.Compare) // one that contains others is right before them
	for _, p := range all {
		if n := len(out); n == 0 || !out[n-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// ParseRanges reads what FormatRanges wrote.
func ParseRanges(value string) ([]netip.Prefix, error) {
	if len(value) > inventoryv1alpha1.MaxPropertyValue {
		return nil, fmt.Errorf("has more than %d characters", inventoryv1alpha1.MaxPropertyValue)
	}
	if value == "" {
		return nil, nil
	}
	texts := strings.Split(value, " ")
	if len(texts) > MaxRanges {
		return nil, fmt.Errorf("has more than %d ranges", MaxRanges)
	}
	ranges := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is no CIDR; they are separated by one space each", text)
		}
		if p.Masked().String() != text {
			return nil, fmt.Errorf("%q: must be written %s", text, p.Masked())
		}
		if err := checkRange(p); err != nil {
			return nil, err
		}
		if slices.Contains(ranges, p) {
			return nil, fmt.Errorf("%s is there twice", p)
		}
		ranges = append(ranges, p)
	}
	return ranges, nil
}

func checkRange(p netip.Prefix) error {
	shortest := minRangeBitsV6
	if p.Addr().Is4() {
		shortest = minRangeBitsV4
	}
	switch {
	case p.Addr().Is4In6():
		return fmt.Errorf("%s is IPv4 in disguise", p)
	case p.Bits() < shortest:
		return fmt.Errorf("%s is larger than a /%d", p, shortest)
	}
	return nil
}
