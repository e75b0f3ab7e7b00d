package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// measure is the live heap after a garbage collection, and the goroutines, of what runs the longest.
type measure struct {
	at      time.Time
	who     []string
	process []int // to report whether it is the same one
	heap    []float64
	routine []int
}

// most is G: how much more there may be at the end than at minute ten.
const most = 1.1

// growth is what became of one process.
type growth struct {
	who         string
	first, last struct {
		heap       float64
		goroutines int
	}
	again bool // it was started again in between, and what it held is not known
}

func (g growth) heap() float64       { return g.last.heap / g.first.heap }
func (g growth) goroutines() float64 { return float64(g.last.goroutines) / float64(g.first.goroutines) }
func (g growth) fails() bool         { return g.again || g.heap() > most || g.goroutines() > most }

// growths compares the last measure with the first.
func growths(of []measure) (out []growth) {
	if len(of) < 2 {
		return nil
	}
	first, last := of[0], of[len(of)-1]
	for i, who := range first.who {
		g := growth{who: who, again: first.process[i] != last.process[i]}
		g.first.heap, g.first.goroutines = first.heap[i], first.routine[i]
		g.last.heap, g.last.goroutines = last.heap[i], last.routine[i]
		out = append(out, g)
	}
	return out
}

// profiles is where the heap profiles are kept, if anywhere.
var profiles string

var (
	heapAlloc  = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)
	goroutines = regexp.MustCompile(`^goroutine profile: total (\d+)`)
)

// measure looks at the last member's agent and CoreDNS and at the hub's controller, with everything exported
// everywhere.
func (w *world) measure(ctx context.Context, t *tally, p plan) error {
	w.users.Lock()
	defer w.users.Unlock()
	if err := w.exportAll(ctx); err != nil {
		return err
	}
	if _, err := w.settle(ctx, time.Now(), p.patient); err != nil {
		w.tape.fail("before memory is measured not all is right after %v: %v", p.patient, err)
	}
	last := w.members[len(w.members)-1]
	m := measure{at: time.Now()}
	for _, of := range []struct {
		who     string
		pid     int
		starts  int
		profile func(string) (string, error)
	}{
		{"agent of " + last.ID, last.Agent.PID(), strings.Count(last.Agent.Log(), `"starting"`), last.Agent.Profile},
		{"hub controller", w.controller.PID(), strings.Count(w.controller.Log(), `"starting"`), w.controller.Profile},
		{"CoreDNS of " + last.ID, last.DNS.PID(), 0, last.DNS.Profile},
	} {
		heap, routines, err := look(of.profile)
		if err != nil {
			return fmt.Errorf("%s: %w", of.who, err)
		}
		name := fmt.Sprintf("%s-%d.pb.gz", strings.ReplaceAll(of.who, " ", "-"), len(t.memory))
		if err := keep(of.profile, name); err != nil {
			return fmt.Errorf("%s: %w", of.who, err)
		}
		m.who, m.process = append(m.who, of.who), append(m.process, of.pid*1000+of.starts)
		m.heap, m.routine = append(m.heap, heap), append(m.routine, routines)
	}
	t.memory = append(t.memory, m)
	w.mu.Lock()
	w.baseline = true
	w.mu.Unlock()
	w.tape.note("heap after collection, of %v: %.0f; goroutines %v", m.who, m.heap, m.routine)
	return nil
}

// keep writes the heap profile to a file of that name.
func keep(profile func(string) (string, error), name string) error {
	if profiles == "" {
		return nil
	}
	text, err := profile("heap")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(profiles, name), []byte(text), 0o600)
}

// look collects twice, since what a pool holds goes with the second one only, and takes the least of some looks:
// requests come and go.
func look(profile func(string) (string, error)) (heap float64, routines int, err error) {
	for i := range 10 {
		text, err := profile("heap?gc=1&debug=1")
		if err != nil {
			return 0, 0, err
		}
		found := heapAlloc.FindStringSubmatch(text)
		if found == nil {
			return 0, 0, fmt.Errorf("no HeapAlloc in the profile")
		}
		now, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return 0, 0, err
		}
		if text, err = profile("goroutine?debug=1"); err != nil {
			return 0, 0, err
		}
		if found = goroutines.FindStringSubmatch(text); found == nil {
			return 0, 0, fmt.Errorf("no total in the profile of goroutines")
		}
		n, err := strconv.Atoi(found[1])
		if err != nil {
			return 0, 0, err
		}
		if i > 0 && (heap == 0 || now < heap) {
			heap = now
		}
		if i == 0 || n < routines {
			routines = n
		}
		time.Sleep(200 * time.Millisecond)
	}
	return heap, routines, nil
}
