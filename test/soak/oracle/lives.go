package oracle

import (
	"slices"
	"time"
)

// lease is what was seen of a member's Lease on the hub. That one renewal was seen means that it was made between
// two looks.
type lease struct {
	earliest, latest time.Time // of the last renewal
	dead             bool
	back             time.Time // the first renewal after the last death
	deaths           []time.Time
	quiet            time.Time // when it was last heard of after it had missed a renewal
}

// look is how much later a renewal may be seen by who tells the oracle than by a member, on a busy machine.
const look = 3 * time.Second

type span struct{ from, to time.Time } // to is zero while it lasts

// How a flapping member is damped (T3): of two deaths in memory it comes back at once; each further one makes it
// wait twice as long.
const (
	memory    = 11 * time.Minute // ten, and how far apart two may see the same death
	firstWait = 30 * time.Second
	longest   = 5 * time.Minute
)

// Renewed tells that a look at the hub showed a later renewal than the one before it did. A look begins before the
// hub is asked.
func (o *Oracle) Renewed(cluster string, before, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.leases[cluster]
	if l == nil {
		l = &lease{}
		o.leases[cluster] = l
	} else if o.silent(l, at) {
		o.dies(l, at)
	}
	if l.dead {
		l.dead, l.back = false, before
	}
	if o.misses(l, at) {
		l.quiet = at
	}
	l.earliest, l.latest = before, at
}

// misses reports whether a renewal is overdue, so that it may be one of those that are silent together.
func (o *Oracle) misses(l *lease, now time.Time) bool {
	return !l.earliest.IsZero() && now.Sub(l.earliest) > o.bounds.Renew*3/2
}

// HubAway is called when the hub's API server is ended.
func (o *Oracle) HubAway(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = append(o.away, span{from: at})
}

// HubBack is called when it answers again.
func (o *Oracle) HubBack(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away[len(o.away)-1].to = at
}

// silent reports whether it may be taken for dead: nobody's blindness counts, but a hub that was away for no longer
// than it takes to notice
// may not have been missed.
func (o *Oracle) silent(l *lease, now time.Time) bool {
	d := now.Sub(l.earliest)
	for _, s := range o.away {
		to := s.to
		if to.IsZero() || to.After(now) {
			to = now
		}
		from := s.from
		if from.Before(l.earliest) {
			from = l.earliest
		}
		if missed := to.Sub(from) - 2*o.bounds.Renew; missed > 0 {
			d -= missed
		}
	}
	return d >= o.bounds.Dead
}

func (o *Oracle) dies(l *lease, at time.Time) {
	if !l.dead {
		l.dead = true
		l.deaths = append(l.deaths, at)
	}
}

func (l *lease) wait(now time.Time) time.Duration {
	n := 0
	for _, d := range l.deaths {
		if now.Sub(d) < memory {
			n++
		}
	}
	if n <= 2 {
		return 0
	}
	return min(firstWait<<min(n-3, 8), longest)
}

// mayBeGone reports whether a cluster's endpoints may be missing in a member.
func (o *Oracle) mayBeGone(p pair, now time.Time) bool {
	l := o.leases[p.cluster]
	if l == nil || p.cluster == p.member {
		return false
	}
	if o.silent(l, now) {
		o.dies(l, now)
	}
	if l.dead {
		return true
	}
	if len(l.deaths) == 0 {
		return false
	}
	back := l.back
	if clear := o.clear(p.member, p.cluster); clear.After(back) {
		back = clear
	}
	return now.Sub(back) < l.wait(now)+o.bounds.Converge
}

// mustBeGone reports whether they must be, in a member that sees the hub.
func (o *Oracle) mustBeGone(p pair, now time.Time) bool {
	l := o.leases[p.cluster]
	if l == nil || p.cluster == p.member {
		return false
	}
	since := l.latest
	for _, what := range []*trouble{o.trouble[p.member], o.trouble[Link(p.member)], o.trouble[Hub],
		o.servers[p.member]} {
		if t := what.clear(); t.After(since) {
			since = t
		}
	}
	for id, other := range o.leases {
		if !o.bounds.Hold || id == p.member || id == p.cluster {
			continue
		}
		if o.misses(other, now) {
			return false
		}
		if other.quiet.After(since) {
			since = other.quiet
		}
	}
	return now.Sub(since) > o.bounds.Gone
}

// Heard is when a cluster's last renewal was seen.
func (o *Oracle) Heard(cluster string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.leases[cluster]; l != nil {
		return l.latest
	}
	return time.Time{}
}

// Deaths is how often a cluster was silent for so long lately that it is let back later (T3).
func (o *Oracle) Deaths(cluster string, now time.Time) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.leases[cluster]; l != nil {
		for _, d := range l.deaths {
			if now.Sub(d) < memory {
				n++
			}
		}
	}
	return n
}

// Damped is until when at the latest who died a third time lately, and renews from now on, is let back (T3).
func (o *Oracle) Damped(now time.Time) (until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.leases {
		back := l.back
		if o.silent(l, now) {
			o.dies(l, now)
		}
		if l.dead {
			back = now
		}
		if wait := l.wait(now); wait > 0 && back.Add(wait).After(until) {
			until = back.Add(wait)
		}
	}
	return until
}

// Figures are how long dead members' endpoints took to go, and returned ones' to come back.
func (o *Oracle) Figures() (gone, returned []time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.gone), slices.Clone(o.returned)
}

// wentAway and cameBack keep the figures, of names whose values do not change.
func (o *Oracle) wentAway(n *name, p pair, at time.Time) {
	delete(n.again, p)
	if n.missing[p] {
		return
	}
	n.missing[p] = true
	if len(n.values[p.cluster]) == 2 {
		o.gone = append(o.gone, at.Sub(o.leases[p.cluster].latest))
	}
}

func (o *Oracle) cameBack(n *name, p pair, at time.Time) {
	if !n.missing[p] {
		return
	}
	first := at
	if again := n.again[p]; !again.IsZero() {
		first = again
	}
	delete(n.missing, p)
	delete(n.again, p)
	l := o.leases[p.cluster]
	if since := o.clear(
		p.member,
		p.cluster,
	); len(n.values[p.cluster]) == 2 && !l.dead && !since.After(l.back) &&
		l.wait(at) == 0 {
		o.returned = append(o.returned, first.Sub(l.back))
	}
}
