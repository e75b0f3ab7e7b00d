package external

import (
	"sync"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
)

// watch keeps a store up to date with one API server. Server blocks and reloads of the Corefile share it (L4).
type watch struct {
	*store
	*kube.Reflectors
	key  string
	refs int // guarded by the registry
}

// registry holds the open watches of the process, by the fingerprint of their kube.Config.
var registry = struct {
	sync.Mutex
	open map[string]*watch
}{open: make(map[string]*watch)}

// openWatch returns the watch of c, which it starts if none is open. It makes no request itself, so it does not fail or
// wait while the API server is down.
func openWatch(c kube.Config) (*watch, error) {
	key, err := c.Fingerprint()
	if err != nil {
		return nil, err
	}
	registry.Lock()
	defer registry.Unlock()
	w := registry.open[key]
	if w == nil {
		s := newStore()
		reflectors, err := c.FollowSlices(pluginName, labelService, strip, s, s.Synced)
		if err != nil {
			return nil, err
		}
		w = &watch{store: s, Reflectors: reflectors, key: key}
		registry.open[key] = w
	}
	w.refs++
	return w, nil
}

// Close releases a reference. The last one stops the watch and waits until it has stopped.
func (w *watch) Close() {
	registry.Lock()
	w.refs--
	last := w.refs == 0
	if last {
		delete(registry.open, w.key)
	}
	registry.Unlock()
	if last {
		w.Stop()
	}
}
