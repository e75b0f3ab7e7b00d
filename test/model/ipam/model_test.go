package ipam

import (
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

var (
	seeds = flag.Uint64("seeds", 2000, "how many random inputs")
	seed  = flag.Uint64("seed", 0, "the first of them: with -seeds 1, one is replayed")
)

func each(f func(seed uint64, r *rand.Rand)) {
	for s := *seed; s < *seed+*seeds; s++ {
		f(s, rand.New(rand.NewPCG(s, 0)))
	}
}

// TestAssignAgreesWithTheModel is V1, V2 and V5 for any input.
func TestAssignAgreesWithTheModel(t *testing.T) {
	each(func(seed uint64, r *rand.Rand) {
		if err := Try(Random(r), Decide); err != nil {
			t.Fatalf("-seed %d: %v", seed, err)
		}
	})
}

// TestCarveAgreesWithTheModel is the hub's part of DESIGN §5 for any input.
func TestCarveAgreesWithTheModel(t *testing.T) {
	each(func(seed uint64, r *rand.Rand) {
		if err := TryCarve(RandomCarving(r), ipam.Carve); err != nil {
			t.Fatalf("-seed %d: %v", seed, err)
		}
	})
}

// planted are faults of a planner, made by lying to one that has none. The model must find each.
var planted = map[string]func(in Input) Input{
	"quarantine is not kept": func(in Input) Input {
		in.Quarantined = slices.DeleteFunc(in.Quarantined, func(q ipam.Quarantined) bool { return q.Until.After(in.Now) })
		return in
	},
	"quarantine never ends": func(in Input) Input {
		for i := range in.Quarantined {
			in.Quarantined[i].Until = in.Quarantined[i].Until.Add(1000 * time.Hour)
		}
		return in
	},
	"a terminating range gives out": func(in Input) Input {
		for i := range in.Ranges {
			in.Ranges[i].State = ipam.Ready
		}
		return in
	},
	"previous addresses are forgotten": func(in Input) Input {
		for i := range in.Wanted {
			in.Wanted[i].Previous = nil
		}
		return in
	},
	"the youngest comes first": func(in Input) Input {
		for i := range in.Wanted {
			in.Wanted[i].Since = start.Add(start.Sub(in.Wanted[i].Since))
		}
		return in
	},
	"others' addresses are not in the way": func(in Input) Input {
		in.Held = slices.DeleteFunc(in.Held, func(h ipam.Held) bool { return h.Foreign })
		return in
	},
	"others' addresses are one's own": func(in Input) Input {
		for i := range in.Held {
			in.Held[i].Foreign = false
		}
		return in
	},
	"what is held is given up for another": func(in Input) Input { in.Held = nil; return in },
	"new VIPs leave the fence": func(in Input) Input {
		if in.Mode == ipam.ModeExclusive {
			in.Mode = ipam.ModePreferred
		}
		return in
	},
	"only the first family is served": func(in Input) Input {
		for i, w := range in.Wanted {
			in.Wanted[i].Families = w.Families[:min(1, len(w.Families))]
		}
		return in
	},
}

func TestTheModelFindsPlantedFaults(t *testing.T) {
	for name, lie := range planted {
		t.Run(name, func(t *testing.T) {
			found := 0
			each(func(_ uint64, r *rand.Rand) {
				if found == 0 && Try(Random(r), func(in Input) Plan { return Decide(lie(clone(in))) }) != nil {
					found++
				}
			})
			if found == 0 {
				t.Errorf("not found in %d inputs", *seeds)
			}
		})
	}
}

// TestRandomMeetsEverySituation: what is to be found must come often enough.
func TestRandomMeetsEverySituation(t *testing.T) {
	met := map[string]int{"new address": 0, "previous address again": 0, "API server chooses": 0, "overflow": 0}
	reasons := map[string]error{"full": ipam.ErrFull, "allocated": ipam.ErrAllocated, "not in range": ipam.ErrNotInRange, "mismatched": ipam.ErrMismatchedNetwork, "not ready": ipam.ErrNotReady}
	for name := range reasons {
		met["reason "+name] = 0
	}
	each(func(_ uint64, r *rand.Rand) {
		in := Random(r)
		plan := Decide(in)
		count := func(what string, holds bool) {
			if holds {
				met[what]++
			}
		}
		for _, x := range plan.Reserve {
			had := slices.ContainsFunc(in.Wanted, func(w ipam.Wanted) bool { return w.Owner == x.Owner && slices.Contains(w.Previous, x.Address) })
			count("previous address again", had)
			count("new address", !had && x.Address.IsValid())
			count("API server chooses", !x.Address.IsValid())
			count("overflow", x.Overflow != nil)
			for name, reason := range reasons {
				count("reason "+name, errors.Is(x.Lost, reason) || errors.Is(x.Overflow, reason))
			}
		}
		for _, x := range plan.Refused {
			count("reason full", errors.Is(x.Err, ipam.ErrFull))
		}
	})
	for what, times := range met {
		if times < int(*seeds)/100 {
			t.Errorf("%s: %d times in %d inputs", what, times, *seeds)
		}
	}
}

// TestRepairMendsWhatIsOurs is V4 for any cluster.
func TestRepairMendsWhatIsOurs(t *testing.T) {
	kinds := map[ipam.Kind]int{ipam.Missing: 0, ipam.Leaked: 0, ipam.Doubled: 0, ipam.OutOfRange: 0, ipam.Foreign: 0}
	each(func(seed uint64, r *rand.Rand) {
		seen := RandomCluster(r)
		found, _ := ipam.Repair(seen)
		for _, f := range found {
			kinds[f.Kind]++
		}
		if err := TryRepair(seen, ipam.Repair); err != nil {
			t.Fatalf("-seed %d: %v", seed, err)
		}
	})
	for kind, times := range kinds {
		if times < int(*seeds)/10 {
			t.Errorf("%s: %d times in %d clusters", kind, times, *seeds)
		}
	}
}
