// Package kube watches ServiceImports and the EndpointSlices of source clusters. It keeps only the fields
// that answers need, joins imports with their slices, and publishes each Service that changes in a catalog.Table. It
// only reads from the API, and knows neither questions nor replies.
package kube

import (
	"slices"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reload"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Watch keeps an index up to date with the API server and the selection of one Config. Server blocks and reloads of the
// Corefile share it (L4).
type Watch struct {
	*Reflectors
	*store
	selection string // hash of Config.selection: for metrics, two Watches with the same one are one
}

var watches reload.Shared[*Watch]

// Open returns the Watch of c, which it starts if none is open, and counts a reference. It makes no request itself, so
// it does not fail or wait while the API server is down. It fails if c, or a file that c names, is invalid.
func Open(c Config) (*Watch, error) {
	key, err := c.Fingerprint()
	if err != nil {
		return nil, err
	}
	selection, err := c.selection().Fingerprint()
	if err != nil {
		return nil, err
	}
	return watches.Open(key, func() (*Watch, error) { return start(c, selection) })
}

// Close releases a reference. The last one stops the Watch and waits until it has stopped.
func (w *Watch) Close() { watches.Close(w) }

// start returns a Watch whose Reflectors run.
func start(c Config, selection string) (*Watch, error) {
	resources := c.resources()
	w := &Watch{store: newStore(c.NamespaceLabels != ""), selection: selection}
	w.store.topology, w.store.noEndpoints = c.Topology, c.NoEndpoints
	var err error
	if w.Reflectors, err = newReflectors(c, pluginName, len(resources), w.Synced); err != nil {
		return nil, err
	}
	// Each feed adds itself to those that Synced waits for, so all must exist before a Reflector runs.
	var feeds []cache.ReflectorStore
	for _, r := range resources {
		feeds = append(feeds, r.feed(w.store))
	}
	for i, r := range resources {
		w.run(r, feeds[i])
	}
	return w, nil
}

// resources returns the kinds of object to watch.
func (c Config) resources() []*resource {
	all := []*resource{c.imports()}
	if !c.NoEndpoints {
		all = append(all, c.slices())
	}
	if c.NamespaceLabels != "" {
		all = append(all, c.namespaces())
	}
	return all
}

// namespaces returns the resource of the Namespaces that NamespaceLabels matches.
func (c Config) namespaces() *resource {
	r := &resource{
		kind:     "Namespaces",
		paths:    []string{"/api/v1"},
		plural:   "namespaces",
		selector: c.NamespaceLabels,
		feed:     func(s *store) cache.ReflectorStore { return s.namespaceFeed() },
	}
	r.typed(new(corev1.NamespaceList))
	r.strip = func(object any) any {
		if ns, ok := object.(*corev1.Namespace); ok {
			return orNil(newStripped("", ns.Name, ns.ResourceVersion, struct{}{}))
		}
		return object // already stripped
	}
	return r
}

// wants reports whether objects of a namespace count.
func (c Config) wants(ns string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, ns)
}

// namespace returns the namespace to list and watch, "" for all. For one, a Role is enough.
func (c Config) namespace() string {
	if len(c.Namespaces) == 1 {
		return c.Namespaces[0]
	}
	return ""
}
