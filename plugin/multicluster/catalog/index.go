package catalog

import (
	"strings"
	"sync"
	"sync/atomic"
)

// Answers is what one namespaced name answers, immutable: a *Service, or what another plugin has. nil answers nothing.
type Answers[S any] interface {
	comparable
	Same(other S) bool // reports whether both give the same answers; either may be nil
}

// Table finds the answers of a name. Reading takes no lock, and sees each Service whole, before a change or after it
// (L3). Writers take turns. The zero value is empty.
type Table[S Answers[S]] struct {
	services sync.Map      // "<svc>.<ns>" → S
	Why      sync.Map      // "<svc>.<ns>" → why an object of that name answers nothing, a string (M8)
	spaces   sync.Map      // namespace → *atomic.Int64: Services that answer
	serial   atomic.Uint64 // M4, in full
	writing  sync.Mutex
}

// Service finds the Service of "<svc>.<ns>", in lower case; nil if that name answers nothing.
func (x *Table[S]) Service(key string) (none S) {
	if s, ok := x.services.Load(key); ok {
		return s.(S)
	}
	return none
}

// HasNamespace reports whether some Service of the namespace answers (N13).
func (x *Table[S]) HasNamespace(ns string) bool {
	n, ok := x.spaces.Load(ns)
	return ok && n.(*atomic.Int64).Load() > 0
}

// Serial is the zone's (M4): the low 32 bits of Version, never 0.
func (x *Table[S]) Serial() uint32 { return max(uint32(x.Version()), 1) }

// Version is the highest version that altered an answer.
func (x *Table[S]) Version() uint64 { return x.serial.Load() }

// Set replaces the Service of a key, nil for none, and reports whether that altered an answer. If it did, the serial
// moves to the version of the change, unless it is there already (M4).
func (x *Table[S]) Set(key string, s S, version uint64) (altered bool) {
	x.writing.Lock()
	defer x.writing.Unlock()
	return x.set(key, s, version)
}

// SetAll replaces the Services of some keys as one change: no Snapshot has a part of them.
func (x *Table[S]) SetAll(services map[string]S, version uint64) {
	x.writing.Lock()
	defer x.writing.Unlock()
	for key, s := range services {
		x.set(key, s, version)
	}
}

func (x *Table[S]) set(key string, s S, version uint64) (altered bool) {
	var none S
	old := x.Service(key)
	altered = !old.Same(s)
	switch {
	case s != none:
		if old == none {
			x.count(key, 1)
		}
		x.services.Store(key, s)
	case old != none:
		x.services.Delete(key)
		x.count(key, -1)
	}
	if altered {
		x.serial.Store(max(version, x.serial.Load()))
	}
	return altered
}

// count keeps the number of a namespace's Services. A new one is counted before it is seen and an old one
// afterwards, so that a namespace is never absent while a Service of it answers.
func (x *Table[S]) count(key string, by int64) {
	ns := key[strings.LastIndexByte(key, '.')+1:]
	n, ok := x.spaces.Load(ns)
	if !ok {
		n, _ = x.spaces.LoadOrStore(ns, new(atomic.Int64))
	}
	if n.(*atomic.Int64).Add(by) == 0 {
		x.spaces.Delete(ns)
	}
}

// Snapshot returns the serial and all Services of one moment, in no order: the content of a transfer (L6).
func (x *Table[S]) Snapshot() (serial uint32, all []S) {
	x.writing.Lock()
	defer x.writing.Unlock()
	for _, s := range x.services.Range {
		all = append(all, s.(S))
	}
	return x.Serial(), all
}
