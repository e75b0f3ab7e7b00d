package packets

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// attempt is one question and what became of it.
type attempt struct {
	what, answer string
	number       int // of its stream, from 1
	err          error
	began        time.Time
	took         time.Duration
}

func (a attempt) String() string {
	return fmt.Sprintf(
		"%s %s: %q %v after %v",
		a.began.Format("15:04:05.000"),
		a.what,
		a.answer,
		a.err,
		a.took.Round(time.Millisecond),
	)
}

// record keeps every attempt of many streams.
type record struct {
	t    *testing.T
	ctx  context.Context
	end  context.CancelFunc
	all  sync.WaitGroup
	mu   sync.Mutex
	made map[string]int // by stream
	bad  []attempt
}

func newRecord(t *testing.T) *record {
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &record{t: t, ctx: ctx, end: end, made: map[string]int{}}
	t.Cleanup(func() { r.stop() }) // of a test that has given up
	return r
}

// renewed asks with a new flow each time.
func (r *record) renewed(c *cluster, protocol string, to netip.AddrPort) {
	r.t.Helper()
	c.forget(r.t, protocol, to)
	r.stream(fmt.Sprintf("%s asks %s %v again", c.ID, protocol, to), func() (string, error) {
		return c.pod.ask(protocol, netip.Addr{}, to)
	})
}

// lasting asks again and again with one flow, which goes to the backend that is wanted.
func (r *record) lasting(c *cluster, protocol string, to netip.AddrPort, want string) {
	r.t.Helper()
	var f *flow
	eventually(r.t, fmt.Sprintf("%s: a %s flow to %s", c.ID, protocol, want), func() error {
		var err error
		if f, err = c.pod.open(protocol, netip.Addr{}, to); err != nil {
			return err
		}
		answer, err := f.ask()
		if err == nil && answer != want {
			err = fmt.Errorf("it goes to %s", answer)
		}
		if err != nil {
			f.Close()
		}
		return err
	})
	r.t.Cleanup(func() { f.Close() })
	r.stream(fmt.Sprintf("%s asks %s %v as before", c.ID, protocol, to), func() (string, error) {
		answer, err := f.ask()
		if err == nil && answer != want {
			err = fmt.Errorf("it went to %s before", want)
		}
		return answer, err
	})
}

func (r *record) stream(what string, ask func() (string, error)) {
	r.mu.Lock()
	r.made[what] = 0 // more waits for this stream, too
	r.mu.Unlock()
	r.all.Go(func() {
		pace := time.NewTicker(2 * time.Millisecond) // else they use up all ports
		defer pace.Stop()
		for r.ctx.Err() == nil {
			a := attempt{what: what, began: time.Now()}
			a.answer, a.err = ask()
			a.took = time.Since(a.began)
			r.mu.Lock()
			r.made[what]++
			a.number = r.made[what]
			if a.err != nil {
				r.bad = append(r.bad, a)
			}
			r.mu.Unlock()
			<-pace.C
		}
	})
}

// attempts returns how many were made so far.
func (r *record) attempts() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, made := range r.made {
		n += made
	}
	return n
}

// more waits until every stream has made so many further attempts.
func (r *record) more(n int) {
	r.t.Helper()
	count := func() map[string]int {
		r.mu.Lock()
		defer r.mu.Unlock()
		out := map[string]int{}
		for what, made := range r.made {
			out[what] = made
		}
		return out
	}
	before := count()
	eventually(r.t, "more attempts", func() error {
		for what, made := range count() {
			if made < before[what]+n {
				return fmt.Errorf("%s: %d of %d", what, made-before[what], n)
			}
		}
		return nil
	})
}

// stop ends the streams, after their last attempts, and returns those that failed.
func (r *record) stop() []attempt {
	if r.ctx.Err() != nil {
		return r.bad
	}
	r.end()
	r.all.Wait()
	r.t.Logf("%d attempts of %d streams, %d failed", r.attempts(), len(r.made), len(r.bad))
	for _, a := range r.bad[:min(len(r.bad), 20)] {
		r.t.Logf("failed: %v", a)
	}
	return r.bad
}
