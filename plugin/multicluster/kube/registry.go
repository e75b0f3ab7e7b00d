package kube

import "sync"

// registry holds the Watches of the process, by fingerprint.
var registry = struct {
	sync.Mutex
	open map[string]*Watch
}{open: make(map[string]*Watch)}

// Open takes a reference on the Watch of a source and starts it if it is the first. It asks nothing of the API
// server, so an open Watch is handed out as it is, also while the API server is down.
func Open(c Config) (*Watch, error) {
	key, err := c.fingerprint()
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

// Close gives one reference back. The last one stops the Watch and returns when it has stopped.
func (w *Watch) Close() {
	registry.Lock()
	w.refs--
	last := w.refs == 0 // once: a Close too many goes below
	if last {
		delete(registry.open, w.key)
	}
	registry.Unlock()
	if last {
		w.stop()
	}
}

// opened are the Watches of the process.
func opened() []*Watch {
	registry.Lock()
	defer registry.Unlock()
	all := make([]*Watch, 0, len(registry.open))
	for _, w := range registry.open {
		all = append(all, w)
	}
	return all
}
