// Package kube watches ServiceImports and the EndpointSlices of source clusters, strips them to catalogue records as they
// arrive, joins them, and publishes the Service of each change in a catalog.Index. It only reads from the API. It does not know
// what is asked and how it is answered.
package kube

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/go-logr/logr"
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

// Index is where the answers are, the same one for the life of the Watch. Before the first build it is incomplete.
func (w *Watch) Index() *catalog.Index { return w.store.index }

// Synced tells whether the first build, of imports and slices, and namespaces where they select, was complete (L1).
func (w *Watch) Synced() bool { return w.store.synced.Load() }

// Wait is closed at that moment.
func (w *Watch) Wait() <-chan struct{} { return w.store.done }

// Started is when the first one to share it opened it.
func (w *Watch) Started() time.Time { return w.started }

// Refused says what keeps the first build from being complete, if that is a CRD or a permission that is missing (L2).
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
	resources, err := c.resources(w.store)
	if err != nil {
		return nil, err
	}
	w.health = newHealth(len(resources), w.store.synced.Load)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.New(sink{})))
	w.cancel = cancel
	// All feeds exist before one of them can be complete.
	for _, r := range resources {
		w.feeds = append(w.feeds, r.feed())
	}
	for i, r := range resources {
		w.run(ctx, &source{r.resource, client, w.health, w.feeds[i]})
	}
	return w, nil
}

// backoff keeps attempts at most 4 s apart, so that what was missing is found soon. There are two requests per attempt.
var backoff = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.3, Cap: 3 * time.Second, Steps: 1000}

func (w *Watch) run(ctx context.Context, s *source) {
	logger := klog.FromContext(ctx)
	r := cache.NewReflectorWithOptions(s.listerWatcher(), nil, s.feed, cache.ReflectorOptions{
		Logger: &logger, Name: "multicluster", TypeDescription: s.kind, Backoff: &backoff,
	})
	w.done.Go(func() { r.RunWithContext(ctx) })
}

// stop ends the watches and waits until nothing is published any more.
func (w *Watch) stop() {
	w.cancel()
	w.done.Wait()
	for _, f := range w.feeds {
		f.abandon()
	}
	utilnet.CloseIdleConnectionsFor(w.http.Transport)
}

// watched is a resource and what takes it in.
type watched struct {
	resource
	feed func() *feed
}

func (c Config) resources(s *store) ([]watched, error) {
	labels, err := selector(c.Labels)
	if err != nil {
		return nil, err
	}
	chosen, err := selector(c.NamespaceLabels)
	if err != nil {
		return nil, err
	}
	wanted, single := c.wanted()
	all := []watched{{c.imports(s, labels, single, wanted), s.importFeed}}
	if !c.NoEndpoints {
		all = append(all, watched{c.slices(s, single, wanted), s.sliceFeed})
	}
	if chosen != "" {
		all = append(all, watched{c.namespaces(chosen), s.namespaceFeed})
	}
	return all, nil
}

// wanted is which namespaces count, nil for all. A single one is asked for alone, so that namespaced RBAC suffices.
func (c Config) wanted() (wanted func(ns string) bool, single string) {
	switch len(c.Namespaces) {
	case 0:
		return nil, ""
	case 1:
		return nil, c.Namespaces[0]
	}
	return func(ns string) bool { return slices.Contains(c.Namespaces, ns) }, ""
}
