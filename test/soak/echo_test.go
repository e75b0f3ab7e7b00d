package main

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestTheEchoTellsAStalledMachine, and nothing else is an excuse: not a machine that runs, not one that stood for
// less than half of the time.
func TestTheEchoTellsAStalledMachine(t *testing.T) {
	e, err := startEcho(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.end(); err != nil {
			t.Error(err)
		}
	}()
	until := func(what string, ok func() bool) {
		for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	came := func() int { e.mu.Lock(); defer e.mu.Unlock(); return e.took.n }
	until("nothing comes back", func() bool { return came() > 5 })
	if err := e.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	until("a stall is not seen while it lasts", func() bool { return e.stalled(began, time.Now()) > 2*stall })
	if err := e.process.Process.Signal(os.Signal(syscall.SIGCONT)); err != nil {
		t.Fatal(err)
	}
	n := came()
	until("nothing comes back any more", func() bool { return came() > n+3 })
	var all counts
	if e.soFar(&all); all.stalls == 0 || all.still < 2*stall || all.longest > all.still || all.echo.n < n+3 {
		t.Errorf(
			"%d stalls, %v in sum, the longest %v; %d came back",
			all.stalls,
			all.still,
			all.longest,
			all.echo.n,
		)
	}
	const half = patience / 2
	e.mu.Lock()
	e.stalls = []span{{began, began.Add(half - time.Millisecond)}}
	e.mu.Unlock()
	if e.excuses(began, began.Add(patience)) {
		t.Error("less than half of the time is an excuse")
	}
	e.mu.Lock()
	e.stalls = append(e.stalls, span{began.Add(half), began.Add(half + 2*time.Millisecond)})
	e.mu.Unlock()
	if !e.excuses(began, began.Add(patience)) {
		t.Error("more than half of the time is no excuse")
	}
	if e.excuses(began, began.Add(time.Second)) {
		t.Error("a second is more than CoreDNS may take")
	}
	if e.excuses(began.Add(patience), began.Add(2*patience)) {
		t.Error("another time's stall is an excuse")
	}
}

// TestSpread: percentiles are right within a step, and never more than the most.
func TestSpread(t *testing.T) {
	var s spread
	for i := range 1000 {
		s.add(time.Duration(i+1) * time.Millisecond)
	}
	for percent, want := range map[float64]time.Duration{50: 500 * time.Millisecond, 99: 990 * time.Millisecond,
		100: time.Second} {
		if got := s.below(percent); got < want || got > want+want/16 || got > s.most {
			t.Errorf("%v %%: %v, want %v", percent, got, want)
		}
	}
}
