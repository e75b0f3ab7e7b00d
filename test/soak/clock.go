package main

import (
	"context"
	"os"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab/offclock"
)

// clocks is B: b's clock is ten minutes fast, then ten minutes slow, then right again; each for longer than any
// Lease lasts.
func clocks(ctx context.Context, s *stage) error {
	return s.clocksOff(
		ctx,
		"B. A member's clock is off, where its agent asks for the time: a process has no wall clock of its own",
		"the clock of b",
		1,
		s.b,
	)
}

// hubClock is B: to all agents the hub and its controller are ten minutes slow, and then ten minutes fast. A clock
// is off only beside another;
// so it is theirs that are set, all alike.
func hubClock(ctx context.Context, s *stage) error {
	return s.clocksOff(
		ctx,
		"B. The hub's clock is off: all agents' are beside it, and alike",
		"the clock of the hub and its controller, as every agent sees it",
		-1,
		s.members...)
}

// clocksOff sets the clocks of members' agents; sign tells whose the report calls fast.
func (s *stage) clocksOff(ctx context.Context, section, whose string, sign time.Duration, of ...*member) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	since := time.Now()
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute, 0} {
		for _, m := range of {
			if err := s.setClock(ctx, self, m, sign*off); err != nil {
				return err
			}
		}
		if err := sleep(ctx, s.within()); err != nil {
			return err
		}
		if _, err := s.settle(ctx, time.Now(), time.Minute); err != nil {
			return err
		}
		wrong, _, err := s.until(ctx, time.Minute) // members are well on the hub, and all else is as ever
		if err != nil {
			return err
		}
		for _, what := range wrong {
			s.tape.fail("%s, %v: %s", section, sign*off, what)
		}
	}
	s.found(
		section,
		"the clocks of the API servers",
		"",
		true,
		"the true time throughout: it is agents that are set",
	)
	s.found(
		section,
		whose,
		"",
		true,
		"10 minutes fast, then 10 minutes slow, then right again; each for %s",
		seconds(s.within()),
	)
	for _, m := range s.members {
		s.keeps(section, m, since)
	}
	return nil
}

// setClock starts a member's agent again, with a clock that is off, and waits until it has renewed its Lease.
func (s *stage) setClock(ctx context.Context, self string, m *member, off time.Duration) (err error) {
	s.oracle.Trouble(m.ID)
	m.Agent.Kill()
	began := time.Now()
	if off == 0 {
		err = m.Agent.Start(ctx)
	} else {
		err = m.Agent.StartAs(self, offclock.Variable(off))
	}
	if err == nil {
		err = m.Agent.UntilReady(ctx)
	}
	if err != nil {
		return err
	}
	s.oracle.Healed(m.ID, time.Now())
	return insist(ctx, func() error { return unless(s.oracle.Heard(m.ID).After(began)) })
}
