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

// Watch keeps an index up to date with the API server and the selection of one Config. Server blocks and reloads of the
// Corefile share it (L4).
type Watch struct {
	key     string
	refs    int // guarded by the registry
	started time.Time
	store   *store
	health  *health
	feeds   []*feed
	http    *http.Client
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// Index returns the index, which is the same one for the life of the Watch. It is empty before the first build.
func (w *Watch) Index() *catalog.Index { return w.store.index }

// Synced reports whether the first build is complete: every resource was listed once (L1).
func (w *Watch) Synced() bool { return w.store.synced.Load() }

// Wait returns a channel that is closed when the first build is complete.
func (w *Watch) Wait() <-chan struct{} { return w.store.done }

// Started returns when the Watch was opened first.
func (w *Watch) Started() time.Time { return w.started }

// Refused returns an error if a missing CRD or a missing permission keeps the first build from being complete (L2).
func (w *Watch) Refused() error {
	if w.Synced() {
		return nil
	}
	return w.health.refused()
}

// start returns a Watch whose Reflectors run.
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
	resources, err := c.resources()
	if err != nil {
		return nil, err
	}
	w.health = newHealth(len(resources), w.store.synced.Load)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), clientLog()))
	w.cancel = cancel
	// All feeds exist before one of them can be complete: the store waits for those that it knows.
	for _, r := range resources {
		w.feeds = append(w.feeds, r.feed(w.store))
	}
	for i, r := range resources {
		r.client, r.health = client, w.health
		w.run(ctx, r, w.feeds[i])
	}
	return w, nil
}

// backoff keeps attempts at most 4 s apart (Cap and Jitter), so that a CRD or a permission that was missing is found
// soon. An attempt makes two requests.
var backoff = wait.Backoff{
	Duration: 250 * time.Millisecond,
	Factor:   2,
	Jitter:   0.3,
	Cap:      3 * time.Second,
	Steps:    1000,
}

func (w *Watch) run(ctx context.Context, r *resource, f *feed) {
	logger := klog.FromContext(ctx)
	reflector := cache.NewReflectorWithOptions(r.listerWatcher(), nil, f, cache.ReflectorOptions{
		Logger: &logger, Name: "multicluster", TypeDescription: r.kind, Backoff: &backoff,
	})
	w.done.Go(func() { reflector.RunWithContext(ctx) })
}

// stop ends the Reflectors and waits for them: nothing is published after it returns.
func (w *Watch) stop() {
	w.cancel()
	w.done.Wait()
	utilnet.CloseIdleConnectionsFor(w.http.Transport)
}

// resources returns the kinds of object to watch.
func (c Config) resources() ([]*resource, error) {
	labels, err := selector(c.Labels)
	if err != nil {
		return nil, err
	}
	namespaceLabels, err := selector(c.NamespaceLabels)
	if err != nil {
		return nil, err
	}
	all := []*resource{c.imports(labels)}
	if !c.NoEndpoints {
		all = append(all, c.slices())
	}
	if namespaceLabels != "" {
		all = append(all, c.namespaces(namespaceLabels))
	}
	return all, nil
}

// wants reports whether objects of a namespace count.
func (c Config) wants(ns string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, ns)
}

// namespace returns the one namespace that requests name, or "" if they are for all. For it a Role is enough.
func (c Config) namespace() string {
	if len(c.Namespaces) == 1 {
		return c.Namespaces[0]
	}
	return ""
}
