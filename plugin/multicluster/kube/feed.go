package kube

import (
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// feed is where the reflector of one resource puts what it gets (cache.ReflectorStore). All is applied as it comes, that of a
// streamed list too; a list's end then shows what is gone.
type feed struct {
	store   *store
	table   table
	imports bool         // it is that of ServiceImports
	slices  bool         // it is that of EndpointSlices
	round   uint32       // of the last list that told objects apart by it
	listing *listing     // the list that streams in, if one does
	heard   atomic.Int64 // when the API server last said something, bookmarks included, in Unix nanoseconds
}

// table is the part of the store that holds one kind of object.
type table struct {
	set    func(object any, round uint32)
	remove func(object any, version uint64)
	// sweep removes what was not set in this round.
	sweep   func(round uint32, version uint64)
	size    func() int
	version func(object any) uint64
}

func (s *store) feed(t table) *feed {
	f := &feed{store: s, table: t}
	s.waiting[f] = true
	return f
}

func (s *store) importFeed() *feed {
	f := s.feed(table{
		set:     func(o any, round uint32) { s.setImport(o.(*importObject), round) },
		remove:  func(o any, version uint64) { s.removeImport(o.(*importObject).key, version) },
		version: func(o any) uint64 { return o.(*importObject).version },
		size:    func() int { return s.imports },
		sweep: func(round uint32, version uint64) {
			for key, g := range s.services {
				if g.imp != nil && g.imp.round != round {
					s.removeImport(key, version)
				}
			}
		},
	})
	f.imports = true
	return f
}

func (s *store) sliceFeed() *feed {
	f := s.feed(table{
		set:     func(o any, round uint32) { s.setSlice(o.(*sliceObject), round) },
		remove:  func(o any, version uint64) { s.removeSlice(o.(*sliceObject).key, version) },
		version: func(o any) uint64 { return o.(*sliceObject).version },
		size:    func() int { return len(s.slices) },
		sweep: func(round uint32, version uint64) {
			for key, o := range s.slices {
				if o.round != round {
					s.removeSlice(key, version)
				}
			}
		},
	})
	f.slices = true
	return f
}

func (s *store) namespaceFeed() *feed {
	return s.feed(table{
		set:     func(o any, round uint32) { s.setNamespace(o.(*namespaceObject), round) },
		remove:  func(o any, version uint64) { s.removeNamespace(o.(*namespaceObject).key, version) },
		version: func(o any) uint64 { return o.(*namespaceObject).version },
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

// Replace implements cache.ReflectorStore. Each page of the list gave its listing, which was applied already.
func (f *feed) Replace(objects []any, version string) error {
	defer f.lock()()
	l := objects[0].(*listing)
	if l != f.listing {
		return errors.New("a list that was given up")
	}
	if !l.whole {
		f.table.sweep(l.round, parseUint([]byte(version), 64))
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

// listing is a list that streams in. The reflector would gather its objects before it hands them over; here each is applied as it
// comes, which is right since a list is never older than what was seen before (newest). All that the reflector gets is the listing itself, as
// the only object.
type listing struct {
	feed  *feed
	round uint32
	whole bool // it fills an empty table: at its end, nothing can be gone
}

// stream begins a list. One that broke off before has no effect any more.
func (f *feed) stream() *listing {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.round++
	f.listing = &listing{feed: f, round: f.round, whole: f.table.size() == 0}
	return f.listing
}

// page is the listing that a page of a list belongs to: the first one begins it.
func (f *feed) page(continued bool) *listing {
	if !continued {
		return f.stream()
	}
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if f.listing == nil {
		return &listing{feed: f} // it was given up: without effect
	}
	return f.listing
}

// abandon makes sure that no listing has an effect any more.
func (f *feed) abandon() {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.listing = nil
}

// apply does not count as hearing the API server: of a list that never comes to its end, what is gone stays.
func (l *listing) apply(kind watch.EventType, object any) {
	f := l.feed
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if f.listing != l {
		return
	}
	if kind == watch.Deleted {
		f.table.remove(object, f.table.version(object))
	} else {
		f.table.set(object, l.round)
	}
}
