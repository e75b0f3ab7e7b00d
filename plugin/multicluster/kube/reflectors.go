package kube

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/relist"
	"github.com/go-logr/logr/funcr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const pluginName = "multicluster"

// Reflectors list and watch kinds of object over one client.
type Reflectors struct {
	plugin  string
	started time.Time
	client  *rest.RESTClient
	http    *http.Client
	health  *health
	intakes []*intake
	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// newReflectors returns Reflectors of some resources. synced reports whether their first lists are complete.
func newReflectors(c Config, plugin string, resources int, synced func() bool) (*Reflectors, error) {
	cfg, err := c.rest()
	if err != nil {
		return nil, err
	}
	r := &Reflectors{plugin: plugin, started: time.Now(), health: newHealth(plugin, resources, synced)}
	rest.AddUserAgent(cfg, plugin)
	if r.http, err = rest.HTTPClientFor(cfg); err == nil {
		r.client, err = rest.UnversionedRESTClientForConfigAndClient(cfg, r.http)
	}
	if err != nil {
		return nil, fmt.Errorf("client for API server %s: %w", cfg.Host, err)
	}
	// What client-go logs is for debugging: health logs, once, what matters of it.
	logger := funcr.New(func(_, args string) { r.health.log.Debug(args) }, funcr.Options{})
	r.ctx, r.cancel = context.WithCancel(klog.NewContext(context.Background(), logger))
	return r, nil
}

// Started returns when the Reflectors were started.
func (r *Reflectors) Started() time.Time { return r.started }

// Up reports whether the API server answered the last request for every kind.
func (r *Reflectors) Up() bool { return r.health.up() }

// Heard returns the oldest of the times at which each watch last received something, in Unix nanoseconds.
func (r *Reflectors) Heard() int64 {
	at := int64(math.MaxInt64)
	for _, i := range r.intakes {
		at = min(at, i.heard.Load())
	}
	return at
}

// Refused returns an error if a missing CRD or permission, or refused credentials, keep the first lists from being
// complete (L2); nil once they are.
func (r *Reflectors) Refused() error {
	if r.health.synced() {
		return nil
	}
	return r.health.refused()
}

// Unready returns why the first lists are not complete, for clients. Call it only while they are not.
func (r *Reflectors) Unready() string {
	if err := r.health.refused(); err != nil {
		return err.Error()
	}
	return "the API server has not sent the whole first lists"
}

// backoff keeps attempts that the API server refuses at most 4 s apart (Cap and Jitter), so that a CRD or a permission
// that was missing is found soon. An attempt is a streamed and a plain list. Package relist waits longer for a server
// that does not answer.
var backoff = wait.Backoff{
	Duration: 250 * time.Millisecond,
	Factor:   2,
	Jitter:   0.3,
	Cap:      3 * time.Second,
	Steps:    1000,
}

func (r *Reflectors) run(of *resource, into cache.ReflectorStore) {
	of.client, of.health = r.client, r.health
	i := &intake{resource: of, into: into}
	r.intakes = append(r.intakes, i)
	logger := klog.FromContext(r.ctx)
	lists := relist.New(of) // notices an API server that was restored from a backup
	reflector := cache.NewReflectorWithOptions(lists, nil, i, cache.ReflectorOptions{
		Logger: &logger, Name: r.plugin, TypeDescription: of.kind, Backoff: &backoff,
	})
	r.done.Go(func() { reflector.RunWithContext(r.ctx) })
}

// Stop ends the Reflectors and waits for them: nothing is given to a store after it returns.
func (r *Reflectors) Stop() {
	r.cancel()
	r.done.Wait()
	utilnet.CloseIdleConnectionsFor(r.http.Transport)
}
