package reload

import (
	"testing"
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
