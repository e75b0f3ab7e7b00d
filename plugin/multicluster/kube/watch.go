// Package kube watches ServiceImports and the EndpointSlices of source clusters. It strips them as they arrive,
// joins them, and publishes the Service of each change in a catalog.Index. It only reads from the API, and knows
// neither questions nor replies.
package kube

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Watch keeps an index up to date with one source. Stanzas and reloads share it (L4).
type Watch struct {
	key     string
	refs    int // the registry's
	started time.Time
	store   *store
	health  *health
	feeds   []*feed
	http    *http.Client
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// Index returns the answers, the same one for the life of the Watch. It is empty before the first build.
func (w *Watch) Index() *catalog.Index { return w.store.index }

// Synced reports whether the first build, of imports and slices, and namespaces where they select, was complete
// (L1).
func (w *Watch) Synced() bool { return w.store.synced.Load() }

// Wait is closed at that moment.
func (w *Watch) Wait() <-chan struct{} { return w.store.done }

// Started is when it was opened first.
func (w *Watch) Started() time.Time { return w.started }

// Refused returns what keeps the first build from being complete, if that is a CRD or a permission that is missing
// (L2).
func (w *Watch) Refused() error {
	if w.Synced() {
		return nil
	}
	return w.health.refused()
}

// start begins to watch.
func start(c Config, key string) (*Watch, error) {
	cfg, err := c.rest()
	if err != nil {
		return nil, err
	}
	client, h, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	w := &Watch{key: key, started: time.Now(), http: h, store: newStore(c.NamespaceLabels != "")}
	w.store.topology = c.Topology
	sources, err := c.sources()
	if err != nil {
		return nil, err
	}
	w.health = newHealth(len(sources), w.store.synced.Load)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), clientLog()))
	w.cancel = cancel
	// All feeds exist before one of them can be complete.
	for _, s := range sources {
		w.feeds = append(w.feeds, s.feed(w.store))
	}
	for i, s := range sources {
		s.client, s.health = client, w.health
		w.run(ctx, s, w.feeds[i])
	}
	return w, nil
}

// backoff keeps attempts at most 4 s apart, so that what was missing is found soon. There are two requests per
// attempt.
var backoff = wait.Backoff{
	Duration: 250 * time.Millisecond,
	Factor:   2,
	Jitter:   0.3,
	Cap:      3 * time.Second,
	Steps:    1000,
}

func (w *Watch) run(ctx context.Context, s *source, f *feed) {
	logger := klog.FromContext(ctx)
	r := cache.NewReflectorWithOptions(s.listerWatcher(), nil, f, cache.ReflectorOptions{
		Logger: &logger, Name: "multicluster", TypeDescription: s.kind, Backoff: &backoff,
	})
	w.done.Go(func() { r.RunWithContext(ctx) })
}

// stop ends the watches and waits until nothing is published any more.
func (w *Watch) stop() {
	w.cancel()
	w.done.Wait()
	utilnet.CloseIdleConnectionsFor(w.http.Transport)
}

// sources are the kinds of object that are watched.
func (c Config) sources() ([]*source, error) {
	labels, err := selector(c.Labels)
	if err != nil {
		return nil, err
	}
	chosen, err := selector(c.NamespaceLabels)
	if err != nil {
		return nil, err
	}
	wanted, single := c.wanted()
	all := []*source{c.imports(labels, single, wanted)}
	if !c.NoEndpoints {
		all = append(all, c.slices(single, wanted))
	}
	if chosen != "" {
		all = append(all, c.namespaces(chosen))
	}
	return all, nil
}

// wanted reports which namespaces count; it is nil for all. A single one is asked for alone, so that namespaced RBAC
// is enough.
func (c Config) wanted() (wanted func(ns string) bool, single string) {
	switch len(c.Namespaces) {
	case 0:
		return nil, ""
	case 1:
		return nil, c.Namespaces[0]
	}
	return func(ns string) bool { return slices.Contains(c.Namespaces, ns) }, ""
}
