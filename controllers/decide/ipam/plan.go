package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Input is all that a plan depends on.
type Input struct {
	Mode        Mode
	Ranges      []Range // none in mode shared: not known (V7)
	Held        []Held
	Quarantined []Quarantined
	Wanted      []Wanted // every import there is; who is not among them gives up what it holds
	Now         time.Time
	// Quarantine is how long an address outlives its import; TTL the longest that an answer with it may live in a cache. The longer counts.
	Quarantine, TTL time.Duration
}

// Decide is the plan for a whole cluster. It changes nothing of its input, and does not depend on the order of anything in it.
func Decide(in Input) Plan {
	a := NewAllocator(in.Mode, in.Ranges)
	for _, h := range in.Held {
		a.Hold(h)
	}
	for _, q := range in.Quarantined {
		a.Quarantine(q)
	}
	var plan Plan
	plan.Reserve, plan.Refused = a.Assign(in.Wanted, in.Now)
	plan.Quarantine, plan.Release, plan.Next = ends(in)
	return plan
}

// place is an owner's address, or of its addresses of one family.
type place struct {
	owner   Owner
	address netip.Addr
	family  corev1.IPFamily
}

// ends decides about what is held and wanted no more: it is marked, waits, and goes.
func ends(in Input) (quarantine []Quarantined, release []Held, next time.Time) {
	until := map[place]time.Time{}
	for _, q := range in.Quarantined {
		p := place{owner: q.Owner, address: canonical(q.Address)}
		if q.Until.After(until[p]) {
			until[p] = q.Until
		}
	}
	kept := keep(in)
	done := map[place]bool{}
	for _, h := range in.Held {
		h.Address = canonical(h.Address)
		p := place{owner: h.Owner, address: h.Address}
		if h.Foreign || !h.Address.IsValid() || done[p] || kept[place{owner: h.Owner, family: family(h.Address)}] == h.Address {
			continue
		}
		done[p] = true
		end, marked := until[p]
		if !marked {
			end = in.Now.Add(max(in.Quarantine, in.TTL))
			quarantine = append(quarantine, Quarantined{Owner: h.Owner, Address: h.Address, Until: end})
		}
		if in.Now.Before(end) {
			next = earliest(next, end)
		} else if marked {
			release = append(release, h)
		}
	}
	slices.SortFunc(quarantine, func(a, b Quarantined) int { return comparePlaces(a.Address, b.Address, a.Owner, b.Owner) })
	slices.SortFunc(release, func(a, b Held) int { return comparePlaces(a.Address, b.Address, a.Owner, b.Owner) })
	return quarantine, release, next
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func comparePlaces(a, b netip.Addr, of, and Owner) int {
	return cmp.Or(a.Compare(b), compareOwners(of, and))
}

func compareOwners(a, b Owner) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// keep is the one address of each family that every owner keeps which is wanted: the best of its previous ones that it holds, else the
// lowest. One of a family that is not asked for is kept as well: no family is given up while the import lives (DESIGN §4).
func keep(in Input) map[place]netip.Addr {
	previous := map[Owner][]netip.Addr{}
	for _, w := range in.Wanted {
		previous[w.Owner] = append(previous[w.Owner], w.Previous...)
	}
	kept := make(map[place]netip.Addr, len(in.Held))
	for _, h := range in.Held {
		best, wanted := previous[h.Owner]
		address := canonical(h.Address)
		if h.Foreign || !wanted || !address.IsValid() {
			continue
		}
		p := place{owner: h.Owner, family: family(address)}
		if was, ok := kept[p]; !ok || better(address, was, best) {
			kept[p] = address
		}
	}
	return kept
}

// better tells whether a stands before b among the previous addresses, or is lower where neither is among them.
func better(a, b netip.Addr, previous []netip.Addr) bool {
	for _, p := range previous {
		switch canonical(p) {
		case a:
			return a != b
		case b:
			return false
		}
	}
	return a.Less(b)
}
