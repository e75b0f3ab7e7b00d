package ipam

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	v4 = corev1.IPv4Protocol
	v6 = corev1.IPv6Protocol
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func owner(n int) Owner { return Owner{Namespace: "shop", Name: fmt.Sprintf("s%d", n)} }

func fenced(prefixes ...string) (ranges []Range) {
	for _, p := range prefixes {
		ranges = append(ranges, Range{Name: p, Prefix: netip.MustParsePrefix(p), Use: Exclusive})
	}
	return ranges
}

func want(n int, families ...corev1.IPFamily) Wanted {
	return Wanted{Owner: owner(n), Families: families, Since: now.Add(time.Duration(n) * time.Second)}
}

// input is a cluster, and what is asked in it; plan the answers.
type input struct {
	Mode        Mode
	Ranges      []Range
	Held        []Held
	Quarantined []Quarantined
	Wanted      []Wanted
	Now         time.Time
}

type plan struct {
	Reserve []Reservation
	Refused []Refusal
}

func decide(in input) (p plan) {
	a := NewAllocator(in.Mode, in.Ranges)
	for _, h := range in.Held {
		a.Hold(h)
	}
	for _, q := range in.Quarantined {
		a.Quarantine(q)
	}
	p.Reserve, p.Refused = a.Assign(in.Wanted, in.Now)
	return p
}

func exclusive(ranges ...Range) input { return input{Mode: ModeExclusive, Ranges: ranges, Now: now} }

// one is the address of the only reservation.
func one(t *testing.T, p plan) Reservation {
	t.Helper()
	if len(p.Reserve) != 1 || len(p.Refused) > 0 {
		t.Fatalf("%+v", p)
	}
	return p.Reserve[0]
}

func TestV1OverlappingRangesAreOnePool(t *testing.T) {
	in := exclusive(fenced("10.0.0.0/30", "10.0.0.0/29", "10.0.0.4/30")...)
	seen := map[netip.Addr]bool{}
	for n := range 7 {
		in.Wanted = append(in.Wanted, want(n, v4))
	}
	p := decide(in)
	for _, r := range p.Reserve {
		seen[r.Address] = true
	}
	// The broadcast address of the first /30 is an ordinary one of the /29.
	if len(seen) != 6 || seen[addr("10.0.0.0")] || seen[addr("10.0.0.7")] || !seen[addr("10.0.0.3")] {
		t.Errorf("%v", seen)
	}
	if len(p.Refused) != 1 || p.Refused[0].Owner != owner(6) || !errors.Is(p.Refused[0].Err, ErrFull) {
		t.Errorf("the youngest request is to be refused: %+v", p.Refused)
	}
}

func TestV1ATerminatingRangeGivesOutNothing(t *testing.T) {
	for _, state := range []State{NotReady, Draining, Terminating} {
		in := exclusive(Range{Prefix: netip.MustParsePrefix("10.0.0.0/24"), State: state, Use: Exclusive})
		in.Wanted = []Wanted{want(1, v4)}
		in.Wanted[0].Previous = []netip.Addr{addr("10.0.0.9")}
		if p := decide(in); len(p.Reserve) > 0 || !errors.Is(p.Refused[0].Err, ErrNotReady) || !errors.Is(p.Refused[0].Lost, ErrNotReady) {
			t.Errorf("state %d: %+v", state, p)
		}
		in.Held = []Held{{Owner: owner(1), Address: addr("10.0.0.9")}}
		if p := decide(in); len(p.Reserve)+len(p.Refused) > 0 {
			t.Errorf("state %d: what is held moved: %+v", state, p)
		}
	}
}

// TestV2NothingNewComesFromADrainingRange: an API server knows of no drain, and would choose of it as of the others; so it is not asked to,
// of that family. What another range covers may be had (V1).
func TestV2NothingNewComesFromADrainingRange(t *testing.T) {
	prefix := netip.MustParsePrefix
	drain := Range{Name: "drain", Prefix: prefix("10.0.1.0/29"), State: Draining, Use: Shared}
	cluster := Range{Name: "kubernetes", Prefix: prefix("10.0.0.0/30")}
	held := func(texts ...string) (out []Held) {
		for _, text := range texts {
			out = append(out, Held{Address: addr(text), Foreign: true})
		}
		return out
	}
	for _, c := range []struct {
		name   string
		mode   Mode
		ranges []Range
		held   []Held
		want   string // "" where the API server chooses, "full" where nothing is left
	}{
		{"shared", ModeShared, []Range{drain, cluster}, held("10.0.0.1"), "10.0.0.2"},
		{"shared, and the others are full", ModeShared, []Range{drain, cluster}, held("10.0.0.1", "10.0.0.2"), "full"},
		{"shared, and the others are for VIPs", ModeShared, []Range{drain, {Prefix: prefix("10.0.2.4/30"), Use: Shared}}, held("10.0.2.5"), "10.0.2.6"},
		{"shared, and the others are fenced, or not ready", ModeShared, []Range{drain, {Prefix: prefix("10.0.2.0/30"), Use: Exclusive}, {Prefix: prefix("10.0.3.0/30"), State: NotReady}}, nil, "full"},
		{"shared, and nothing drains", ModeShared, []Range{cluster}, nil, ""},
		{"shared, and the other family drains", ModeShared, []Range{cluster, {Prefix: prefix("fd00::/64"), State: Draining}}, nil, ""},
		{"shared, and another covers it", ModeShared, []Range{drain, {Prefix: prefix("10.0.1.0/30")}}, held("10.0.1.1"), "10.0.1.2"},
		{"preferred, and there is no other for VIPs", ModePreferred, []Range{drain, cluster}, held("10.0.0.1"), "10.0.0.2"},
		{"preferred, and the other for VIPs is full", ModePreferred, []Range{drain, cluster, {Prefix: prefix("10.0.2.4/30"), Use: Shared}}, held("10.0.0.1", "10.0.2.5", "10.0.2.6"), "10.0.0.2"},
		{"preferred, and the other for VIPs has room", ModePreferred, []Range{drain, cluster, {Prefix: prefix("10.0.2.4/30"), Use: Shared}}, held("10.0.2.5"), "10.0.2.6"},
	} {
		a := NewAllocator(c.mode, c.ranges)
		for _, h := range c.held {
			a.Hold(h)
		}
		for n := range 8 { // wherever their names lead
			reserve, refused := a.Assign([]Wanted{want(n, v4)}, now)
			got := ""
			switch {
			case len(refused) > 0 && errors.Is(refused[0].Err, ErrFull):
				got = "full"
			case len(reserve) > 0 && reserve[0].Address.IsValid():
				got = reserve[0].Address.String()
			}
			if got != c.want || len(reserve)+len(refused) != 1 {
				t.Errorf("%s: %q, want %q: %+v %+v", c.name, got, c.want, reserve, refused)
			}
		}
	}
}

func TestV2RoomThatIsAddedIsUsed(t *testing.T) {
	in := exclusive(fenced("10.0.0.0/30")...)
	in.Held = []Held{{Owner: owner(1), Address: addr("10.0.0.1")}, {Owner: owner(2), Address: addr("10.0.0.2")}}
	in.Wanted = []Wanted{want(1, v4), want(2, v4), want(3, v4)}
	if p := decide(in); len(p.Refused) != 1 || !errors.Is(p.Refused[0].Err, ErrFull) {
		t.Fatalf("%+v", p)
	}
	in.Ranges = append(in.Ranges, fenced("10.0.9.0/24")...)
	if a := one(t, decide(in)).Address; !in.Ranges[1].Prefix.Contains(a) {
		t.Errorf("%s", a)
	}
}

func TestV3WhatHoldsARangeBack(t *testing.T) {
	small, large := fenced("10.0.0.0/30")[0], fenced("10.0.0.0/24")[0]
	small.State = Terminating
	held := []Held{{Owner: owner(2), Address: addr("10.0.0.2")}, {Owner: owner(1), Address: addr("10.0.0.1")}, {Owner: owner(3), Address: addr("10.0.0.9")}}
	if got := Holding(small, []Range{small}, held); !slices.Equal(got, []Held{held[1], held[0]}) {
		t.Errorf("%v", got)
	}
	if got := Holding(small, []Range{small, large}, held); len(got) > 0 {
		t.Errorf("a larger one covers them (V2): %v", got)
	}
	large.State = Terminating
	if got := Holding(small, []Range{small, large}, held); len(got) != 2 {
		t.Errorf("what goes itself covers nothing: %v", got)
	}
	for address, prefixes := range map[string][2]string{"10.0.0.7": {"10.0.0.0/28", "10.0.0.0/29"}, "10.0.0.8": {"10.0.0.0/28", "10.0.0.8/29"}, "fd00::8": {"fd00::/124", "fd00::8/125"}} {
		r, edge := fenced(prefixes[0])[0], fenced(prefixes[1])[0]
		if got := Holding(r, []Range{r, edge}, []Held{{Owner: owner(1), Address: addr(address)}}); len(got) != 1 {
			t.Errorf("%s is at the edge of %s, which never gives it out", address, prefixes[1])
		}
	}
}

func TestV5LargeRangesAreNotWalked(t *testing.T) {
	for _, prefix := range []string{"fd00::/64", "fd00::/48", "::/0", "2000::/3", "10.0.0.0/8", "0.0.0.0/0"} {
		r := Range{Prefix: netip.MustParsePrefix(prefix), Use: Exclusive}
		in := exclusive(r)
		in.Wanted = []Wanted{want(1, family(r.Prefix.Addr()))}
		a := one(t, decide(in)).Address
		if !r.Prefix.Contains(a) {
			t.Fatalf("%s: %s", prefix, a)
		}
		in.Held = []Held{{Address: a, Foreign: true}}
		if next := one(t, decide(in)).Address; next != a.Next() {
			t.Errorf("%s: %s, then %s", prefix, a, next)
		}
	}
}

func TestV5DualStackFamiliesAreIndependent(t *testing.T) {
	in := exclusive(fenced("10.0.0.0/30", "fd00::/64")...)
	in.Held = []Held{{Address: addr("10.0.0.1"), Foreign: true}, {Address: addr("10.0.0.2"), Foreign: true}}
	in.Wanted = []Wanted{want(1, v6, v4)}
	p := decide(in)
	if len(p.Reserve) != 1 || p.Reserve[0].Family != v6 || len(p.Refused) != 1 || p.Refused[0].Family != v4 {
		t.Errorf("%+v", p)
	}
	in.Held[0] = Held{Owner: owner(1), Address: addr("fd00::7")}
	if p = decide(in); len(p.Reserve) != 1 || p.Reserve[0].Address != addr("10.0.0.1") {
		t.Errorf("a family that is added later: %+v", p)
	}
}

func TestModesSayWhereNewVIPsComeFrom(t *testing.T) {
	ordinary, shared, fence := Range{Prefix: netip.MustParsePrefix("10.0.0.0/24")}, Range{Prefix: netip.MustParsePrefix("10.0.1.0/30"), Use: Shared}, fenced("10.0.2.0/24")[0]
	in := input{Ranges: []Range{ordinary}, Wanted: []Wanted{want(1, v4)}, Now: now}
	in.Mode = ModeShared
	if r := one(t, decide(in)); r.Address.IsValid() || r.Overflow != nil {
		t.Errorf("shared: the API server is to choose: %+v", r)
	}
	in.Mode = ModePreferred
	if r := one(t, decide(in)); r.Address.IsValid() || !errors.Is(r.Overflow, ErrMismatchedNetwork) {
		t.Errorf("preferred without a range: %+v", r)
	}
	in.Ranges = append(in.Ranges, shared)
	if r := one(t, decide(in)); !shared.Prefix.Contains(r.Address) {
		t.Errorf("preferred: %+v", r)
	}
	in.Held = []Held{{Address: addr("10.0.1.1"), Foreign: true}, {Address: addr("10.0.1.2"), Foreign: true}}
	if r := one(t, decide(in)); r.Address.IsValid() || !errors.Is(r.Overflow, ErrFull) {
		t.Errorf("preferred and full: %+v", r)
	}
	in.Mode = ModeExclusive
	if p := decide(in); len(p.Refused) != 1 || !errors.Is(p.Refused[0].Err, ErrMismatchedNetwork) {
		t.Errorf("exclusive without a fence: %+v", p)
	}
	in.Ranges = append(in.Ranges, fence)
	if r := one(t, decide(in)); !fence.Prefix.Contains(r.Address) {
		t.Errorf("exclusive: %+v", r)
	}
	in.Wanted[0].Previous = []netip.Addr{addr("10.0.0.5")}
	if r := one(t, decide(in)); r.Address != addr("10.0.0.5") {
		t.Errorf("a VIP of before stays when the mode changes: %+v", r)
	}
}

// TestV7WithoutRangesThePreviousAddressIsTried: shared works where the API server has no ServiceCIDRs.
func TestV7WithoutRangesThePreviousAddressIsTried(t *testing.T) {
	in := input{Mode: ModeShared, Wanted: []Wanted{want(1, v4)}, Now: now}
	in.Wanted[0].Previous = []netip.Addr{addr("172.20.0.7")}
	if r := one(t, decide(in)); r.Address != addr("172.20.0.7") || r.Lost != nil {
		t.Errorf("%+v", r)
	}
	in.Mode = ModeExclusive
	if p := decide(in); len(p.Refused) != 1 || !errors.Is(p.Refused[0].Err, ErrMismatchedNetwork) {
		t.Errorf("the other modes say why not: %+v", p)
	}
}

func TestI6PreviousAddressesComeBeforeNewOnes(t *testing.T) {
	in := exclusive(fenced("10.0.0.0/30")...)
	in.Wanted = []Wanted{want(1, v4), want(2, v4), want(3, v4)}
	in.Wanted[2].Previous = []netip.Addr{addr("10.0.0.1")}
	p := decide(in)
	if p.Refused[0].Owner != owner(2) || p.Reserve[1].Owner != owner(3) || p.Reserve[1].Address != addr("10.0.0.1") {
		t.Errorf("%+v", p)
	}
	in.Held = []Held{{Owner: owner(9), Address: addr("10.0.0.1"), Foreign: true}}
	if p = decide(in); !errors.Is(p.Refused[1].Lost, ErrAllocated) {
		t.Errorf("why it was lost: %+v", p)
	}
	in.Wanted[2].Previous = append(in.Wanted[2].Previous, addr("10.0.0.2"))
	if p = decide(in); p.Reserve[0].Address != addr("10.0.0.2") || !errors.Is(p.Reserve[0].Lost, ErrAllocated) {
		t.Errorf("why it is not the first of them: %+v", p)
	}
	in.Wanted[2].Previous = in.Wanted[2].Previous[:1]
	in.Ranges, in.Held = fenced("10.0.7.0/24"), nil
	if p = decide(in); !errors.Is(p.Reserve[2].Lost, ErrNotInRange) || !in.Ranges[0].Prefix.Contains(p.Reserve[2].Address) {
		t.Errorf("%+v", p)
	}
}

// TestV1AQuarantinedAddressIsNobodys until the later of its ends, also not of whom had it.
func TestV1AQuarantinedAddressIsNobodys(t *testing.T) {
	in := exclusive(fenced("10.0.0.0/30")...)
	in.Held = []Held{{Address: addr("10.0.0.2"), Foreign: true}}
	in.Wanted = []Wanted{want(1, v4)}
	in.Wanted[0].Previous = []netip.Addr{addr("10.0.0.1")}
	for _, ends := range [][]time.Duration{{time.Hour}, {time.Minute, time.Hour}, {time.Hour, time.Minute}} {
		in.Quarantined = nil
		for _, end := range ends {
			in.Quarantined = append(in.Quarantined, Quarantined{Address: addr("10.0.0.1"), Until: now.Add(end)})
		}
		in.Now = now.Add(time.Hour - 1)
		if p := decide(in); len(p.Refused) != 1 || !errors.Is(p.Refused[0].Lost, ErrAllocated) || !errors.Is(p.Refused[0].Err, ErrFull) {
			t.Errorf("%s: %+v", ends, p)
		}
		in.Now = now.Add(time.Hour)
		if r := one(t, decide(in)); r.Address != addr("10.0.0.1") {
			t.Errorf("%s: %+v", ends, r)
		}
	}
}

func TestHeadlessKeepsWhatItHolds(t *testing.T) {
	in := exclusive(fenced("10.0.0.0/24")...)
	in.Held, in.Wanted = []Held{{Owner: owner(1), Address: addr("10.0.0.1")}}, []Wanted{want(1)}
	if p := decide(in); len(p.Reserve)+len(p.Refused) > 0 {
		t.Errorf("%+v", p)
	}
}

// TestARestartFindsTheSame: what was decided and not yet written is decided again, whatever else happened to be reserved before.
func TestARestartFindsTheSame(t *testing.T) {
	in := exclusive(fenced("10.0.0.0/16")...)
	in.Wanted = []Wanted{want(1, v4)}
	alone := one(t, decide(in)).Address
	for n := 2; n < 50; n++ {
		in.Wanted = append(in.Wanted, want(n, v4))
	}
	for _, r := range decide(in).Reserve {
		if r.Owner == owner(1) && r.Address != alone {
			t.Errorf("%s, alone %s", r.Address, alone)
		}
	}
}

// TestFirstAddressesAreSpread: a chi-square test over 64 parts of a /16, for names that differ little. 63 degrees of freedom exceed 113
// once in ten thousand.
func TestFirstAddressesAreSpread(t *testing.T) {
	a := NewAllocator(ModeExclusive, fenced("10.0.0.0/16"))
	const names, parts = 6400, 64
	var counts [parts]float64
	for n := range names {
		ip, err := a.free(owner(n), v4)
		if err != nil {
			t.Fatal(err)
		}
		b := ip.As4()
		counts[int(b[2])*parts/256]++
	}
	sum := 0.0
	for _, c := range counts {
		sum += math.Pow(c-names/parts, 2) / (names / parts)
	}
	if sum > 113 {
		t.Errorf("chi-square %.0f", sum)
	}
}

func TestV6UsagePerRange(t *testing.T) {
	ranges := append(fenced("10.0.0.0/29", "10.0.0.0/30", "fd00::/64", "10.0.0.1/32"), fenced("f000::/4")...)
	got := Usages(ranges, []netip.Addr{addr("10.0.0.1"), addr("10.0.0.1"), addr("10.0.0.6"), addr("10.0.0.7"), addr("fd00::1")})
	want := [][2]uint64{{2, 4}, {1, 1}, {1, math.MaxUint64 - 1}, {0, 0}, {1, math.MaxUint64}}
	for i, u := range got {
		if u.Allocated != want[i][0] || u.Available != want[i][1] {
			t.Errorf("%s: %d allocated, %d available, want %v", u.Range.Prefix, u.Allocated, u.Available, want[i])
		}
	}
}

// TestAllocationBudget: what one request costs in memory (V5). The reservation itself, the copy of the request, and the note.
func TestAllocationBudget(t *testing.T) {
	a := NewAllocator(ModeExclusive, fenced("10.0.0.0/16", "fd00::/64"))
	for n, ip := 0, addr("10.0.0.1"); n < 10000; n, ip = n+1, ip.Next() {
		a.Hold(Held{Owner: owner(n), Address: ip})
	}
	wanted := []Wanted{want(20000, v4, v6)}
	if got := testing.AllocsPerRun(100, func() { a.Assign(wanted, now) }); got > 12 {
		t.Errorf("%v allocations per request", got)
	}
	if got := testing.AllocsPerRun(100, func() { _, _ = a.free(wanted[0].Owner, v6) }); got > 0 {
		t.Errorf("%v allocations per search", got)
	}
}
