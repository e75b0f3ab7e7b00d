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
	serial   atomic.Uint32 // of the zone (M4); 0 before the first build
	writing  sync.Mutex
	version  uint64 // the highest that altered an answer; guarded by writing
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

// Serial is the zone's (M4), never 0.
func (x *Table[S]) Serial() uint32 { return max(x.serial.Load(), 1) }

// Newer reports whether a is a later serial than b (RFC 1982 §3.2).
func Newer(a, b uint32) bool { return int32(a-b) > 0 }

// Set replaces the Service of a key, nil for none, and reports whether that altered an answer. If it did, the serial
// moves. version is the resourceVersion of the changed object.
func (x *Table[S]) Set(key string, s S, version uint64) (altered bool) {
	x.writing.Lock()
	defer x.writing.Unlock()
	if altered = x.set(key, s); altered {
		x.move(version)
	}
	return altered
}

// SetAll replaces the Services of some keys as one change: a Snapshot has all or none. The first build alters an answer
// even if it has no Service.
func (x *Table[S]) SetAll(services map[string]S, version uint64) {
	x.writing.Lock()
	defer x.writing.Unlock()
	altered := x.serial.Load() == 0
	for key, s := range services {
		altered = x.set(key, s) || altered
	}
	if altered {
		x.move(version)
	}
}

// move sets the serial to that of a version, or adds 1 if that is not newer: the version may be lower than one of
// another watch or of an API server before its restore, and two versions may have one serial (M4).
func (x *Table[S]) move(version uint64) {
	now := x.serial.Load()
	next := now + 1
	if version > x.version {
		x.version = version
		if at := serialOf(version); now == 0 || Newer(at, now) {
			next = at
		}
	}
	x.serial.Store(max(next, 1))
}

// serialOf returns the low 32 bits of a resourceVersion. A version of 2^48 or more counts nanoseconds, as GKE's do, and
// its low bits begin again every 4.3 s: of such, serialOf returns units of 2^30, about a second each.
func serialOf(version uint64) uint32 {
	if version >= 1<<48 {
		version >>= 30
	}
	return uint32(version)
}

func (x *Table[S]) set(key string, s S) (altered bool) {
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
