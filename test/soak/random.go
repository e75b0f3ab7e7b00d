package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// plan of the random phase.
type plan struct {
	length  time.Duration
	warm    time.Duration // until memory is measured first
	quiet   int           // faults between two looks at all objects
	still   time.Duration // how long nothing may be written then
	pace    time.Duration // of ordinary changes
	patient time.Duration // for everything to follow
	told    func(*tally)  // of what there is so far, now and then
}

// tally is what the random phase comes to.
type tally struct {
	faults    map[string]int
	converged []time.Duration // from repair to the right answers everywhere
	slowest   string
	quiets    int
	checked   int // objects at quiet points
	writes    int // looked at in the audit logs
	memory    []measure
	began     time.Time
	took      time.Duration
}

// watchLeases looks at the members' Leases on the hub five times a second.
func (w *world) watchLeases(ctx context.Context) {
	seen := map[string]time.Time{}
	before := time.Now()
	for {
		at := time.Now()
		var leases coordinationv1.LeaseList
		if err := w.hub.List(ctx, &leases, client.InNamespace(lab.HubNamespace)); err == nil {
			for i := range leases.Items {
				l := &leases.Items[i]
				was, known := seen[l.Name]
				if l.Spec.RenewTime != nil && l.Spec.RenewTime.After(was) {
					seen[l.Name] = l.Spec.RenewTime.Time
					if !known { // it may be of any time
						continue
					}
					now := time.Now()
					w.oracle.Renewed(l.Name, before, now)
					w.tape.line(
						"lease",
						"%s renewed between %s and %s, by its own clock at %s",
						l.Name,
						before.Format(clock),
						now.Format(clock),
						l.Spec.RenewTime.UTC().Format(clock),
					)
				}
			}
			before = at
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// heard waits until every member has been heard of.
func (w *world) heard(ctx context.Context) error {
	for _, m := range w.members {
		if err := insist(ctx, func() error { return unless(!w.oracle.Heard(m.ID).IsZero()) }); err != nil {
			return err
		}
	}
	return nil
}

// shake lets things fail until the time is over.
func (w *world) shake(ctx context.Context, p plan) (*tally, error) {
	t := &tally{faults: map[string]int{}}
	living, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { w.live(living, p.pace); close(done) }()
	defer func() { stop(); <-done }()
	t.began = time.Now()
	for n := 1; time.Since(t.began) < p.length && ctx.Err() == nil; n++ {
		if err := w.one(ctx, t, p); err != nil {
			return t, err
		}
		if n%p.quiet == 0 {
			if err := w.quiet(ctx, t, p); err != nil {
				return t, err
			}
			t.took = time.Since(t.began)
			p.tell(t)
		}
		if len(t.memory) == 0 && time.Since(t.began) >= p.warm {
			if err := w.measure(ctx, t, p); err != nil {
				return t, err
			}
		}
	}
	t.took = time.Since(t.began)
	if err := w.quiet(ctx, t, p); err != nil {
		return t, err
	}
	if err := w.measure(ctx, t, p); err != nil {
		return t, err
	}
	for _, g := range growths(t.memory) {
		if g.fails() {
			w.tape.fail(
				"G: %s: heap %.2f and goroutines %.2f of those at first, and the bound is %.2f; started again in "+
					"between: %v",
				g.who,
				g.heap(),
				g.goroutines(),
				most,
				g.again,
			)
		}
	}
	p.tell(t)
	return t, nil
}

func (p plan) tell(t *tally) {
	if p.told != nil {
		p.told(t)
	}
}

// one lets one thing fail, or two at once, and waits until all is right again.
func (w *world) one(ctx context.Context, t *tally, p plan) error {
	what, err := w.inflict(ctx, t, w.choose(t)...)
	if err != nil {
		return err
	}
	repaired := time.Now()
	w.users.Lock() // one of them may wait for what was just repaired
	defer w.users.Unlock()
	took, err := w.settle(ctx, repaired, p.patient)
	if err != nil {
		w.tape.fail("after %s not all is right after %v: %v", what, p.patient, err)
		return nil
	}
	if t.converged = append(t.converged, took); took == slices.Max(t.converged) {
		t.slowest = what
	}
	w.tape.line("note", "right again after %v", took.Round(time.Millisecond))
	return nil
}

// inflict lets faults begin at once, and repairs each after its time. what names them.
func (w *world) inflict(ctx context.Context, t *tally, faults ...*fault) (what string, err error) {
	var label []string
	for _, f := range faults {
		label = append(
			label,
			fmt.Sprintf("%s for %v", strings.TrimSpace(f.name+" "+f.at), f.hold.Round(time.Millisecond)),
		)
		t.faults[f.name]++
	}
	what = strings.Join(label, " + ")
	w.tape.note("%s", what)
	began := time.Now()
	for _, f := range faults {
		for _, in := range f.in {
			w.oracle.Trouble(in)
		}
		if err := f.begin(ctx); err != nil {
			return what, fmt.Errorf("%s: %w", what, err)
		}
	}
	slices.SortFunc(faults, func(a, b *fault) int { return cmp.Compare(a.hold, b.hold) })
	for _, f := range faults {
		if err := sleep(ctx, time.Until(began.Add(f.hold))); err != nil {
			return what, err
		}
		if err := f.repair(ctx); err != nil {
			return what, fmt.Errorf("%s: repair: %w", what, err)
		}
		for _, in := range f.in {
			w.oracle.Healed(in, time.Now())
		}
	}
	return what, nil
}

// choose the next fault, or two that do not touch the same.
func (w *world) choose(t *tally) []*fault {
	r := w.chance
	first := w.draw(r, t)
	if first.alone || r.IntN(4) != 0 {
		return []*fault{first}
	}
	for range 20 {
		second := w.draw(r, t)
		if !second.alone && second.name != first.name && second.at != first.at &&
			(first.deadly == "" || second.deadly == "") {
			return []*fault{first, second}
		}
	}
	return []*fault{first}
}

// draw goes by weight, but for one that has not happened yet: every kind is to happen.
func (w *world) draw(r *rand.Rand, t *tally) *fault {
	total := 0
	for _, k := range w.kinds {
		total += k.weight
	}
	for {
		n := r.IntN(total)
		i := 0
		for n >= w.kinds[i].weight {
			n -= w.kinds[i].weight
			i++
		}
		m := w.members[r.IntN(len(w.members))]
		f := w.kinds[i].make(w, r, m)
		if f == nil ||
			f.deadly != "" && w.oracle.Deaths(f.deadly, time.Now()) >= 2 { // a third is let back later (T3)
			continue
		}
		if t.faults[f.name] > 0 && len(t.faults) < len(w.kinds) && r.IntN(3) > 0 {
			continue
		}
		return f
	}
}

// settle makes a change everywhere, and waits until every name is right in every member. Who died a third time
// lately, of two faults in a row, is let
// back later (T3).
func (w *world) settle(ctx context.Context, began time.Time, limit time.Duration) (took time.Duration, err error) {
	if err := w.probe(ctx); err != nil {
		return 0, err
	}
	asked := time.Now()
	for {
		behind := w.oracle.Behind(asked)
		if len(behind) == 0 {
			return time.Since(began), nil
		}
		if time.Since(began) > limit && time.Since(w.oracle.Damped(time.Now())) > converge || ctx.Err() != nil {
			return 0, fmt.Errorf("%s", strings.Join(behind, "; "))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// percentile of durations, rounded for people.
func percentile(of []time.Duration, percent int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)].Round(10 * time.Millisecond)
}
