package sim

import (
	"testing"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

func probing(seed uint64, blind int, lies bool) Options {
	o := options(seed)
	keep := true
	o.Members, o.Steps = 3, 400
	o.Probe = &Observers{Blind: blind, Lies: lies, ProbeSpec: hubv1alpha1.ProbeSpec{
		Default: hubv1alpha1.ProbeTCP, IntervalSeconds: 2, TimeoutSeconds: 1, KeepLast: &keep,
	}}
	if !lies {
		o.Without["liar"] = true
	}
	return o
}

// TestF4Observers plays worlds whose members look at each other's endpoints. That nothing is lost to one that is blind,
// or lies, and that the last endpoints of a port stay where two are (keepLast), is looked at with every write
// (watchWithheld, watchFrozen, watchTraffic); that everything counts again once all see, in quiet.
func TestF4Observers(t *testing.T) {
	for _, c := range []struct {
		name     string
		blind    int
		lies     bool
		withheld bool // some are; else none may be
	}{{"one of three is blind", 1, false, false}, {"two of three are", 2, false, true}, {"one lies", 0, true, false}, {"one lies, one is blind", 1, true, true}} {
		t.Run(c.name, func(t *testing.T) {
			total := Stats{Events: map[string]int{}}
			// A liar and a blind one agree by chance only: worlds are played until some have.
			worlds := max(3, *seeds/10)
			for seed, o := range play(*first, 10*worlds, func(seed uint64) Options { return probing(seed, c.blind, c.lies) }) {
				if o.err != nil {
					t.Fatal(o.err)
				}
				total.add(o.Stats)
				if seed-*first >= worlds-1 && (total.Events["(withheld)"] > 0 || !c.withheld) {
					break
				}
			}
			t.Logf("%d steps, %v", total.Steps, total.Events)
			if got := total.Events["(withheld)"] > 0; got != c.withheld {
				t.Errorf("withheld: %v, want %v", got, c.withheld)
			}
			if got := total.Events["(a vote)"] > 0; got != (c.blind > 0) {
				t.Errorf("honest votes: %v", got)
			}
			if c.lies && total.Events["(a lie about what is reached)"] == 0 {
				t.Error("nobody lied")
			}
		})
	}
}
