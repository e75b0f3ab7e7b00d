package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// Input is a cluster, and all that is asked in it. Every import there is is in Wanted, also those that have what they want.
type Input struct {
	Mode        ipam.Mode
	Ranges      []ipam.Range // none in mode shared: not known (V7)
	Held        []ipam.Held
	Quarantined []ipam.Quarantined
	Wanted      []ipam.Wanted
	Now         time.Time
}

// Plan is what the answers come to.
type Plan struct {
	Reserve []ipam.Reservation
	Refused []ipam.Refusal
}

// Decide asks an Allocator that heard of the second half of all after it was made, as in life.
func Decide(in Input) (plan Plan) {
	a := ipam.NewAllocator(ipam.ModeShared, in.Ranges[:len(in.Ranges)/2])
	hear := func(held []ipam.Held, quarantined []ipam.Quarantined) {
		for _, h := range held {
			a.Hold(h)
		}
		for _, q := range quarantined {
			a.Quarantine(q)
		}
	}
	held, quarantined := len(in.Held)/2, len(in.Quarantined)/2
	hear(in.Held[:held], in.Quarantined[:quarantined])
	a.Fit(in.Mode, in.Ranges)
	hear(in.Held[held:], in.Quarantined[quarantined:])
	plan.Reserve, plan.Refused = a.Assign(in.Wanted, in.Now)
	return plan
}

// Try asks decide twice, the second time with everything in the reverse order, and says all that is wrong with the plan, was done to the
// input, or does not settle: a plan that was followed leaves nothing to do.
func Try(in Input, decide func(Input) Plan) error {
	given, before := clone(in), clone(in)
	plan := decide(given)
	if !reflect.DeepEqual(given, before) {
		return fmt.Errorf("the input was changed:\n  was %+v\n  is  %+v", before, given)
	}
	backwards := clone(in)
	slices.Reverse(backwards.Ranges)
	slices.Reverse(backwards.Held)
	slices.Reverse(backwards.Quarantined)
	slices.Reverse(backwards.Wanted)
	if other := decide(backwards); fmt.Sprintf("%+v", other) != fmt.Sprintf("%+v", plan) {
		return fmt.Errorf("the order of the input matters:\n  %+v\n  %+v", plan, other)
	}
	if err := Check(in, plan); err != nil {
		return err
	}
	after := follow(clone(in), plan)
	again := decide(after)
	if err := Check(after, again); err != nil {
		return fmt.Errorf("after the plan was followed: %w", err)
	}
	for _, r := range again.Reserve {
		if r.Address.IsValid() {
			return fmt.Errorf("a plan that was followed still reserves %v", r)
		}
	}
	if len(again.Refused) > len(plan.Refused) {
		return fmt.Errorf("a plan that was followed does not settle: %+v", again)
	}
	return nil
}

func clone(in Input) Input {
	in.Ranges, in.Held, in.Quarantined, in.Wanted = slices.Clone(in.Ranges), slices.Clone(in.Held), slices.Clone(in.Quarantined), slices.Clone(in.Wanted)
	for i := range in.Wanted {
		w := &in.Wanted[i]
		w.Families, w.Previous = slices.Clone(w.Families), slices.Clone(w.Previous)
	}
	return in
}

// follow does what the plan says.
func follow(in Input, plan Plan) Input {
	for _, r := range plan.Reserve {
		if r.Address.IsValid() {
			in.Held = append(in.Held, ipam.Held{Owner: r.Owner, Address: r.Address})
		}
	}
	return in
}

// Check says what is wrong with a plan.
func Check(in Input, plan Plan) error {
	m := &model{in: in, given: map[netip.Addr]ipam.Owner{}, reserve: plan.Reserve, refuse: plan.Refused}
	if err := m.assignment(); err != nil {
		return fmt.Errorf("%w\ninput %+v\nplan  %+v", err, in, plan)
	}
	return nil
}

type model struct {
	in      Input
	given   map[netip.Addr]ipam.Owner // by this plan
	reserve []ipam.Reservation        // not looked at yet
	refuse  []ipam.Refusal
}

// gives tells whether an address is one of the range at all: neither the network's own nor the broadcast address of IPv4.
func gives(r ipam.Range, a netip.Addr) bool {
	p := r.Prefix
	if !p.Contains(a) || a == p.Masked().Addr() {
		return false
	}
	return a.Is6() || p.Contains(a.Next())
}

// new tells whether VIPs that never had an address come from such a range (DESIGN §5, the table of modes).
func (m *model) new(r ipam.Range) bool {
	switch m.in.Mode {
	case ipam.ModePreferred:
		return r.Use == ipam.Shared || r.Use == ipam.Exclusive
	case ipam.ModeExclusive:
		return r.Use == ipam.Exclusive
	}
	return false
}

// blocked tells whether somebody else has the address, or it is kept from everybody.
func (m *model) blocked(a netip.Addr, owner ipam.Owner) bool {
	for _, h := range m.in.Held {
		if h.Address == a && (h.Foreign || h.Owner != owner) {
			return true
		}
	}
	for _, q := range m.in.Quarantined {
		if q.Address == a && m.in.Now.Before(q.Until) {
			return true
		}
	}
	other, taken := m.given[a]
	return taken && other != owner
}

// why says why an address that was had cannot be had again; nil if it can.
func (m *model) why(a netip.Addr, owner ipam.Owner) error {
	if len(m.in.Ranges) == 0 && m.in.Mode == ipam.ModeShared {
		if m.blocked(a, owner) {
			return ipam.ErrAllocated
		}
		return nil
	}
	any, ready, other := false, false, false
	for _, r := range m.in.Ranges {
		if r.Prefix.Addr().Is4() == a.Is4() && r.Prefix.Bits() < a.BitLen() && !(a.Is4() && r.Prefix.Bits() == 31) {
			any = true
		}
		if gives(r, a) {
			ready = ready || r.State == ipam.Ready
			other = other || r.State != ipam.Ready
		}
	}
	switch {
	case !any:
		return ipam.ErrMismatchedNetwork
	case !ready && other:
		return ipam.ErrNotReady
	case !ready:
		return ipam.ErrNotInRange
	case m.blocked(a, owner):
		return ipam.ErrAllocated
	}
	return nil
}

type request struct {
	owner  ipam.Owner
	family corev1.IPFamily
	lost   error
	had    netip.Addr
}

// requests in order of age, with the previous address that each gets. What an owner holds it keeps.
func (m *model) requests() []request {
	wanted := slices.Clone(m.in.Wanted)
	slices.SortFunc(wanted, func(a, b ipam.Wanted) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Owner.Namespace, b.Owner.Namespace), cmp.Compare(a.Owner.Name, b.Owner.Name))
	})
	var all []request
	for _, w := range wanted {
		for i, f := range w.Families {
			holds := slices.ContainsFunc(m.in.Held, func(h ipam.Held) bool { return !h.Foreign && h.Owner == w.Owner && of(h.Address, f) })
			if holds || slices.Index(w.Families, f) != i {
				continue
			}
			r := request{owner: w.Owner, family: f}
			r.had, r.lost = m.previous(w, f)
			if r.had.IsValid() {
				m.given[r.had] = w.Owner
			}
			all = append(all, r)
		}
	}
	return all
}

func of(a netip.Addr, f corev1.IPFamily) bool { return a.Is4() == (f == corev1.IPv4Protocol) }

func (m *model) previous(w ipam.Wanted, f corev1.IPFamily) (netip.Addr, error) {
	var lost error
	for _, a := range w.Previous {
		if !of(a, f) {
			continue
		}
		why := m.why(a, w.Owner)
		if why == nil {
			return a, lost
		}
		if lost == nil {
			lost = why
		}
	}
	return netip.Addr{}, lost
}

// many is more than any input asks for: ranges with more addresses are not counted out.
const many = 300

// assignment goes through the requests, the oldest first, and strikes out what the plan says about each.
func (m *model) assignment() error {
	for _, r := range m.requests() {
		said, refused := m.strike(r)
		if said == nil && refused == nil {
			return fmt.Errorf("nothing is said about %s %s", r.owner, r.family)
		}
		lost := refused != nil && !errors.Is(refused.Lost, r.lost) || said != nil && !errors.Is(said.Lost, r.lost)
		if lost {
			return fmt.Errorf("%s %s: lost its previous address because of %v; the plan says %v %v", r.owner, r.family, r.lost, said, refused)
		}
		if r.had.IsValid() {
			if said == nil || said.Address != r.had || said.Overflow != nil {
				return fmt.Errorf("%s had %s, which it can have: %v %v", r.owner, r.had, said, refused)
			}
			continue
		}
		if err := m.judge(r, said, refused); err != nil {
			return err
		}
	}
	if len(m.reserve)+len(m.refuse) > 0 {
		return fmt.Errorf("nobody asked for %v %v", m.reserve, m.refuse)
	}
	return nil
}

// judge judges what one got that has no address to get back.
func (m *model) judge(r request, said *ipam.Reservation, refused *ipam.Refusal) error {
	var why error
	if m.in.Mode != ipam.ModeShared {
		if why = m.room(r, m.new); why == nil {
			return m.fits(r, said, refused, nil, m.new)
		}
	}
	switch {
	case m.in.Mode != ipam.ModeExclusive && m.drains(r.family):
		if m.room(r, beside) == nil {
			return m.fits(r, said, refused, why, beside)
		}
		if refused == nil || !errors.Is(refused.Err, ipam.ErrFull) {
			return fmt.Errorf("%s %s: only a range that is draining has room: %v %v", r.owner, r.family, said, refused)
		}
	case m.in.Mode != ipam.ModeExclusive:
		if said == nil || said.Address.IsValid() || !errors.Is(said.Overflow, why) {
			return fmt.Errorf("%s %s: no room (%v), so that the API server is to choose: %v", r.owner, r.family, why, said)
		}
	default:
		if refused == nil || !errors.Is(refused.Err, why) {
			return fmt.Errorf("%s %s: no room (%v): %v %v", r.owner, r.family, why, said, refused)
		}
	}
	return nil
}

// fits judges an address of these ranges, where there is room; overflow is why it is not one of those for VIPs.
func (m *model) fits(r request, said *ipam.Reservation, refused *ipam.Refusal, overflow error, from func(ipam.Range) bool) error {
	if said == nil || !said.Address.IsValid() || !errors.Is(said.Overflow, overflow) {
		return fmt.Errorf("%s %s: there is room: %v %v", r.owner, r.family, said, refused)
	}
	inside := slices.ContainsFunc(m.in.Ranges, func(x ipam.Range) bool {
		return x.State == ipam.Ready && from(x) && gives(x, said.Address)
	})
	if !inside || !of(said.Address, r.family) || m.blocked(said.Address, r.owner) || m.given[said.Address] != (ipam.Owner{}) {
		return fmt.Errorf("%s cannot have %s", r.owner, said.Address)
	}
	m.given[said.Address] = r.owner
	return nil
}

// drains tells whether a range of this family is draining, of which an API server would give out.
func (m *model) drains(f corev1.IPFamily) bool {
	return slices.ContainsFunc(m.in.Ranges, func(x ipam.Range) bool {
		first := x.Prefix.Masked().Addr().Next()
		return x.State == ipam.Draining && of(x.Prefix.Addr(), f) && gives(x, first)
	})
}

// beside are the ranges that VIPs come from where an API server is not to choose: it would give out of one that is draining.
func beside(r ipam.Range) bool { return r.Use != ipam.Exclusive }

// room is nil while some address of these ranges is free for r; else why none is.
func (m *model) room(r request, from func(ipam.Range) bool) error {
	own, ready := false, false
	for _, x := range m.in.Ranges {
		if !from(x) || !of(x.Prefix.Addr(), r.family) {
			continue
		}
		own = true
		if x.State != ipam.Ready {
			continue
		}
		n := 0
		for a := x.Prefix.Masked().Addr(); x.Prefix.Contains(a) && n < many; a = a.Next() {
			n++
			if gives(x, a) {
				ready = true
				if !m.blocked(a, r.owner) && m.given[a] == (ipam.Owner{}) {
					return nil
				}
			}
		}
	}
	switch {
	case !own:
		return ipam.ErrMismatchedNetwork
	case !ready:
		return ipam.ErrNotReady
	}
	return ipam.ErrFull
}

func (m *model) strike(r request) (said *ipam.Reservation, refused *ipam.Refusal) {
	for i, x := range m.reserve {
		if x.Owner == r.owner && x.Family == r.family {
			m.reserve = slices.Delete(slices.Clone(m.reserve), i, i+1)
			return &x, nil
		}
	}
	for i, x := range m.refuse {
		if x.Owner == r.owner && x.Family == r.family {
			m.refuse = slices.Delete(slices.Clone(m.refuse), i, i+1)
			return nil, &x
		}
	}
	return nil, nil
}
