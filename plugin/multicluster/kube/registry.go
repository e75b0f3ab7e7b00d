package kube

import "sync"

// registry holds the open Watches of the process, by the fingerprint of their Config.
var registry = struct {
	sync.Mutex
	open map[string]*Watch
}{open: make(map[string]*Watch)}

// Open returns the Watch of c, which it starts if none is open, and counts a reference. It makes no request itself, so
// it does not fail or wait while the API server is down. It fails if c, or a file that c names, is invalid.
func Open(c Config) (*Watch, error) {
	key, err := c.Fingerprint()
	if err != nil {
		return nil, err
	}
	registry.Lock()
	defer registry.Unlock()
	w := registry.open[key]
	if w == nil {
		if w, err = start(c, key); err != nil {
			return nil, err
		}
		registry.open[key] = w
	}
	w.refs++
	return w, nil
}

// Close releases a reference. The last one stops the Watch and waits until it has stopped.
func (w *Watch) Close() {
	registry.Lock()
	w.refs--
	last := w.refs == 0 // true once only: a surplus Close makes refs negative
	if last {
		delete(registry.open, w.key)
	}
	registry.Unlock()
	if last {
		w.Stop()
	}
}

// opened returns the open Watches.
func opened() []*Watch {
	registry.Lock()
	defer registry.Unlock()
	all := make([]*Watch, 0, len(registry.open))
	for _, w := range registry.open {
		all = append(all, w)
	}
	return all
}
