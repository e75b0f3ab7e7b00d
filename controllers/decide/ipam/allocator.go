package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Allocator answers for one request after the other, at a cost that depends neither on how many addresses are held nor on how many ranges
// there are (V5). It knows what it was told: Hold and Drop follow the watches, Fit the ranges and the mode. Not safe for concurrent use.
type Allocator struct {
	mode    Mode
	unknown bool // no range was ever seen: a previous address cannot be judged by them (V7)
	pools   [2]*pool
	claims  map[netip.Addr][]claim
	owned   map[Owner][]claim // of claims, those that are not foreign
	// soonest is when the first quarantine ends; zero without any.
	soonest time.Time
}

// claim is a reason not to give an address to others. until is zero for what is held.
type claim struct {
	owner   Owner
	address netip.Addr
	until   time.Time
	foreign bool
}

func (c claim) quarantine() bool { return !c.until.IsZero() }

// NewAllocator for these ranges. In mode shared, no ranges means that they are not known (V7).
func NewAllocator(mode Mode, ranges []Range) *Allocator {
	a := &Allocator{claims: map[netip.Addr][]claim{}, owned: map[Owner][]claim{}}
	a.Fit(mode, ranges)
	return a
}

// Fit goes on with these ranges and this mode, as NewAllocator takes them; what is held or in quarantine stays so.
func (a *Allocator) Fit(mode Mode, ranges []Range) {
	a.mode, a.unknown = mode, mode == ModeShared && len(ranges) == 0
	a.pools = [2]*pool{newPool(corev1.IPv4Protocol, mode, ranges), newPool(corev1.IPv6Protocol, mode, ranges)}
	for address := range a.claims {
		a.pool(family(address)).take(numberOf(address))
	}
}

func (a *Allocator) pool(f corev1.IPFamily) *pool {
	if f == corev1.IPv4Protocol {
		return a.pools[0]
	}
	return a.pools[1]
}

// Hold notes that an address is in use. To note it again changes nothing. One address may be held by several (doubled, V4).
func (a *Allocator) Hold(h Held) {
	a.add(claim{owner: h.Owner, address: canonical(h.Address), foreign: h.Foreign})
}

// Drop takes back what Hold noted.
func (a *Allocator) Drop(h Held) {
	a.remove(claim{owner: h.Owner, address: canonical(h.Address), foreign: h.Foreign})
}

// Owned are the addresses that an owner holds, in their order.
func (a *Allocator) Owned(owner Owner) (all []netip.Addr) {
	for _, c := range a.owned[owner] {
		all = append(all, c.address)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// Gives tells whether an address is one of those that new VIPs come from.
func (a *Allocator) Gives(address netip.Addr) bool {
	address = canonical(address)
	_, ok := a.pool(family(address)).fresh.position(numberOf(address))
	return ok
}

// Quarantine keeps an address from everybody until then; of two ends the later counts.
func (a *Allocator) Quarantine(q Quarantined) {
	kept := claim{address: canonical(q.Address), until: q.Until, foreign: true}
	if !kept.quarantine() {
		return
	}
	claims := a.claims[kept.address]
	if i := slices.IndexFunc(claims, claim.quarantine); i >= 0 {
		if !claims[i].until.Before(kept.until) {
			return
		}
		a.remove(claims[i])
	}
	a.add(kept)
	if a.soonest.IsZero() || kept.until.Before(a.soonest) {
		a.soonest = kept.until
	}
}

func (a *Allocator) add(c claim) {
	if !c.address.IsValid() || slices.Contains(a.claims[c.address], c) {
		return
	}
	a.claims[c.address] = append(a.claims[c.address], c)
	if !c.foreign {
		a.owned[c.owner] = append(a.owned[c.owner], c)
	}
	a.pool(family(c.address)).take(numberOf(c.address))
}

func (a *Allocator) remove(c claim) {
	claims := a.claims[c.address]
	i := slices.Index(claims, c)
	if i < 0 {
		return
	}
	if !c.foreign {
		own := a.owned[c.owner]
		at := slices.Index(own, c)
		if own = slices.Delete(own, at, at+1); len(own) == 0 {
			delete(a.owned, c.owner)
		} else {
			a.owned[c.owner] = own
		}
	}
	if claims = slices.Delete(claims, i, i+1); len(claims) > 0 {
		a.claims[c.address] = claims
		return
	}
	delete(a.claims, c.address)
	a.pool(family(c.address)).give(numberOf(c.address))
}

// expire drops the quarantines that have ended. It looks at them only when one has.
func (a *Allocator) expire(now time.Time) {
	if a.soonest.IsZero() || now.Before(a.soonest) {
		return
	}
	a.soonest = time.Time{}
	var over []claim
	for _, claims := range a.claims {
		for _, c := range claims {
			switch {
			case !c.quarantine():
			case !now.Before(c.until):
				over = append(over, c)
			case a.soonest.IsZero() || c.until.Before(a.soonest):
				a.soonest = c.until
			}
		}
	}
	for _, c := range over {
		a.remove(c)
	}
}

// Assign decides what these requests get: first everybody's previous address, then a free one each, the oldest request first. It notes
// nothing: who follows the plan calls Hold. Families are independent, so that a full one takes no other down. wanted is not changed.
func (a *Allocator) Assign(wanted []Wanted, now time.Time) (reserve []Reservation, refused []Refusal) {
	a.expire(now)
	type request struct {
		Reservation
		had bool // its previous address
	}
	var requests []request
	defer func() {
		for _, r := range requests {
			if r.Address.IsValid() {
				a.Drop(Held{Owner: r.Owner, Address: r.Address})
			}
		}
	}()
	for _, w := range byAge(wanted) {
		for i, f := range w.Families {
			if slices.Contains(w.Families[:i], f) || a.holds(w.Owner, f) {
				continue
			}
			r := request{Reservation: Reservation{Owner: w.Owner, Family: f}}
			if r.Address, r.Lost = a.previous(w, f); r.Address.IsValid() {
				r.had = true
				a.Hold(Held{Owner: r.Owner, Address: r.Address})
			}
			requests = append(requests, r)
		}
	}
	for i := range requests {
		r := &requests[i]
		if !r.had {
			if err := a.fresh(&r.Reservation); err != nil {
				refused = append(refused, Refusal{Owner: r.Owner, Family: r.Family, Lost: r.Lost, Err: err})
				continue
			}
			a.Hold(Held{Owner: r.Owner, Address: r.Address})
		}
		reserve = append(reserve, r.Reservation)
	}
	return reserve, refused
}

// fresh gives a request an address that nobody had: of the ranges for VIPs where the mode has them; else the API server is to choose, but
// not while a range is draining, since it would give out of that as well.
func (a *Allocator) fresh(r *Reservation) (err error) {
	if a.mode != ModeShared {
		if r.Address, err = a.free(r.Owner, r.Family); err == nil || a.mode == ModeExclusive {
			return err
		}
		r.Overflow = err
	}
	p := a.pool(r.Family)
	if !p.drained {
		return nil
	}
	var ok bool
	if r.Address, ok = p.beside.free(hash(r.Owner)); !ok {
		return fmt.Errorf("%w: none of the %d addresses of %s beside the ServiceCIDRs that are draining is free; add a ServiceCIDR, or take the annotation %s off one", ErrFull, p.beside.taken.size, r.Family, AnnotationDrain)
	}
	return nil
}

func compareOwners(a, b Owner) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func byAge(wanted []Wanted) []Wanted {
	compare := func(a, b Wanted) int {
		return cmp.Or(a.Since.Compare(b.Since), compareOwners(a.Owner, b.Owner))
	}
	if slices.IsSortedFunc(wanted, compare) {
		return wanted
	}
	wanted = slices.Clone(wanted)
	slices.SortStableFunc(wanted, compare)
	return wanted
}

// holds tells whether owner has an address of this family in use.
func (a *Allocator) holds(owner Owner, f corev1.IPFamily) bool {
	return slices.ContainsFunc(a.owned[owner], func(c claim) bool { return family(c.address) == f })
}

// previous is the first address w had that it can have again. err is why it is not the first that it names; nil if it is, or if it names
// none.
func (a *Allocator) previous(w Wanted, f corev1.IPFamily) (address netip.Addr, err error) {
	for _, previous := range w.Previous {
		if previous = canonical(previous); !previous.IsValid() || family(previous) != f {
			continue
		}
		reason := a.check(previous, w.Owner)
		if reason == nil {
			return previous, err
		}
		if err == nil {
			err = reason
		}
	}
	return netip.Addr{}, err
}

// check tells why owner cannot have this address.
func (a *Allocator) check(address netip.Addr, owner Owner) error {
	p, n := a.pool(family(address)), numberOf(address)
	switch {
	case a.unknown || contains(p.valid, n):
	case contains(p.unready, n):
		return fmt.Errorf("%s: %w: its ServiceCIDR is draining, being deleted, or not ready yet", address, ErrNotReady)
	case len(p.valid)+len(p.unready) == 0:
		return fmt.Errorf("%s: %w: no ServiceCIDR holds %s", address, ErrMismatchedNetwork, p.family)
	default:
		return fmt.Errorf("%s: %w: create a ServiceCIDR that covers it to have it again", address, ErrNotInRange)
	}
	c, ok := a.blocker(address, owner)
	switch {
	case !ok:
		return nil
	case c.quarantine():
		return fmt.Errorf("%s: %w: the API server refused it; it is not asked for again before %s", address, ErrAllocated, c.until.UTC().Format(time.RFC3339))
	default:
		return fmt.Errorf("%s: %w: in use by %s", address, ErrAllocated, c.owner)
	}
}

// blocker is a claim that keeps owner from having this address: of several, use before quarantine, then the first by name.
func (a *Allocator) blocker(address netip.Addr, owner Owner) (first claim, found bool) {
	for _, c := range a.claims[address] {
		if !c.foreign && c.owner == owner {
			continue
		}
		if !found || cmp.Or(c.until.Compare(first.until), compareOwners(c.owner, first.owner)) < 0 {
			first, found = c, true
		}
	}
	return first, found
}

// free is the address of the ranges for VIPs that this owner tries first, or the next free one behind it.
func (a *Allocator) free(owner Owner, f corev1.IPFamily) (netip.Addr, error) {
	p := a.pool(f)
	if p.none != nil {
		return netip.Addr{}, p.none
	}
	address, ok := p.fresh.free(hash(owner))
	if !ok {
		return netip.Addr{}, p.full
	}
	return address, nil
}

// hash spreads owners evenly: FNV-1a, whose high bits change little with the last letters, and so the finalizer of MurmurHash3 behind it.
func hash(owner Owner) uint64 {
	h := uint64(14695981039346656037)
	for _, text := range [3]string{owner.Namespace, "/", owner.Name} {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * 1099511628211
		}
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
