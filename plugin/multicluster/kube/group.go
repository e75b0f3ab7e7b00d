package kube

import (
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// Group keeps an index of the Services that EndpointSlices make by themselves, without another kind of object.
type Group[T any, S catalog.Answers[S]] struct {
	*Reflectors
	joint[T, S]
	feed *feed[T]
	read func(*discoveryv1.EndpointSlice) T
}

// NewGroup makes a Group that logs as a plugin and watches nothing yet. read strips a slice, service returns
// "<svc>.<ns>" that it is part of, "" for none, and build makes the Service of what slices have, by their names. warn
// returns what is wrong with a slice, old nil for a new one; a line says so, or else a metric counts it.
func NewGroup[T any, S catalog.Answers[S]](
	plugin string, read func(*discoveryv1.EndpointSlice) T, service func(T) string,
	build func(key string, of map[string]T) S, warn func(old *T, o T) string, metric string,
) *Group[T, S] {
	g := &Group[T, S]{joint: newJoint[T, S](plugin), read: read}
	g.service = service
	g.answers = func(key string, _ S) S {
		of := make(map[string]T)
		for _, o := range g.slicesOf[key] {
			name, _ := splitKey(o.key)
			of[name] = o.content
		}
		return build(key, of)
	}
	g.build = func() {
		g.first(func(yield func(string, uint64) bool) {
			for key := range g.slicesOf {
				if !yield(key, g.newest(key)) {
					return
				}
			}
		})
	}
	g.feed = newFeed(&g.gate, "EndpointSlices", g.slices,
		func(_, _ *stripped[T]) bool { return false },
		func(old, o *stripped[T], version uint64) {
			if o != nil {
				var before *T
				if old != nil {
					before = &old.content
				}
				if wrong := warn(before, o.content); wrong != "" {
					name, namespace := splitKey(o.key)
					g.warnf(metric, "EndpointSlice %s/%s: %s", namespace, name, wrong)
				}
			}
			g.move(old, o, func(key string, _ *stripped[T]) { g.update(key, version, 0) })
		})
	return g
}

// Feed is the store of a Reflector that lists what Strip returns.
func (g *Group[T, S]) Feed() cache.ReflectorStore { return g.feed }

// Strip returns what the Group holds of a slice, nil if it has no name or no numeric resourceVersion.
func (g *Group[T, S]) Strip(s *discoveryv1.EndpointSlice) any {
	return orNil(newStripped(s.Namespace, s.Name, s.ResourceVersion, g.read(s)))
}

// Follow watches the EndpointSlices of c that a label selector selects.
func (g *Group[T, S]) Follow(c Config, plugin, selector string) (err error) {
	if g.Reflectors, err = newReflectors(c, plugin, 1, g.Synced); err == nil {
		g.run(c.slicesWith(selector, g.Strip), g.feed)
	}
	return err
}

// Each calls f for what the Group holds of each slice.
func (g *Group[T, S]) Each(f func(T)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.slices {
		f(o.content)
	}
}
