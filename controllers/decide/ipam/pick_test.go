package ipam

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// TestPickFindsAFreeAddressIfThereIsOne, for random ranges and random addresses in use, and gives out no other.
func TestPickFindsAFreeAddressIfThereIsOne(t *testing.T) {
	all := []netip.Prefix{
		prefix("10.0.0.0/30"),
		prefix("10.0.0.0/29"),
		prefix("10.0.0.8/29"),
		prefix("10.0.0.4/30"),
		prefix("10.0.0.9/32"),
		prefix("fd00::/126"),
		prefix("fd00::4/127"),
	}
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 5000 {
		var ranges []netip.Prefix
		free := map[netip.Addr]bool{}
		for range random.IntN(4) {
			p := all[random.IntN(len(all))]
			ranges = append(ranges, p)
			last := p.Masked().Addr()
			for a := last; p.Contains(a); a = a.Next() {
				last = a
			}
			for a := p.Addr().Next(); p.Contains(a); a = a.Next() {
				if a.Is6() || a != last {
					free[a] = true
				}
			}
		}
		taken := map[netip.Addr]bool{}
		for a := range free {
			if random.IntN(3) > 0 {
				taken[a] = true
				delete(free, a)
			}
		}
		got, found := Pick(ranges, fmt.Sprint(n), math.MaxInt, func(a netip.Addr) bool { return taken[a] })
		if found != (len(free) > 0) || found && !free[got] {
			t.Fatalf("%v, taken %v: %v %v; free are %v", ranges, taken, got, found, free)
		}
	}
}

// TestPickStartsWhereItDidBefore: an agent that restarts asks for the same address.
func TestPickStartsWhereItDidBefore(t *testing.T) {
	none := func(netip.Addr) bool { return false }
	ranges, seen := []netip.Prefix{prefix("10.0.0.0/16"), prefix("fd00::/64")}, map[netip.Addr]bool{}
	for n := range 100 {
		a, _ := Pick(ranges, fmt.Sprint("shop/", n), 1, none)
		again, _ := Pick(ranges, fmt.Sprint("shop/", n), 1, none)
		if a != again {
			t.Errorf("%s, then %s", a, again)
		}
		seen[a] = true
	}
	if len(seen) < 95 {
		t.Errorf("100 names start at %d addresses", len(seen))
	}
}

// TestPickGivesUpAfterItsProbes.
func TestPickGivesUpAfterItsProbes(t *testing.T) {
	asked := 0
	if _, found := Pick(
		[]netip.Prefix{prefix("10.0.0.0/8")},
		"x",
		64,
		func(netip.Addr) bool { asked++; return true },
	); found ||
		asked != 64 {
		t.Errorf("found %v after %d probes", found, asked)
	}
}

// TestAWaitEndsAlthoughTheClockIsSetBack: else a VIP would not be asked for before the old time has come again.
func TestAWaitEndsAlthoughTheClockIsSetBack(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	imp := &mcsv1beta1.ServiceImport{}
	imp.Status.Conditions = []metav1.Condition{{
		Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(at),
	}}
	q := Request{Import: imp}
	for now, want := range map[time.Time]time.Duration{
		at: 0, at.Add(time.Second): time.Second, at.Add(-time.Hour): time.Hour,
	} {
		if got := q.Waited(now); got != want {
			t.Errorf("at %v: waited %v, want %v", now, got, want)
		}
	}
}
