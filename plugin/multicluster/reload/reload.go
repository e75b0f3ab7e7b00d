// Package reload keeps what a plugin watches across reloads of the Corefile (L4), and reports when it is ready (L2).
// It does not know what is watched.
package reload

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coredns/caddy"
)

// Watch is what a stanza of the Corefile uses. Stanzas and loads share it; each closes it once.
type Watch interface {
	Synced() bool          // the first lists are complete
	Wait() <-chan struct{} // closed when they are
	Started() time.Time
	Refused() error // why there can be no first lists: no CRD or permission, or refused credentials
	Close()
}

// Loads are the loads of the Corefile that have open watches of one plugin: one, or two during a reload.
type Loads struct {
	mu    sync.Mutex
	all   map[*Load]bool
	ready bool // a Load was complete, or a reload added the first one; false when no Load is left
}

// Load is one load of the Corefile, with the watches that its stanzas use. After a reload the new one opens its watches
// before the old one is shut down, so what both use stays open (L4).
type Load struct {
	of      *Loads
	began   time.Time
	first   bool // of the process, so that no earlier one answers while it starts
	stanzas int
	opened  []opened // by stanza
	closed  chan struct{}
}

type opened struct {
	watch   Watch
	timeout time.Duration
}

// New returns the Loads of a plugin.
func New() *Loads { return &Loads{all: make(map[*Load]bool)} }

// key is where the storage of a caddy instance has the Load of a plugin.
type key struct{ of *Loads }

// Of returns the Load of the instance that c sets up, and counts a stanza of it. The Load closes with the instance.
func (ls *Loads) Of(c *caddy.Controller) *Load {
	l, ok := c.Get(key{ls}).(*Load)
	if !ok {
		l = &Load{of: ls, began: time.Now(), closed: make(chan struct{})}
		c.Set(key{ls}, l)
		c.OnFirstStartup(func() error { l.first = true; return nil })
	}
	l.stanzas++
	c.OnRestartFailed(func() error { ls.closeAbandoned(); return nil })
	c.OnShutdown(l.shutdown)
	return l
}

// Closed returns a channel that is closed when the Load is shut down.
func (l *Load) Closed() <-chan struct{} { return l.closed }

// maxWait is the most that a reload waits for lists. Meanwhile the Pod is not ready, because the ready plugin asks
// plugins whose turn to start comes later, such as kubernetes.
const maxWait = 10 * time.Second

// Open returns the watch of a stanza, which open opens. During a reload it waits until a new watch has listed: until
// all stanzas are open, the previous load answers (L1). If the API server refuses the lists, or they are not complete
// in time, Open fails if the previous load has complete lists: so does the reload, and the previous load goes on. All
// stanzas wait together, from the beginning of the load.
func Open[W Watch](l *Load, open func() (W, error), timeout time.Duration) (W, error) {
	w, wait, err := acquire(l, open, timeout)
	if err != nil || !wait {
		return w, err
	}
	timeout = min(timeout, maxWait)
	over := time.After(time.Until(l.began.Add(timeout)))
	for err == nil {
		select {
		case <-w.Wait():
			return w, nil
		case <-over:
			err = fmt.Errorf("no complete list within %v: reload again when the API server answers", timeout)
		case <-time.After(50 * time.Millisecond):
			err = w.Refused()
		}
	}
	if l.replaces() {
		return w, err
	}
	return w, nil
}

// replaces reports whether a load before answers from complete lists.
func (l *Load) replaces() bool {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	for before := range l.of.all {
		if before != l && slices.ContainsFunc(before.opened, func(o opened) bool { return o.watch.Synced() }) {
			return true
		}
	}
	return false
}

// acquire opens a watch. wait is true if the watch is new, and the previous load answers until it has listed.
func acquire[W Watch](l *Load, open func() (W, error), timeout time.Duration) (w W, wait bool, err error) {
	l.of.closeAbandoned()
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	// A reload that adds the first stanza leaves a ready Pod ready (L2). This is set before open, because the plugin
	// ready goes on asking l even if the reload fails.
	l.of.ready = l.of.ready || len(l.of.all) == 0 && !l.first
	start := time.Now()
	if w, err = open(); err != nil {
		return w, false, err
	}
	l.opened = append(l.opened, opened{w, timeout})
	l.of.all[l] = true
	return w, !l.first && !w.Started().Before(start), nil
}

// shutdown closes the watches of l.
func (l *Load) shutdown() error {
	l.of.mu.Lock()
	watches := l.remove()
	l.of.ready = l.of.ready && len(l.of.all) > 0
	l.of.mu.Unlock()
	closeAll(watches)
	return nil
}

// closeAbandoned closes the watches of loads whose instance does not exist any more. A reload that fails shuts nothing
// down, and calls back only the instance that goes on, which may have no stanza of ours. Nobody but caddy can lock its
// list, so a SIGUSR1 in the microseconds of another restart may find the list half changed.
func (ls *Loads) closeAbandoned() {
	live := make(map[*Load]bool)
	for _, i := range caddy.Instances() {
		i.StorageMu.RLock()
		if l, ok := i.Storage[key{ls}].(*Load); ok {
			live[l] = true
		}
		i.StorageMu.RUnlock()
	}
	var watches []opened
	ls.mu.Lock()
	for l := range ls.all {
		if !live[l] {
			watches = append(watches, l.remove()...)
		}
	}
	ls.mu.Unlock()
	closeAll(watches)
}

// remove takes l out of its Loads and returns what it has opened.
func (l *Load) remove() []opened {
	if !l.of.all[l] {
		return nil
	}
	delete(l.of.all, l)
	close(l.closed)
	return l.opened
}

// closeAll is called without a lock: a watch waits for its requests, and Ready for nobody.
func closeAll(watches []opened) {
	for _, o := range watches {
		o.watch.Close()
	}
}

// Ready reports whether a load is complete, or was. The ready plugin asks the new load; while that waits for its lists,
// the old load counts. A reload never makes a ready pod unready (L2): that would take the zones of other plugins down,
// too.
func (l *Load) Ready() bool {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	for open := range l.of.all {
		l.of.ready = l.of.ready || open.complete()
	}
	return l.of.ready
}

// complete reports whether every watch has its first complete lists, or is refused them and its startup_timeout is
// over.
func (l *Load) complete() bool {
	for _, o := range l.opened {
		if !o.watch.Synced() && (o.watch.Refused() == nil || time.Since(o.watch.Started()) < o.timeout) {
			return false
		}
	}
	return len(l.opened) == l.stanzas
}

// Open returns the Loads that have open watches.
func (ls *Loads) Open() []*Load {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Collect(maps.Keys(ls.all))
}
