package kube

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	clog "github.com/coredns/coredns/plugin/pkg/log"
)

// gate is what the feeds of one Watch share: their lock, and the first build, which waits for all of them (L1).
type gate struct {
	log      clog.P
	opened   time.Time
	synced   atomic.Bool
	done     chan struct{} // closed when synced
	build    func()        // of all Services, under mu
	warnings int           // about objects, logged or not

	mu       sync.Mutex
	unlisted int      // feeds without a complete list
	lists    []string // what the complete ones have
}

func newGate(plugin string) gate {
	return gate{log: clog.NewWithPlugin(plugin), opened: time.Now(), done: make(chan struct{})}
}

// Synced reports whether the first build is complete: every resource was listed once (L1).
func (g *gate) Synced() bool { return g.synced.Load() }

// Wait returns a channel that is closed when the first build is complete.
func (g *gate) Wait() <-chan struct{} { return g.done }

// listed notes that a feed has its first complete list, and does the first build after the last of them.
func (g *gate) listed(objects int, kind string) {
	g.lists = append(g.lists, fmt.Sprintf("%d %s", objects, kind))
	if g.unlisted--; g.unlisted > 0 {
		return
	}
	g.build()
	g.log.Infof("The first lists are complete after %.1f s: %s",
		time.Since(g.opened).Seconds(), strings.Join(g.lists, ", "))
	g.synced.Store(true)
	close(g.done)
}

// maxWarnings bounds the lines about objects.
const maxWarnings = 100

// warnf logs a line about an object. Further ones are only counted in a metric.
func (g *gate) warnf(metric, format string, args ...any) {
	switch g.warnings++; {
	case g.warnings <= maxWarnings:
		g.log.Warningf(format, args...)
	case g.warnings == maxWarnings+1:
		g.log.Warningf("More EndpointSlices have such faults; from here on they are only counted in %s", metric)
	}
}

// joint holds the EndpointSlices of each Service, and updates its answers at each change. It is the only copy of the
// objects.
type joint[T any, S catalog.Answers[S]] struct {
	gate
	index    *catalog.Table[S]
	service  func(T) string               // "<svc>.<ns>" that a slice is part of, "" for none
	answers  func(key string, before S) S // of a Service, from what is there now
	slices   map[string]*stripped[T]      // by stripped.key
	slicesOf map[string][]*stripped[T]    // by "<svc>.<ns>"
	resting  map[string]*pending          // by "<svc>.<ns>"
	rest     func(took time.Duration) time.Duration
}

func newJoint[T any, S catalog.Answers[S]](plugin string) joint[T, S] {
	return joint[T, S]{
		gate:     newGate(plugin),
		index:    new(catalog.Table[S]),
		slices:   make(map[string]*stripped[T]),
		slicesOf: make(map[string][]*stripped[T]),
		resting:  make(map[string]*pending),
		rest:     restAfter,
	}
}

// Index returns the index, which is the same one for the life of the Watch. It is empty before the first build.
func (j *joint[T, S]) Index() *catalog.Table[S] { return j.index }

// move replaces old by o, nil for none, and updates the Services of both. If these differ, o is added to its Service
// before old is removed from the other.
func (j *joint[T, S]) move(old, o *stripped[T], update func(key string, changed *stripped[T])) {
	if o != nil {
		if key := j.service(o.content); key != "" {
			if i := slices.Index(j.slicesOf[key], old); old != nil && i >= 0 {
				j.slicesOf[key][i], old = o, nil // nothing is left to remove
			} else {
				j.slicesOf[key] = append(j.slicesOf[key], o)
			}
			update(key, o)
		}
	}
	if old == nil {
		return
	}
	if key := j.service(old.content); key != "" {
		i := slices.Index(j.slicesOf[key], old)
		if j.slicesOf[key] = slices.Delete(j.slicesOf[key], i, i+1); len(j.slicesOf[key]) == 0 {
			delete(j.slicesOf, key)
		}
		update(key, old)
	}
}

// newest is the highest resourceVersion of a Service's slices.
func (j *joint[T, S]) newest(key string) (version uint64) {
	for _, o := range j.slicesOf[key] {
		version = max(version, o.version)
	}
	return version
}

// first does the first build, of these Services with their versions. The highest of those that answer counts (M4).
func (j *joint[T, S]) first(all iter.Seq2[string, uint64]) {
	var none S
	services, highest := make(map[string]S), uint64(0)
	for key, version := range all {
		if s := j.answers(key, none); s != none {
			services[key], highest = s, max(highest, version)
		}
	}
	j.index.SetAll(services, highest)
}

// update sets the answers of a Service from what is known now, and observes how long ago the change was triggered, if
// that is known. Before the first build it does nothing.
func (j *joint[T, S]) update(key string, version uint64, trigger int64) {
	if !j.Synced() {
		return
	}
	if c := j.resting[key]; c != nil {
		c.version, c.trigger = max(version, 1), cmp.Or(c.trigger, trigger)
		return
	}
	start := time.Now()
	altered := j.index.Set(key, j.answers(key, j.index.Service(key)), version)
	if d := j.rest(time.Since(start)); d > 0 {
		j.sleep(key, d)
	}
	if altered && trigger != 0 {
		programmingDuration.Observe(max(0, time.Since(time.Unix(0, trigger)).Seconds()))
	}
}

// restAfter is how long a Service rests after an update that took that long (L3): whoever changes a large one all the
// time does not keep the lock that all names need.
func restAfter(took time.Duration) time.Duration {
	if took < time.Millisecond {
		return 0
	}
	return min(10*took, 5*time.Second)
}

// pending is what changed while a Service rests.
type pending struct {
	version uint64 // the last; 0: nothing changed
	trigger int64  // the first, 0 if no change had one
}

// sleep lets a Service rest, and updates it then if something changed.
func (j *joint[T, S]) sleep(key string, d time.Duration) {
	c := new(pending)
	j.resting[key] = c
	time.AfterFunc(d, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.resting, key)
		if c.version != 0 {
			j.update(key, c.version, c.trigger)
		}
	})
}
