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

// open takes a reference on a watch. Where the Corefile is loaded again it gives a new one time to list, since until it returns
// the generation before answers (L1); what is refused will not come.
func (g *generation) open(config kube.Config, timeout time.Duration) (*kube.Watch, error) {
	w, reload, err := g.take(config, timeout)
	if err != nil || !reload {
		return w, err
	}
	over := time.After(timeout)
	for w.Refused() == nil {
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

func (g *generation) take(config kube.Config, timeout time.Duration) (w *kube.Watch, reload bool, err error) {
	generations.Lock()
	defer generations.Unlock()
	sweep()
	if w, err = kube.Open(config); err != nil {
		return nil, false, err
	}
	g.opened = append(g.opened, opened{w, timeout})
	generations.all[g] = true
	return w, len(generations.all) > 1, nil
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

// ready tells whether every watch of the Corefile has been built completely, or cannot be because a CRD or a permission is
// missing and its startup_timeout is over: that of the watch, not of the Corefile, so that a reload does not go back on it (L2).
func (g *generation) ready(now time.Time) bool {
	generations.Lock()
	defer generations.Unlock()
	if len(g.opened) < g.stanzas {
		return false
	}
	for _, o := range g.opened {
		if !o.watch.Synced() && (o.watch.Refused() == nil || now.Sub(o.watch.Started()) < o.timeout) {
			return false
		}
	}
	return true
}

// Ready implements ready.Readiness for all stanzas together.
func (m *Multicluster) Ready() bool { return m.generation.ready(time.Now()) }
