package kube

import (
	"strconv"
	"sync/atomic"
	"time"
)

// feed is where the Reflector of one kind of object puts what it gets (cache.ReflectorStore). It applies each event
// to the store as it comes. A list is applied at its end, and shows what is gone.
type feed struct {
	store *store
	heard atomic.Int64 // when the API server last sent something, bookmarks included, in Unix nanoseconds
	round uint32       // lists so far

	set    func(object any, round uint32)
	remove func(object any)
	// sweep removes what was not set in this round. version is that of the list.
	sweep func(round uint32, version uint64)
}

func (s *store) importFeed() *feed {
	return s.feed(&feed{
		set:    func(o any, round uint32) { s.setImport(o.(*importObject), round) },
		remove: func(o any) { s.removeImport(o.(*importObject).key(), o.(*importObject).version) },
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
	return s.feed(&feed{
		set:    func(o any, round uint32) { s.setSlice(o.(*sliceObject), round) },
		remove: func(o any) { s.removeSlice(o.(*sliceObject).key(), o.(*sliceObject).version) },
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
	return s.feed(&feed{
		set:    func(o any, round uint32) { s.setNamespace(o.(*namespaceObject), round) },
		remove: func(o any) { s.removeNamespace(o.(*namespaceObject).name, o.(*namespaceObject).version) },
		sweep: func(round uint32, version uint64) {
			for name, o := range s.namespaces {
				if o.round != round {
					s.removeNamespace(name, version)
				}
			}
		},
	})
}

func (s *store) feed(f *feed) *feed {
	f.store = s
	s.waiting[f] = true
	return f
}

// lock locks the store and notes that the API server was heard.
func (f *feed) lock() (unlock func()) {
	f.heard.Store(time.Now().UnixNano())
	f.store.mu.Lock()
	return f.store.mu.Unlock
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(object any) error {
	defer f.lock()()
	f.set(object, f.round)
	return nil
}

// Update implements cache.ReflectorStore.
func (f *feed) Update(object any) error { return f.Add(object) }

// Delete implements cache.ReflectorStore. The version of a deleted object is that of its deletion.
func (f *feed) Delete(object any) error {
	defer f.lock()()
	f.remove(object)
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *feed) Replace(objects []any, version string) error {
	defer f.lock()()
	v, _ := strconv.ParseUint(version, 10, 64) // 0 moves no serial
	f.round++
	for _, o := range objects {
		f.set(o, f.round)
	}
	f.sweep(f.round, v)
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
