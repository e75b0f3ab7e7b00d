package multicluster

import (
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/coredns/caddy"
)

// generation is one life of the Corefile, from one load to the next, with the references to watches that its stanzas hold.
// At a reload the new one opens its watches before the old one is shut down, so that the watched state lives on (L4).
type generation struct {
	stanzas int
	opened  []opened
	done    int       // stanzas that have been opened, waiting included: it answers when that is all of them
	waits   time.Time // since when it waits for new lists; zero if it never did
}

type opened struct {
	watch   *kube.Watch
	timeout time.Duration
}

var generations = struct {
	sync.Mutex
	all map[*generation]bool
}{all: make(map[*generation]bool)}

type generationKey struct{}

// generationOf is the generation of the instance that c sets up.
func generationOf(c *caddy.Controller) *generation {
	g, ok := c.Get(generationKey{}).(*generation)
	if !ok {
		g = new(generation)
		c.Set(generationKey{}, g)
	}
	g.stanzas++
	return g
}

// open takes a reference on a watch. Where the Corefile is loaded again it gives a new one time to list, since until the last stanza is
// open the generation before answers (L1); what is refused will not come. The stanzas' times run together.
func (g *generation) open(config kube.Config, timeout time.Duration) (*kube.Watch, error) {
	w, wait, err := g.take(config, timeout)
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

// take tells until when the watch may be waited for: not at all if nobody answers meanwhile, or if it is not new.
func (g *generation) take(config kube.Config, timeout time.Duration) (w *kube.Watch, wait time.Time, err error) {
	generations.Lock()
	defer generations.Unlock()
	sweep()
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

// finished takes note that one more stanza is open.
func (g *generation) finished() {
	generations.Lock()
	defer generations.Unlock()
	g.done++
}

// shutdown gives back what g holds.
func (g *generation) shutdown() error {
	generations.Lock()
	defer generations.Unlock()
	g.close()
	return nil
}

func restartFailed() error {
	generations.Lock()
	defer generations.Unlock()
	sweep()
	return nil
}

// sweep gives back what belongs to no instance of the server any more: a reload that fails shuts nothing down, and tells only the
// instance that goes on, which may have no stanza of ours.
func sweep() {
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
	for _, o := range g.opened {
		o.watch.Close()
	}
	g.opened = nil
	delete(generations.all, g)
}

// ready tells whether whoever answers is ready. While a reload waits, that is the generation before, though the ready plugin asks the
// new one already.
func (g *generation) ready(now time.Time) bool {
	generations.Lock()
	defer generations.Unlock()
	if g.done == g.stanzas {
		return g.complete(now)
	}
	for before := range generations.all {
		if before.done == before.stanzas {
			return before.complete(now)
		}
	}
	return false
}

// complete tells whether every watch of the Corefile has been built completely, or cannot be because a CRD or a permission is
// missing and its startup_timeout is over: that of the watch, not of the Corefile, so that a reload does not go back on it (L2).
func (g *generation) complete(now time.Time) bool {
	for _, o := range g.opened {
		if !o.watch.Synced() && (o.watch.Refused() == nil || now.Sub(o.watch.Started()) < o.timeout) {
			return false
		}
	}
	return true
}

// Ready implements ready.Readiness for all stanzas together.
func (m *Multicluster) Ready() bool { return m.generation.ready(time.Now()) }
