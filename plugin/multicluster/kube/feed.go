package kube

import (
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
)

// feed is where the reflector of one resource puts what it gets (cache.ReflectorStore). All is applied as it comes, that of a list
// too; a list's end then shows what is gone.
type feed struct {
	store *store
	table table
	round uint32       // lists in which something was gone, so far
	heard atomic.Int64 // when the API server last said something, bookmarks included, in Unix nanoseconds
}

// table is the part of the store that holds one kind of object.
type table struct {
	set    func(object any, round uint32)
	remove func(object any, version uint64)
	// sweep removes what was not set in this round.
	sweep   func(round uint32, version uint64)
	size    func() int
	version func(object any) uint64
	held    func(object any) bool // it is in the store
}

func (s *store) feed(t table) *feed {
	f := &feed{store: s, table: t}
	s.waiting[f] = true
	return f
}

func (s *store) importFeed() *feed {
	return s.feed(table{
		set:     func(o any, round uint32) { s.setImport(o.(*importObject), round) },
		remove:  func(o any, version uint64) { s.removeImport(o.(*importObject).key, version) },
		version: func(o any) uint64 { return o.(*importObject).version },
		held:    func(o any) bool { return o.(*importObject).held },
		size:    func() int { return s.imports },
		sweep: func(round uint32, version uint64) {
			for key, g := range s.services {
				if g.imp != nil && g.imp.round != round {
					s.removeImport(key, version)
				}
			}
		},
	})
}

func (s *store) sliceFeed() *feed {
	return s.feed(table{
		set:     func(o any, round uint32) { s.setSlice(o.(*sliceObject), round) },
		remove:  func(o any, version uint64) { s.removeSlice(o.(*sliceObject).key, version) },
		version: func(o any) uint64 { return o.(*sliceObject).version },
		held:    func(o any) bool { return o.(*sliceObject).held },
		size:    func() int { return len(s.slices) },
		sweep: func(round uint32, version uint64) {
			for key, o := range s.slices {
				if o.round != round {
					s.removeSlice(key, version)
				}
			}
		},
	})
}

func (s *store) namespaceFeed() *feed {
	return s.feed(table{
		set:     func(o any, round uint32) { s.setNamespace(o.(*namespaceObject), round) },
		remove:  func(o any, version uint64) { s.removeNamespace(o.(*namespaceObject).key, version) },
		version: func(o any) uint64 { return o.(*namespaceObject).version },
		held:    func(o any) bool { return o.(*namespaceObject).held },
		size:    func() int { return len(s.namespaces) },
		sweep: func(round uint32, version uint64) {
			for key, o := range s.namespaces {
				if o.round != round {
					s.removeNamespace(key, version)
				}
			}
		},
	})
}

// lock takes the store and notes that the API server was heard.
func (f *feed) lock() (unlock func()) {
	f.heard.Store(time.Now().UnixNano())
	f.store.mu.Lock()
	return f.store.mu.Unlock
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(object any) error {
	defer f.lock()()
	f.table.set(object, f.round)
	return nil
}

// Update implements cache.ReflectorStore.
func (f *feed) Update(object any) error { return f.Add(object) }

// Delete implements cache.ReflectorStore. The version of a deleted object is that of its deletion.
func (f *feed) Delete(object any) error {
	defer f.lock()()
	f.table.remove(object, f.table.version(object))
	return nil
}

// Replace implements cache.ReflectorStore. What the list has and the store does not was added, as far as it was streamed, by
// Transformer.
func (f *feed) Replace(objects []any, version string) error {
	defer f.lock()()
	for _, o := range objects {
		if !f.table.held(o) {
			f.table.set(o, f.round)
		}
	}
	// All that was listed is held now. If that is not all that is held, the rest is gone.
	if len(objects) != f.table.size() {
		f.round++
		for _, o := range objects {
			f.table.set(o, f.round)
		}
		f.table.sweep(f.round, parseUint([]byte(version), 64))
	}
	f.store.listed(f)
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to repeat.
func (f *feed) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (f *feed) Bookmark(string) error {
	f.heard.Store(time.Now().UnixNano())
	return nil
}

// Transformer implements cache.TransformingStore. The reflector gathers a streamed list before it hands it over; this is where
// each object passes, so it is applied at once. It is current: a list is never older than what was seen before.
func (f *feed) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return object, f.Add(object) }
}
