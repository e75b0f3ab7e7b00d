package multicluster

import (
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/coredns/caddy"
)

// generation is one life of the Corefile, from one load to the next, with the references to watches that its stanzas hold.
// At a reload the new one opens its watches before the old one is shut down, so that the watched state lives on (L4). A
// reload that fails shuts nothing down: what it opened is given back by the generation that goes on.
type generation struct {
	started time.Time
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
		g = &generation{started: time.Now()}
		c.Set(generationKey{}, g)
	}
	return g
}

func (g *generation) open(config kube.Config, timeout time.Duration) (*kube.Watch, error) {
	generations.Lock()
	defer generations.Unlock()
	w, err := kube.Open(config)
	if err != nil {
		return nil, err
	}
	g.opened = append(g.opened, opened{w, timeout})
	generations.all[g] = true
	return w, nil
}

// shutdown gives back what g holds.
func (g *generation) shutdown() error {
	generations.Lock()
	defer generations.Unlock()
	g.close()
	return nil
}

// restartFailed is called on the generation that goes on, and gives back what the one that failed to start holds.
func (g *generation) restartFailed() error {
	generations.Lock()
	defer generations.Unlock()
	for other := range generations.all {
		if other != g {
			other.close()
		}
	}
	return nil
}

func (g *generation) close() {
	for _, o := range g.opened {
		o.watch.Close()
	}
	g.opened = nil
	delete(generations.all, g)
}

// ready tells whether every watch of the Corefile has been built completely, or cannot be because a CRD or a permission is
// missing and has been for longer than its startup_timeout (L2).
func (g *generation) ready(now time.Time) bool {
	generations.Lock()
	defer generations.Unlock()
	for _, o := range g.opened {
		if !o.watch.Synced() && (o.watch.Refused() == nil || now.Sub(g.started) < o.timeout) {
			return false
		}
	}
	return true
}

// Ready implements ready.Readiness for all stanzas together.
func (m *Multicluster) Ready() bool { return m.generation.ready(time.Now()) }
