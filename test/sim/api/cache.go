package api

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Change is what a cache tells its handlers: Old is nil for an object that is new to it, New for one that is gone.
type Change struct{ Old, New client.Object }

// Cache is a copy of some kinds of a server that is as old as its holder lets it be.
type Cache struct {
	Shuffle func(n int, swap func(i, j int)) // lists have no order to rely on

	server  *Server
	kinds   []string
	views   map[string]*view
	indexes map[string]map[string]client.IndexerFunc
	lent    []loan
}

// loan is an object that was handed out, and what it was.
type loan struct{ out, original client.Object }

// view is the copy of one kind.
type view struct {
	listed  bool
	broken  bool
	at      int64 // the resourceVersion up to which all has been seen
	objects table
}

// NewCache returns a cache that has listed nothing yet.
func NewCache(s *Server, kinds ...string) *Cache {
	c := &Cache{server: s, views: map[string]*view{}, indexes: map[string]map[string]client.IndexerFunc{}}
	for _, k := range kinds {
		c.views[k] = &view{}
		c.indexes[k] = map[string]client.IndexerFunc{}
	}
	c.kinds = slices.Sorted(slices.Values(kinds))
	return c
}

// Index adds a field for lists to match.
func (c *Cache) Index(o client.Object, field string, values client.IndexerFunc) {
	c.indexes[KindOf(o)][field] = values
}

// Kinds are those that the cache holds, in order.
func (c *Cache) Kinds() []string { return c.kinds }

// Synced tells whether every kind has been listed once.
func (c *Cache) Synced() bool {
	for _, v := range c.views {
		if !v.listed {
			return false
		}
	}
	return true
}

// Behind reports whether there is an event to deliver; Dead, whether the kind must be listed (again) before there can be
// one.
func (c *Cache) Behind(kind string) bool {
	return !c.Dead(kind) && c.next(kind) != nil
}

// Dead is explained at Behind.
func (c *Cache) Dead(kind string) bool {
	v := c.views[kind]
	return !v.listed || v.broken
}

// next is the event that a watch from where the view is would show.
func (c *Cache) next(kind string) *Event {
	feed := c.server.feeds[kind]
	i, _ := slices.BinarySearchFunc(feed, c.views[kind].at, func(e Event, at int64) int {
		if e.Version <= at {
			return -1
		}
		return 1
	})
	if i == len(feed) {
		return nil
	}
	return &feed[i]
}

// Break ends the watch of a kind: what happens until the next Relist is seen only by its outcome.
func (c *Cache) Break(kind string) { c.views[kind].broken = true }

// Deliver takes the next event of a kind.
func (c *Cache) Deliver(kind string) Change {
	v := c.views[kind]
	e := c.next(kind)
	v.at = e.Version
	name := client.ObjectKeyFromObject(e.Object)
	old := v.objects.get(name)
	if e.Deleted {
		v.objects = v.objects.without(name)
		return Change{Old: cmp.Or(old, e.Object)}
	}
	v.objects = v.objects.with(e.Object)
	return Change{Old: old, New: e.Object}
}

// Relist takes the kind as it is now. Everything counts as changed, as in client-go.
func (c *Cache) Relist(kind string) []Change {
	v := c.views[kind]
	was := v.objects
	v.listed, v.broken, v.at = true, false, c.server.version
	v.objects = c.server.objects[kind]
	var out []Change
	for _, o := range v.objects {
		out = append(out, Change{Old: was.get(client.ObjectKeyFromObject(o)), New: o})
	}
	for _, o := range was {
		if v.objects.get(client.ObjectKeyFromObject(o)) == nil {
			out = append(out, Change{Old: o})
		}
	}
	return out
}

// All are the objects of a kind as the cache has them, in the order of their names; not to be changed.
func (c *Cache) All(kind string) []client.Object { return c.views[kind].objects }

// lend notes what was handed out.
func (c *Cache) lend(out, original client.Object) { c.lent = append(c.lent, loan{out, original}) }

// Returned says which of the objects handed out were changed by those who got them.
func (c *Cache) Returned() error {
	for _, l := range c.lent {
		if !reflect.DeepEqual(l.out, l.original) {
			return fmt.Errorf(
				"%s came from a cache and was changed by its reader:\n  was %+v\n  is  %+v",
				KeyOf(l.original),
				l.original,
				l.out,
			)
		}
	}
	return nil
}

// Forget ends the watch over what was handed out: nobody has it any more.
func (c *Cache) Forget() { c.lent = c.lent[:0] }
