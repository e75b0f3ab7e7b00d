package ipam

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LabelVIPs on a ServiceCIDR says that VIPs come from it: alone (exclusive, fenced) or beside ordinary Services (shared).
	LabelVIPs = "clusterset-dns.io/vips"
	// AnnotationDrain on a ServiceCIDR asks that no VIP comes from it any more, so that it can be deleted once the last has gone.
	AnnotationDrain = "clusterset-dns.io/drain"
)

// Use says for whom a range is.
type Use string

// The cluster's own; for VIPs, and ordinary Services may draw from it; for VIPs only, fenced by reservations.
const (
	Ordinary  Use = ""
	Shared    Use = "shared"
	Exclusive Use = "exclusive"
)

// State says what a range gives out.
type State uint8

// Everything free; nothing yet; nothing any more, and its addresses stay valid; the same, and it is being deleted; nothing while its fence
// does not stand, but for those who had an address of it: ready to the API server, and so no reason for a VIP to move (I6).
const (
	Ready State = iota
	NotReady
	Draining
	Terminating
	Unfenced
)

// Range is one prefix of a ServiceCIDR.
type Range struct {
	Name   string // of the ServiceCIDR
	Prefix netip.Prefix
	State  State
	Use    Use
}

// mapped is IPv4 in disguise, which is a number in no range of IPv6 here.
var mapped = netip.MustParsePrefix("::ffff:0:0/96")

// Ranges are those of a ServiceCIDR. err names what of it was left out, and how to mend that.
func Ranges(cidr *networkingv1.ServiceCIDR) (ranges []Range, err error) {
	use := Use(cidr.Labels[LabelVIPs])
	if use != Ordinary && use != Shared && use != Exclusive {
		err = fmt.Errorf("ServiceCIDR %s: label %s=%s is neither %q nor %q; no VIP comes from it until it is", cidr.Name, LabelVIPs, use, Shared, Exclusive)
		use = Ordinary
	}
	_, drain := cidr.Annotations[AnnotationDrain]
	state := Ready
	switch {
	case cidr.DeletionTimestamp != nil:
		state = Terminating
	case slices.ContainsFunc(cidr.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == networkingv1.ServiceCIDRConditionReady && c.Status != metav1.ConditionTrue
	}): // none means ready, as in the API server's allocator
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

// Holding are the addresses that keep r from being deleted: those that it can give out and no other range which stays (V3, and what must
// move before a drain ends). A range that is itself being deleted covers nothing; nor does any its own first address, or its last of IPv4.
func Holding(r Range, all []Range, held []Held) []Held {
	var cover []span
	for _, other := range all {
		if s, ok := usable(other.Prefix); ok && other != r && other.State != Terminating {
			cover = append(cover, s)
		}
	}
	cover = merge(cover)
	own, ok := usable(r.Prefix)
	var holding []Held
	for _, h := range held {
		a := canonical(h.Address)
		if ok && r.Prefix.Contains(a) && contains([]span{own}, numberOf(a)) && !contains(cover, numberOf(a)) {
			holding = append(holding, h)
		}
	}
	slices.SortFunc(holding, func(a, b Held) int { return a.Address.Compare(b.Address) })
	return holding
}

// Usage is how much of a range is in use (V6). Ranges that overlap count what they share each.
type Usage struct {
	Range     Range
	Allocated uint64
	Available uint64 // at most the largest number there is
}

// Usages counts the addresses that are taken in each range.
func Usages(ranges []Range, taken []netip.Addr) []Usage {
	sorted := make([]number, 0, len(taken))
	for _, a := range taken {
		if a.IsValid() {
			sorted = append(sorted, numberOf(canonical(a)))
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

// Mode is where VIPs come from (DESIGN §5).
type Mode string

// The cluster's own ranges, as the API server chooses; those for VIPs while they have room; fenced ones only.
const (
	ModeShared    Mode = "shared"
	ModePreferred Mode = "preferred"
	ModeExclusive Mode = "exclusive"
)

// takes tells whether new VIPs come from ranges of this use.
func (m Mode) takes(u Use) bool {
	return m == ModePreferred && u != Ordinary || m == ModeExclusive && u == Exclusive
}

// maxSize is how many addresses of one range are given out: more than any cluster holds, and few enough that positions of a million
// ranges are numbers.
const maxSize = 1 << 40

// pool are the addresses of one family: those a previous address may be in, those that new VIPs come from, and those that they come from
// where an API server is not to choose: it knows of no drain.
type pool struct {
	family  corev1.IPFamily
	valid   []span // of ranges that are ready
	unready []span
	fresh   supply
	beside  supply // while a range is draining, those of the others; fenced ones are no API server's choice either
	drained bool   // a range of this family is draining
	none    error  // why fresh can give nothing; nil when it can
	full    error  // what is said when it has nothing left
}

// supply is a set of addresses, one range behind the other, and which of them are taken.
type supply struct {
	spans []span
	start []uint64 // the position of each
	taken positions
}

func newSupply(spans []span) supply {
	spans = merge(spans)
	s := supply{spans: spans, taken: positions{words: map[uint64]uint64{}}}
	for _, one := range spans {
		s.start = append(s.start, s.taken.size)
		s.taken.size += one.last.minus(one.first).low + 1
	}
	return s
}

func newPool(f corev1.IPFamily, mode Mode, ranges []Range) *pool {
	p := &pool{family: f}
	own := 0
	var fresh, beside []span
	for _, r := range ranges {
		if family(r.Prefix.Addr()) != f {
			continue
		}
		s, ok := usable(r.Prefix)
		if mode.takes(r.Use) {
			own++
		}
		if !ok {
			continue
		}
		p.drained = p.drained || r.State == Draining
		if r.State != Ready && r.State != Unfenced {
			p.unready = append(p.unready, s)
			continue
		}
		p.valid = append(p.valid, s)
		if size := s.last.minus(s.first); size.high > 0 || size.low >= maxSize {
			s.last = s.first.plus(maxSize - 1)
		}
		if mode.takes(r.Use) && r.State == Ready {
			fresh = append(fresh, s)
		}
		if r.Use != Exclusive {
			beside = append(beside, s)
		}
	}
	p.valid, p.unready = merge(p.valid), merge(p.unready)
	p.fresh = newSupply(fresh)
	if p.drained {
		p.beside = newSupply(beside)
	}
	p.none = p.why(mode, own)
	p.full = fmt.Errorf("%w: none of the %d addresses of %s for VIPs is free; add a ServiceCIDR labelled %s, or room to the ClusterSet's pools", ErrFull, p.fresh.taken.size, f, LabelVIPs)
	return p
}

// why names the reason for which no address at all can come from the ranges for VIPs; nil if one can.
func (p *pool) why(mode Mode, own int) error {
	switch {
	case mode == ModeShared || len(p.fresh.spans) > 0:
		return nil
	case own == 0:
		return fmt.Errorf("%w: no ServiceCIDR for VIPs of mode %s holds %s; add one labelled %s=%s, or pools of this family to the ClusterSet",
			ErrMismatchedNetwork, mode, p.family, LabelVIPs, map[Mode]Use{ModePreferred: Shared, ModeExclusive: Exclusive}[mode])
	default:
		return fmt.Errorf("%w: every ServiceCIDR for VIPs that holds %s is draining, being deleted, not ready yet, or too small; add one", ErrNotReady, p.family)
	}
}

// take notes that an address is in use, and give that it is not.
func (p *pool) take(n number) {
	for _, s := range [2]*supply{&p.fresh, &p.beside} {
		if position, ok := s.position(n); ok {
			s.taken.take(position)
		}
	}
}

func (p *pool) give(n number) {
	for _, s := range [2]*supply{&p.fresh, &p.beside} {
		if position, ok := s.position(n); ok {
			s.taken.give(position)
		}
	}
}

// free is the address that a hash leads to, or the next free one behind it.
func (s *supply) free(hash uint64) (netip.Addr, bool) {
	first, _ := bits.Mul64(hash, s.taken.size)
	position, ok := s.taken.from(first)
	if !ok {
		return netip.Addr{}, false
	}
	return s.at(position), true
}

// position of an address among these.
func (s *supply) position(n number) (uint64, bool) {
	i := reaching(s.spans, n)
	if i == len(s.spans) || n.cmp(s.spans[i].first) < 0 {
		return 0, false
	}
	return s.start[i] + n.minus(s.spans[i].first).low, true
}

func (s *supply) at(position uint64) netip.Addr {
	i, found := slices.BinarySearch(s.start, position)
	if !found {
		i--
	}
	return s.spans[i].first.plus(position - s.start[i]).addr()
}
