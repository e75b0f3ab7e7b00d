package catalog

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Index finds the Service of a name. Reading takes no lock: a reader loads one pointer to a bucket of immutable Services and
// sees each Service whole, before a change or after it (L3). Writers take turns.
type Index struct {
	table   atomic.Pointer[table]
	serial  atomic.Uint64 // M4, in full
	writing sync.Mutex
	spaces  sync.Map // namespace → *atomic.Int64: Services that answer
}

// table is a hash table of buckets that are replaced, never changed.
type table struct {
	seed    maphash.Seed
	buckets []atomic.Pointer[[]*Service]
	count   int
}

const fill = 4 // Services in a bucket, on average, at the most

// NewIndex makes an empty index.
func NewIndex() *Index {
	x := new(Index)
	x.table.Store(newTable(1))
	return x
}

func newTable(buckets int) *table {
	return &table{seed: seed, buckets: make([]atomic.Pointer[[]*Service], buckets)}
}

func (t *table) bucket(key string) *atomic.Pointer[[]*Service] {
	return &t.buckets[maphash.String(t.seed, key)&uint64(len(t.buckets)-1)]
}

// Service finds the Service of "<svc>.<ns>", in lower case; nil if that name answers nothing.
func (x *Index) Service(key string) *Service {
	if b := x.table.Load().bucket(key).Load(); b != nil {
		for _, s := range *b {
			if s.key == key {
				return s
			}
		}
	}
	return nil
}

// HasNamespace tells whether some Service of the namespace answers (N13).
func (x *Index) HasNamespace(ns string) bool {
	n, ok := x.spaces.Load(ns)
	return ok && n.(*atomic.Int64).Load() > 0
}

// Serial is the zone's (M4): the low 32 bits of the highest resourceVersion that it was told of, never 0.
func (x *Index) Serial() uint32 {
	return max(uint32(x.serial.Load()), 1)
}

// Set puts a Service in the place of the one with that key, nil for none, and tells whether that altered an answer. version is
// the resourceVersion of the change. It counts for the serial in any case: a process that starts later finds an object of that version and
// cannot know what it changed, and both must have the same serial (decision 0016).
func (x *Index) Set(key string, s *Service, version uint64) bool {
	x.writing.Lock()
	defer x.writing.Unlock()
	altered := x.set(key, s)
	x.serial.Store(max(version, x.serial.Load()))
	return altered
}

// Seen takes note of the resourceVersion of an object that alters no Service (M4).
func (x *Index) Seen(version uint64) {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.serial.Store(max(version, x.serial.Load()))
}

func (x *Index) set(key string, s *Service) bool {
	t := x.table.Load()
	at := t.bucket(key)
	var old *Service
	var next []*Service
	if b := at.Load(); b != nil {
		next = make([]*Service, 0, len(*b)+1)
		for _, o := range *b {
			if o.key == key {
				old = o
			} else {
				next = append(next, o)
			}
		}
	}
	if old.Same(s) {
		return false
	}
	if s != nil {
		next = append(next, s)
		x.count(s, 1)
	}
	at.Store(&next)
	if old != nil {
		x.count(old, -1)
	}
	t.count += count(s) - count(old)
	x.grow(t.count)
	return true
}

func count(s *Service) int {
	if s == nil {
		return 0
	}
	return 1
}

// count keeps the number of a namespace's Services. One that comes is counted before it is seen and one that goes after, so
// that a namespace is never absent while a Service of it answers.
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

// grow makes room for n Services: a new table is filled and takes the old one's place. It never shrinks.
func (x *Index) grow(n int) {
	old := x.table.Load()
	size := len(old.buckets)
	for size*fill < n {
		size *= 2
	}
	if size == len(old.buckets) {
		return
	}
	t := newTable(size)
	t.count = old.count
	for i := range old.buckets {
		if b := old.buckets[i].Load(); b != nil {
			for _, s := range *b {
				t.add(s)
			}
		}
	}
	x.table.Store(t)
}

func (t *table) add(s *Service) {
	at := t.bucket(s.key)
	var next []*Service
	if b := at.Load(); b != nil {
		next = *b
	}
	next = append(next, s)
	at.Store(&next)
}

// Snapshot is the serial and all Services of one moment, in no order: what a transfer gives (L6).
func (x *Index) Snapshot() (serial uint32, all []*Service) {
	x.writing.Lock()
	defer x.writing.Unlock()
	t := x.table.Load()
	all = make([]*Service, 0, t.count)
	for i := range t.buckets {
		if b := t.buckets[i].Load(); b != nil {
			all = append(all, *b...)
		}
	}
	return x.Serial(), all
}
