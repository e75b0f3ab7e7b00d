package votes

import (
	"hash/fnv"
	"time"
)

// Probes in a row that must differ before the result of an endpoint changes, so that one lost packet is no outage.
const (
	toDown = 3
	toUp   = 2
)

// Result is what one member knows of one endpoint. The zero value means reached.
type Result struct {
	Down    bool
	Differs int // probes in a row that differ from Down
}

// Next returns the Result after one more probe.
func (r Result) Next(reached bool) Result {
	if reached != r.Down {
		return Result{Down: r.Down}
	}
	r.Differs++
	if r.Down && r.Differs >= toUp || !r.Down && r.Differs >= toDown {
		return Result{Down: !r.Down}
	}
	return r
}

// Pace is how often the members of a clusterset probe.
type Pace struct {
	Interval time.Duration // from one probe of an endpoint to the next, while nothing changes
	Timeout  time.Duration // of one probe
	share    time.Duration // the shortest interval
}

// For returns the pace for this many live members: all of them together probe an endpoint at most once a second.
func (p Pace) For(live int) Pace {
	p.share = time.Duration(live-1) * time.Second
	p.Interval = max(p.Interval, p.share)
	return p
}

// First returns when a member probes a new endpoint: within the interval, and different for each, so that restarts
// make no burst.
func (p Pace) First(member string, e Endpoint) time.Duration {
	return time.Duration(float64(p.Interval) * fraction(member, e, 0))
}

// Again returns when a member probes an endpoint after the n-th probe: after about the interval, or a third of it to
// confirm a change.
func (p Pace) Again(member string, e Endpoint, r Result, n int) time.Duration {
	wait := p.Interval
	if r.Differs > 0 {
		wait = max(wait/3, p.share)
	}
	return time.Duration(float64(wait) * (0.9 + 0.2*fraction(member, e, n)))
}

// fraction returns a number in [0, 1) that depends on its arguments.
func fraction(member string, e Endpoint, n int) float64 {
	h := fnv.New64a()
	for _, s := range []string{member, e.Cluster, e.Record, e.Address, string(rune(n))} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return float64(h.Sum64()>>11) / (1 << 53)
}
