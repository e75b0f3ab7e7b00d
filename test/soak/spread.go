package main

import (
	"math"
	"time"
)

// spread counts durations, in steps of a twelfth of a doubling: six percent.
type spread struct {
	counts [400]int
	n      int
	most   time.Duration
}

const steps = 12

func (s *spread) add(d time.Duration) {
	at := int(math.Ceil(steps * math.Log2(max(1, float64(d)/float64(time.Microsecond)))))
	s.counts[min(at, len(s.counts)-1)]++
	s.n++
	s.most = max(s.most, d)
}

func (s *spread) merge(o *spread) {
	for at, n := range o.counts {
		s.counts[at] += n
	}
	s.n, s.most = s.n+o.n, max(s.most, o.most)
}

// below is a duration that so many percent of all do not exceed.
func (s *spread) below(percent float64) time.Duration {
	sum := 0
	for at, n := range s.counts {
		if sum += n; n > 0 && float64(sum) >= float64(s.n)*percent/100 {
			return min(s.most, time.Duration(math.Pow(2, float64(at)/steps)*float64(time.Microsecond)))
		}
	}
	return s.most
}
