package votes

import (
	"hash/fnv"
	"time"
)

// How many looks in a row must say otherwise before a verdict changes: a lost packet is no outage, and one answer no recovery.
const (
	toDown = 3
	toUp   = 2
)

// Look is what one member knows of one endpoint. The zero value reaches it.
type Look struct {
	Down      bool
	Otherwise int // results in a row that say otherwise
}

// Next is the Look after one more result.
func (l Look) Next(reached bool) Look {
	if reached != l.Down {
		return Look{Down: l.Down}
	}
	l.Otherwise++
	if l.Down && l.Otherwise >= toUp || !l.Down && l.Otherwise >= toDown {
		return Look{Down: !l.Down}
	}
	return l
}

// Pace is a clusterset's.
type Pace struct {
	Interval time.Duration // from one look at an endpoint to the next, while nothing changes
	Timeout  time.Duration // of one
	share    time.Duration // no shorter interval, whatever an endpoint does
}

// For so many live members, the pace at which all of them together look at an endpoint no more than once a second.
func (p Pace) For(live int) Pace {
	p.share = time.Duration(live-1) * time.Second
	p.Interval = max(p.Interval, p.share)
	return p
}

// First is how long a member waits before it looks at an endpoint for the first time: anything below the interval, and not the same for
// any two, so that neither restarts nor new Services make a burst.
func (p Pace) First(member string, e Endpoint) time.Duration {
	return time.Duration(float64(p.Interval) * fraction(member, e, 0))
}

// Again is how long it waits after the n-th look: the interval, a tenth more or less; where the last result is to be confirmed a third of it,
// as far as so many members may: one that changes its mind all the time would stay there.
func (p Pace) Again(member string, e Endpoint, l Look, n int) time.Duration {
	wait := p.Interval
	if l.Otherwise > 0 {
		wait = max(wait/3, p.share)
	}
	return time.Duration(float64(wait) * (0.9 + 0.2*fraction(member, e, n)))
}

// fraction is in [0, 1), and for each its own.
func fraction(member string, e Endpoint, n int) float64 {
	h := fnv.New64a()
	for _, s := range []string{member, e.Cluster, e.Record, e.Address, string(rune(n))} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return float64(h.Sum64()>>11) / (1 << 53)
}
