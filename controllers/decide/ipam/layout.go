package ipam

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// MaxFence is how many addresses a fenced range has at most: each is a reservation, made before the range (DESIGN §5).
const MaxFence = 256

// Standing is what a member has, and what it may have.
type Standing struct {
	Mode     Mode
	Families []corev1.IPFamily // this cluster's
	Blocks   []netip.Prefix    // the hub's grants to it, of both families
	Ranges   []Range           // of all its ServiceCIDRs
	Ours     map[string]bool   // the names of those that the agent made
	Held     []Held            // in use, by anybody; reservations of a fence are not
}

// Layout is what ranges a member ought to have.
type Layout struct {
	Make    []Range // to be made, after their fence where they are exclusive
	Fence   []Range // to be fenced, or to stay so; those of Make are not among them
	Remove  []string
	Altered []Range // of a name that the agent gives to other ranges: of another prefix, or for another use
	// Emptying are the ranges that are to go, or are drained, once nothing is in them: nothing else says when that is.
	Emptying []netip.Prefix
	// Want is how many blocks of each family it wants in all. Another is asked for before the last one is full.
	Want map[corev1.IPFamily]int
}

// Named is what the range of a use is called that the agent makes of a prefix: a second pass finds what the first has begun. Of one prefix
// there may be one of each use, while VIPs of another mode keep the former.
func Named(p netip.Prefix, use Use) Range {
	name := "clusterset-vips-" + string(use) + "-" + strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p.String())
	return Range{Name: name, Prefix: p, Use: use}
}

// named is the range that the agent gives this name to.
func named(name string) (r Range, is bool) {
	for _, use := range []Use{Shared, Exclusive} {
		text, found := strings.CutPrefix(name, "clusterset-vips-"+string(use)+"-")
		slash := strings.LastIndexByte(text, '-')
		if !found || slash < 0 {
			continue
		}
		for _, sign := range []string{".", ":"} {
			p, err := netip.ParsePrefix(strings.ReplaceAll(text[:slash], "-", sign) + "/" + text[slash+1:])
			if err == nil && Named(p, use).Name == name {
				return Named(p, use), true
			}
		}
	}
	return r, false
}

// altered tells whether a ServiceCIDR has the name that the agent gives to one of another prefix or for another use, by whosever hand. There
// can be no other of that name.
func altered(r Range) bool {
	own, is := named(r.Name)
	return is && (own.Prefix != r.Prefix || own.Use != r.Use)
}

// Lay decides what ranges there are to be. What is there by hand stays. What the agent made stays while the mode has a use for it, or while
// a VIP is in it that no other range covers: existing VIPs stay where they are (V2).
func Lay(s Standing) Layout {
	out := Layout{Want: map[corev1.IPFamily]int{}}
	for _, r := range s.Ranges {
		if altered(r) {
			out.Altered = append(out.Altered, r)
		}
		switch {
		case r.Use != Exclusive || r.State == Terminating || !Fits(r.Prefix):
		case s.Mode == ModeExclusive || s.Mode == ModeShared && s.Ours[r.Name]:
			out.Fence = append(out.Fence, r)
		}
	}
	if s.Mode != ModeShared {
		for _, f := range s.Families {
			out.add(s, f)
		}
	}
	out.Remove, out.Emptying = superfluous(s)
	for _, r := range s.Ranges {
		if r.Use != Ordinary && (r.State == Draining || r.State == Terminating) {
			out.Emptying = append(out.Emptying, r.Prefix)
		}
	}
	out.Fence = slices.DeleteFunc(out.Fence, func(r Range) bool { return slices.Contains(out.Remove, r.Name) })
	return out
}

// Fits tells whether a range is small enough to be fenced.
func Fits(p netip.Prefix) bool { return p.Addr().BitLen()-p.Bits() <= 8 }

// add gives a family the ranges that it is short of.
func (l *Layout) add(s Standing, f corev1.IPFamily) {
	var blocks []netip.Prefix
	for _, b := range s.Blocks {
		if family(b.Addr()) == f && !whole64(b).Overlaps(mapped) { // else it would not be read back (Ranges)
			blocks = append(blocks, b.Masked())
		}
	}
	made := 0
	if s.Mode == ModePreferred {
		for _, b := range blocks {
			one := Named(whole64(b), Shared)
			if slices.ContainsFunc(s.Ranges, func(r Range) bool {
				return r.State != Terminating && (r.Name == one.Name || r.Use == Shared && covers(r.Prefix, one.Prefix))
			}) {
				continue
			}
			l.Make = append(l.Make, again(one, s.Ranges))
			made++
		}
	}
	short := Low(Room(s, f))
	if s.Mode == ModeExclusive && short {
		if p, ok := nextFence(s, blocks); ok {
			l.Make = append(l.Make, Named(p, Exclusive))
			made++
		}
	}
	l.Want[f] = max(1, len(blocks))
	if short && made == 0 && len(blocks) > 0 {
		l.Want[f]++
	}
}

// again is a range by a name that is free. One that is being deleted has its name for as long as ordinary Services are in it, and the API server
// takes another of the same prefix, which ends that.
func again(r Range, all []Range) Range {
	first := r.Name
	for n := 2; slices.ContainsFunc(all, func(o Range) bool { return o.Name == r.Name }); n++ {
		r.Name = fmt.Sprintf("%s-again-%d", first, n)
	}
	return r
}

// serves tells whether VIPs of this mode come from r, now or once it is ready.
func serves(r Range, mode Mode) bool {
	return mode.takes(r.Use) && (r.State == Ready || r.State == NotReady || r.State == Unfenced) && (mode != ModeExclusive || Fits(r.Prefix))
}

// Room is how many addresses of a family the ranges for VIPs have, and how many of them are free; neither is more than a number holds.
func Room(s Standing, f corev1.IPFamily) (free, size int) {
	var spans []span
	for _, r := range s.Ranges {
		if one, ok := usable(r.Prefix); ok && family(r.Prefix.Addr()) == f && serves(r, s.Mode) {
			spans = append(spans, one)
		}
	}
	spans = merge(spans)
	for _, one := range spans {
		if d := one.last.minus(one.first); d.high == 0 && d.low < maxSize {
			size += int(d.low) + 1
		} else {
			size += maxSize
		}
	}
	taken := map[netip.Addr]bool{}
	for _, h := range s.Held {
		if a := canonical(h.Address); a.IsValid() && contains(spans, numberOf(a)) {
			taken[a] = true
		}
	}
	return size - len(taken), size
}

// Low tells whether little room is left: a quarter of what one fenced range has, or of all if that is less. So the next range is there
// before the last one is full.
func Low(free, size int) bool { return free*4 <= min(size, MaxFence) }

// nextFence is the lowest range that can be fenced in the blocks, beside all ranges but those that the agent made for another mode, as
// they were made.
func nextFence(s Standing, blocks []netip.Prefix) (netip.Prefix, bool) {
	var taken []netip.Prefix
	for _, r := range s.Ranges {
		if r.Use == Exclusive || !s.Ours[r.Name] || altered(r) {
			taken = append(taken, r.Prefix)
		}
		if own, is := named(r.Name); is && own.Use == Exclusive && own.Prefix != r.Prefix {
			taken = append(taken, own.Prefix) // there can be no other of that name
		}
	}
	for _, b := range blocks {
		length := max(b.Bits(), b.Addr().BitLen()-8)
		if p, err := Block([]netip.Prefix{b}, taken, family(b.Addr()), length); err == nil {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// whole64 is the part of a block that one ServiceCIDR can have: the API server makes no allocator for more than a /64.
func whole64(b netip.Prefix) netip.Prefix {
	if b.Addr().Is6() && b.Bits() < 64 {
		return netip.PrefixFrom(b.Addr(), 64)
	}
	return b
}

func covers(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// superfluous are the ranges that the agent made, that the mode has no use for, and that no VIP needs; kept are those that a VIP keeps.
func superfluous(s Standing) (names []string, kept []netip.Prefix) {
	var vips []Held
	for _, h := range s.Held {
		if !h.Foreign {
			vips = append(vips, h)
		}
	}
	stay := slices.DeleteFunc(slices.Clone(s.Ranges), func(r Range) bool { return r.State == NotReady || r.State == Terminating })
	for _, r := range s.Ranges {
		unused := s.Mode == ModeShared || s.Mode == ModePreferred && r.Use == Exclusive || s.Mode == ModeExclusive && r.Use == Shared
		if !s.Ours[r.Name] || !unused || r.State == Terminating {
			continue
		}
		if len(Holding(r, stay, vips)) > 0 {
			kept = append(kept, r.Prefix)
			continue
		}
		names = append(names, r.Name)
		stay = slices.DeleteFunc(stay, func(o Range) bool { return o.Name == r.Name })
	}
	return names, kept
}

// Remade tells whether the agent would make a range of its own again, were it deleted: at once, or, fenced ones, when room is low.
func Remade(s Standing, r Range) bool {
	if !s.Ours[r.Name] || !s.Mode.takes(r.Use) {
		return false
	}
	s.Ranges = slices.DeleteFunc(slices.Clone(s.Ranges), func(o Range) bool { return o.Name == r.Name })
	if s.Mode == ModeExclusive {
		_, free := nextFence(s, []netip.Prefix{r.Prefix})
		return free && slices.ContainsFunc(s.Blocks, func(b netip.Prefix) bool { return covers(b.Masked(), r.Prefix) })
	}
	return slices.ContainsFunc(Lay(s).Make, func(m Range) bool { return m.Prefix == r.Prefix && m.Use == r.Use })
}

// Addresses are those that a range gives out, in their order.
func Addresses(p netip.Prefix) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		s, ok := usable(p)
		for a := s.first; ok && yield(a.addr()) && a != s.last; {
			a = a.plus(1)
		}
	}
}
