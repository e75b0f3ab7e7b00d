package sim

import (
	"errors"
	"flag"
	"iter"
	"runtime"
	"strings"
	"testing"
	"time"
)

var (
	seed    = flag.Uint64("seed", 0, "replay this seed alone; with -v its whole trace is printed")
	first   = flag.Uint64("first", 1, "the first seed to play")
	seeds   = flag.Uint64("seeds", 60, "how many seeds to play")
	goOn    = flag.Bool("go-on", false, "play all seeds, and print one line for each that fails")
	without = flag.String("without", "", "faults and actions that do not happen, separated by commas")
	members = flag.Int("members", 0, "how many members there are (default: by the seed)")
)

func options(seed uint64) Options {
	o := Options{Seed: seed, Members: *members, Without: map[string]bool{}}
	for _, f := range strings.Split(*without, ",") {
		o.Without[f] = true
	}
	return o
}

// outcome is what came of one seed.
type outcome struct {
	Stats
	err error
}

// play yields the outcomes of n seeds in order. Each is a world of its own, so there is one for every processor at a
// time.
func play(from, n uint64, options func(seed uint64) Options) iter.Seq2[uint64, outcome] {
	return func(yield func(uint64, outcome) bool) {
		coming := make(chan chan outcome, runtime.GOMAXPROCS(0)-1)
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			defer close(coming)
			for s := from; s < from+n; s++ {
				done := make(chan outcome, 1)
				select {
				case coming <- done:
				case <-stop:
					return
				}
				go func() {
					stats, err := Run(options(s))
					done <- outcome{stats, err}
				}()
			}
		}()
		s := from
		for done := range coming {
			if !yield(s, <-done) {
				return
			}
			s++
		}
	}
}

// TestSeeds plays seeds.
func TestSeeds(t *testing.T) {
	if *seed != 0 {
		o := options(*seed)
		if testing.Verbose() {
			o.Trace = func(line string) { t.Log(line) }
		}
		if _, err := Run(o); err != nil {
			t.Fatal(err)
		}
		return
	}
	total := Stats{Events: map[string]int{}}
	began := time.Now()
	for s, o := range play(*first, *seeds, options) {
		var v *Violation
		if errors.As(o.err, &v) && *goOn {
			t.Errorf(
				"seed %d: %.600s",
				s,
				strings.Join(strings.SplitN(v.What, "\n", 4)[:min(3, strings.Count(v.What, "\n")+1)], " "),
			)
		} else if o.err != nil {
			t.Fatal(o.err)
		}
		total.add(o.Stats)
	}
	t.Logf("%d seeds in %s: %d steps, %d faults, settled %d times, at the slowest in %s of simulated time; %v",
		*seeds, time.Since(began).Round(time.Millisecond), total.Steps, total.Faults, total.Settled, total.Slowest,
		total.Events)
}
