package catalog

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
)

// Index finds the Service of a name. Reading takes no lock: a reader loads one pointer to a map that is never
// changed, and sees each Service whole, before a change or after it (L3). Writers take turns, and replace the map of
// one shard.
type Index struct {
	seed    maphash.Seed
	shards  [shards]atomic.Pointer[map[string]*Service]
	serial  atomic.Uint64 // M4, in full
	writing sync.Mutex
	spaces  sync.Map // namespace → *atomic.Int64: Services that answer
}

// shards are so many that a change copies about 50 entries when there are 50,000 Services.
const shards = 1024

// NewIndex makes an empty index.
func NewIndex() *Index {
	x := &Index{seed: maphash.MakeSeed()}
	empty := make(map[string]*Service)
	for i := range x.shards {
		x.shards[i].Store(&empty)
	}
	return x
}

func (x *Index) shard(key string) *atomic.Pointer[map[string]*Service] {
	return &x.shards[maphash.String(x.seed, key)%shards]
}

// Service finds the Service of "<svc>.<ns>", in lower case; nil if that name answers nothing.
func (x *Index) Service(key string) *Service { return (*x.shard(key).Load())[key] }

// HasNamespace reports whether some Service of the namespace answers (N13).
func (x *Index) HasNamespace(ns string) bool {
	n, ok := x.spaces.Load(ns)
	return ok && n.(*atomic.Int64).Load() > 0
}

// Serial is the zone's (M4): the low 32 bits of the highest resourceVersion that altered an answer, never 0.
func (x *Index) Serial() uint32 { return max(uint32(x.serial.Load()), 1) }

// Set replaces the Service of a key, nil for none, and reports whether that altered an answer. version is the
// resourceVersion of the change, and moves the serial if it did (M4).
func (x *Index) Set(key string, s *Service, version uint64) (altered bool) {
	x.writing.Lock()
	defer x.writing.Unlock()
	shard := x.shard(key)
	old := (*shard.Load())[key]
	if old.Same(s) {
		return false
	}
	next := maps.Clone(*shard.Load())
	if s == nil {
		delete(next, key)
	} else {
		next[key] = s
		x.count(s, 1)
	}
	shard.Store(&next)
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
	for i := range x.shards {
		for _, s := range *x.shards[i].Load() {
			all = append(all, s)
		}
	}
	return x.Serial(), all
}
