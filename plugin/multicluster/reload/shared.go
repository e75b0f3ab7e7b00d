package reload

import (
	"maps"
	"slices"
	"sync"
)

// Shared holds the open watches of the process, by what they watch. Server blocks and loads of the Corefile share them
// (L4). The zero value is ready.
type Shared[W interface {
	comparable
	Stop()
}] struct {
	mu   sync.Mutex
	open map[string]W
	refs map[W]int
}

// Open returns the watch of a key, which it starts if none is open, and counts a reference. It fails if start does.
func (s *Shared[W]) Open(key string, start func() (W, error)) (w W, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.open[key]
	if !ok {
		if w, err = start(); err != nil {
			return w, err
		}
		if s.open == nil {
			s.open, s.refs = make(map[string]W), make(map[W]int)
		}
		s.open[key] = w
	}
	s.refs[w]++
	return w, nil
}

// Close releases a reference. The last one stops the watch and waits until it has stopped.
func (s *Shared[W]) Close(w W) {
	s.mu.Lock()
	s.refs[w]--
	last := s.refs[w] == 0
	if last {
		delete(s.refs, w)
		maps.DeleteFunc(s.open, func(_ string, o W) bool { return o == w })
	}
	s.mu.Unlock()
	if last {
		w.Stop()
	}
}

// All returns the open watches.
func (s *Shared[W]) All() []W {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.open))
}
