package multicluster

import (
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/coredns/caddy"
)

// generation is one load of the Corefile, with the watches that its stanzas use. After a reload the new one opens
// its watches before the old one is shut down, so what both use stays open (L4).
type generation struct {
	stanzas int
	opened  []opened
	done    int       // stanzas that are open and do not wait any more; the generation answers when all are
	waits   time.Time // since when it waits for new lists; zero if it never did
	closed  chan struct{}
}

type opened struct {
	watch   *kube.Watch
	timeout time.Duration
}

// generations are those that have open watches: one, or two during a reload.
var generations = struct {
	sync.Mutex
	all map[*generation]bool
}{all: make(map[*generation]bool)}

type generationKey struct{}

// generationOf returns the generation of the instance that c sets up, and counts a stanza of it.
func generationOf(c *caddy.Controller) *generation {
	g, ok := c.Get(generationKey{}).(*generation)
	if !ok {
		g = &generation{closed: make(chan struct{})}
		c.Set(generationKey{}, g)
	}
	g.stanzas++
	return g
}

// open returns the watch of a stanza. During a reload it gives a new watch time to list, because
// until the last stanza is open the generation before answers (L1). It does not wait for what the
// API server refuses. All stanzas wait together.
func (g *generation) open(config kube.Config, timeout time.Duration) (*kube.Watch, error) {
	w, wait, err := g.acquire(config, timeout)
	if err != nil {
		return nil, err
	}
	defer g.finished()
	over := time.After(time.Until(wait))
	for !wait.IsZero() && w.Refused() == nil {
		select {
		case <-w.Wait():
			return w, nil
		case <-over:
			return w, nil
		case <-time.After(50 * time.Millisecond):
		}
	}
	return w, nil
}

// acquire opens a watch. wait is how long the caller may wait for it: zero if it is not new, or nobody else
// answers.
func (g *generation) acquire(config kube.Config, timeout time.Duration) (w *kube.Watch, wait time.Time, err error) {
	generations.Lock()
	defer generations.Unlock()
	closeAbandoned()
	now := time.Now()
	if w, err = kube.Open(config); err != nil {
		return nil, time.Time{}, err
	}
	g.opened = append(g.opened, opened{w, timeout})
	generations.all[g] = true
	if len(generations.all) == 1 || w.Started().Before(now) {
		return w, time.Time{}, nil
	}
	if g.waits.IsZero() {
		g.waits = now
	}
	return w, g.waits.Add(timeout), nil
}

// finished counts one more stanza that is open.
func (g *generation) finished() {
	generations.Lock()
	defer generations.Unlock()
	g.done++
}

// shutdown closes the watches of g.
func (g *generation) shutdown() error {
	generations.Lock()
	defer generations.Unlock()
	g.close()
	return nil
}

func restartFailed() error {
	generations.Lock()
	defer generations.Unlock()
	closeAbandoned()
	return nil
}

// closeAbandoned closes the watches of generations whose instance does not exist any more. A reload that fails
// shuts nothing down, and calls back only the instance that goes on, which may have no stanza of ours.
func closeAbandoned() {
	live := make(map[*generation]bool)
	for _, i := range caddy.Instances() {
		i.StorageMu.RLock()
		if g, ok := i.Storage[generationKey{}].(*generation); ok {
			live[g] = true
		}
		i.StorageMu.RUnlock()
	}
	for g := range generations.all {
		if !live[g] {
			g.close()
		}
	}
}

func (g *generation) close() {
	if !generations.all[g] {
		return
	}
	delete(generations.all, g)
	close(g.closed)
	for _, o := range g.opened {
		o.watch.Close()
	}
	g.opened = nil
}
