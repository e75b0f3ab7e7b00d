package reload

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/caddy"
)

// stuck is a watch whose requests do not end when it is closed, as with a credential plugin that hangs.
type stuck struct{ closing, release chan struct{} }

func (s *stuck) Synced() bool          { return true }
func (s *stuck) Wait() <-chan struct{} { return s.closing }
func (s *stuck) Started() time.Time    { return time.Time{} }
func (s *stuck) Refused() error        { return nil }

func (s *stuck) Close() {
	close(s.closing)
	<-s.release
}

// silent is a new watch of an API server that does not answer.
type silent struct {
	started time.Time
	lists   chan struct{}
}

func (s *silent) Synced() bool          { return false }
func (s *silent) Wait() <-chan struct{} { return s.lists }
func (s *silent) Started() time.Time    { return s.started }
func (s *silent) Refused() error        { return nil }
func (s *silent) Close()                {}

// L4: a reload waits 10 s at most, whatever startup_timeout is: the Pod is not ready meanwhile.
func TestL4AReloadWaitsTenSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := New().Of(caddy.NewTestController("dns", "")), time.Now()
		open := func() (*silent, error) { return &silent{time.Now(), make(chan struct{})}, nil }
		if _, err := Open(l, open, time.Hour); err != nil {
			t.Errorf("nothing answered before, and yet: %v", err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("the reload took %v", took)
		}
	})
}

// L2: the ready plugin is answered while a load before waits for its requests to end.
func TestL2ReadyDoesNotWaitForAClosingWatch(t *testing.T) {
	ls := New()
	before, after := ls.Of(caddy.NewTestController("dns", "")), ls.Of(caddy.NewTestController("dns", ""))
	w := &stuck{make(chan struct{}), make(chan struct{})}
	for _, l := range []*Load{before, after} {
		l.opened, ls.all[l] = []opened{{watch: w}}, true
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		before.shutdown()
	}()
	<-w.closing
	ready := make(chan bool)
	go func() { ready <- after.Ready() }()
	select {
	case ok := <-ready:
		if !ok {
			t.Error("not ready, though the watch is synced")
		}
	case <-time.After(20 * time.Second):
		t.Error("Ready waits for a watch that closes")
	}
	close(w.release)
	<-over
}
