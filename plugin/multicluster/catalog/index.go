package catalog

import (
	"sync"
	"sync/atomic"
)

// Index finds the Service of a name. Reading takes no lock, and sees each Service whole, before a change or after it
// (L3). Writers take turns.
type Index struct {
	services sync.Map      // "<svc>.<ns>" → *Service
	spaces   sync.Map      // namespace → *atomic.Int64: Services that answer
	serial   atomic.Uint64 // M4, in full
	writing  sync.Mutex
}

// NewIndex makes an empty index.
func NewIndex() *Index { return new(Index) }

// Service finds the Service of "<svc>.<ns>", in lower case; nil if that name answers nothing.
func (x *Index) Service(key string) *Service {
	if s, ok := x.services.Load(key); ok {
		return s.(*Service)
	}
	return nil
}

// HasNamespace reports whether some Service of the namespace answers (N13).
func (x *Index) HasNamespace(ns string) bool {
	n, ok := x.spaces.Load(ns)
	return ok && n.(*atomic.Int64).Load() > 0
}

// Serial is the zone's (M4): the low 32 bits of Version, never 0.
func (x *Index) Serial() uint32 { return max(uint32(x.Version()), 1) }

// Version is the highest version that altered an answer.
func (x *Index) Version() uint64 { return x.serial.Load() }

// Set replaces the Service of a key, nil for none, and reports whether that altered an answer. If it did, the serial
// moves to the version of the change, unless it is there already (M4).
func (x *Index) Set(key string, s *Service, version uint64) (altered bool) {
	x.writing.Lock()
	defer x.writing.Unlock()
	old := x.Service(key)
	if old.Same(s) {
		return false
	}
	if s == nil {
		x.services.Delete(key)
	} else {
		x.count(s, 1)
		x.services.Store(key, s)
	}
	if old != nil {
		x.count(old, -1)
	}
	x.serial.Store(max(version, x.serial.Load()))
	return true
}

// count keeps the number of a namespace's Services. A new one is counted before it is seen and an old one
// afterwards, so that a namespace is never absent while a Service of it answers.
func (x *Index) count(s *Service, by int64) {
	ns := s.Namespace()
	n, ok := x.spaces.Load(ns)
	if !ok {
		n, _ = x.spaces.LoadOrStore(ns, new(atomic.Int64))
	}
	if n.(*atomic.Int64).Add(by) == 0 {
		x.spaces.Delete(ns)
	}
}

// Snapshot returns the serial and all Services of one moment, in no order: the content of a transfer (L6).
func (x *Index) Snapshot() (serial uint32, all []*Service) {
	x.writing.Lock()
	defer x.writing.Unlock()
	for _, s := range x.services.Range {
		all = append(all, s.(*Service))
	}
	return x.Serial(), all
}
