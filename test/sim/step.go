package sim

import (
	"fmt"
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// step is one thing that can happen next.
type step struct {
	weight int
	do     func()
}

// step lets one thing happen; false says that there is nothing to do before time passes.
func (w *World) step() bool {
	all := w.possible(w.rng.IntN(8) == 0)
	if len(all) == 0 {
		all = w.possible(true)
	}
	if !w.quiet {
		all = append(all, step{4, w.someoneActs}, step{1, w.somethingFails}, step{2, w.timePasses})
	}
	total := 0
	for _, s := range all {
		total += s.weight
	}
	if total == 0 {
		return false
	}
	w.steps++
	w.now = w.now.Add(time.Millisecond)
	n := w.rng.IntN(total)
	for _, s := range all {
		if n -= s.weight; n < 0 {
			s.do()
			return true
		}
	}
	panic("unreachable")
}

// possible are the steps of the machinery. Collectors are looked at only where asked for, since they take long to ask.
func (w *World) possible(collectors bool) []step {
	var out []step
	for _, m := range w.members {
		out = w.elections(m, out)
		for _, a := range m.agents {
			out = a.steps(out)
		}
		if !collectors {
			continue
		}
		for _, k := range append(m.server.Orphans(), m.server.Waiting()...) {
			out = append(out, step{20, func() { w.collects(m, "the garbage collector takes", k, m.server.Collect) }})
		}
		for _, k := range m.server.Tended() {
			out = append(out, step{20, func() { w.collects(m, "Kubernetes looks at", k, m.server.Tend) }})
		}
		for _, k := range m.server.Going() {
			out = append(
				out,
				step{20, func() { w.collects(m, "the namespace controller deletes", k, m.server.Finish) }},
			)
		}
	}
	return w.grants(out)
}

func (w *World) collects(m *member, what string, k api.Key, do func(api.Key) error) {
	w.note("%s: %s %s", m.id, what, k)
	w.must(do(k))
}

// steps of one agent: events that reach its caches, and passes.
func (a *agent) steps(out []step) []step {
	for _, side := range []kube.Side{kube.Local, kube.Hub} {
		if side == kube.Hub && (a.noReads || a.noWrites && a.joining != nil) || side == kube.Local && a.isCutOff() {
			continue
		}
		c := a.cache(side)
		for _, kind := range c.Kinds() {
			if c.Dead(kind) {
				out = append(out, step{4, func() { a.lists(side, kind) }})
			} else if c.Behind(kind) {
				out = append(out, step{10, func() { a.sees(side, kind) }})
			}
		}
	}
	for _, l := range a.loops {
		if !l.started {
			continue
		}
		l.tick(a.now)
		for _, req := range l.runnable() {
			if l.Name == "heartbeat" && len(l.running) > 0 {
				continue // one loop (controllers/agent); one would wait for the other for ever
			}
			out = append(out, step{5, func() { a.pass(l, req) }})
		}
	}
	return out
}

func (a *agent) lists(side kube.Side, kind string) {
	a.note("%s lists %s of %s", a.name, kind, side)
	for _, c := range a.cache(side).Relist(kind) {
		a.handle(side, kind, c)
	}
	a.advance()
}

// sees takes a few events of one kind.
func (a *agent) sees(side kube.Side, kind string) {
	for range 1 + a.rng.IntN(3) {
		if !a.cache(side).Behind(kind) {
			return
		}
		c := a.cache(side).Deliver(kind)
		verb, o := "sees", c.New
		if o == nil {
			verb, o = "sees the end of", c.Old
		}
		a.note("%s %s %s of %s @%s", a.name, verb, api.KeyOf(o), side, o.GetResourceVersion())
		a.handle(side, kind, c)
	}
}

// before stands between an agent and a server.
func (a *agent) before(s *api.Server, verb string, k api.Key) error {
	if a.rng.IntN(5) == 0 && a.depth < 3 {
		a.depth++
		for range 1 + a.rng.IntN(3) {
			a.step()
		}
		a.depth--
	}
	if a.dead {
		panic(crashed{a})
	}
	cut := s == a.World.hub && a.noWrites || s == a.server && a.isCutOff()
	if verb == "read" || verb == "list" {
		if cut {
			return fmt.Errorf("%s %s: %w", verb, k, errTimeout)
		}
		return nil
	}
	if a.crashIn == 0 {
		a.die()
		panic(crashed{a})
	}
	if a.crashIn > 0 {
		a.crashIn--
	}
	if cut {
		return fmt.Errorf("%s %s: %w", verb, k, errTimeout)
	}
	if !a.quiet && a.can("conflict", 0.02) {
		s.Touch(k, a.World.steps)
	}
	a.requested(s, verb, k)
	return nil
}

// after stands between a server that has written and the agent.
func (a *agent) after(s *api.Server, verb string, k api.Key) error {
	if a.quiet {
		return nil
	}
	if a.can("crash", 0.003) {
		a.die()
		panic(crashed{a})
	}
	if s == a.World.hub && a.can("lost answer", 0.02) {
		return fmt.Errorf("%s %s: http2: client connection lost", verb, k)
	}
	return nil
}

// timePasses moves the clock: a little, or to when something is due.
func (w *World) timePasses() {
	switch n := w.rng.IntN(20); {
	case n < 10:
		w.now = w.now.Add(time.Duration(w.rng.IntN(100)) * time.Millisecond)
	case n < 15:
		w.now = w.now.Add(time.Duration(w.rng.IntN(5000)) * time.Millisecond)
	case n < 18:
		w.untilDue()
	default:
		w.now = w.now.Add(time.Duration(w.rng.IntN(60)) * time.Second)
	}
}

// untilDue moves the clock to the next request of a queue.
func (w *World) untilDue() {
	var next time.Time
	for _, m := range w.members {
		for _, a := range m.agents {
			for _, l := range a.loops {
				for _, t := range l.later {
					if next.IsZero() || t.at.Before(next) {
						next = t.at
					}
				}
			}
		}
	}
	if next.After(w.now) {
		w.now = next
	}
}
