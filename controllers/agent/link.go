package agent

import (
	"context"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/membership"
)

// linking is the hub, which comes with its caches synced, or not before it ends.
type linking struct {
	end    context.CancelFunc
	done   chan struct{}
	spare  *atomic.Bool // until it is used: another one works
	linked *linked
	cache  cache.Cache
	err    error
}

// begin links the hub beside what else there is to do; spare tells that there is a link that works.
func (a *Agent) begin(ctx context.Context, spare bool) *linking {
	l := &linking{done: make(chan struct{}), spare: new(atomic.Bool)}
	l.spare.Store(spare)
	ctx, l.end = context.WithCancel(ctx)
	go func() {
		defer close(l.done)
		l.linked, l.cache, l.err = a.link(ctx, l.spare)
	}()
	return l
}

// use has the controllers use a link that has come.
func (a *Agent) use(l *linking) {
	if l.spare.Swap(false) {
		a.dials.Add(1) // of all that it has made so far: the connections are others now
	}
	a.linked.Store(l.linked)
}

// link returns the hub, and its caches, synced; it tries until it succeeds or ctx ends. What a spare one is answered says nothing of the
// membership, and how often it dials nothing of the connections in use.
func (a *Agent) link(ctx context.Context, spare *atomic.Bool) (*linked, cache.Cache, error) {
	answered := func(err error) {
		if !spare.Load() {
			a.env.Answered(err)
		}
	}
	var link cluster.Cluster
	watches := &watches{}
	err := a.await(ctx, "the hub", "check --hub-kubeconfig and --hub-namespace, and kubectl apply -k deploy/hub and deploy/hub/clusterset there", attempt, func(ctx context.Context) error {
		cfg, err := a.hub()
		if err != nil {
			return err
		}
		a.way.Store(wayOf(cfg))
		cfg.Dial = a.dialing(spare)
		link, err = cluster.New(cfg, func(o *cluster.Options) {
			o.Scheme = a.mgr.GetScheme()
			o.Logger = a.log
			o.Cache.DefaultNamespaces = map[string]cache.Config{a.HubNamespace: {}}
			o.Cache.DefaultTransform = cache.TransformStripManagedFields()
			o.Cache.NewInformer = watches.informer
		})
		if err == nil {
			err = served(ctx, link.GetAPIReader(), hubKinds(a.HubNamespace))
		}
		if err != nil {
			answered(err)
			return membership.ExplainRefusal(err)
		}
		uncached, err := client.New(cfg, client.Options{Scheme: link.GetScheme(), HTTPClient: link.GetHTTPClient(), Mapper: link.GetRESTMapper()})
		if err == nil {
			_, err = a.gate.Claim(ctx, uncached)
		}
		answered(err)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err := index(ctx, link.GetFieldIndexer(), kube.Hub); err != nil {
		return nil, nil, err
	}
	go func() {
		if err := link.Start(ctx); err != nil {
			a.log.Error(err, "the hub's caches ended")
		}
	}()
	for _, o := range hubKinds(a.HubNamespace) {
		if _, err := link.GetCache().GetInformer(ctx, o.item, cache.BlockUntilSynced(false)); err != nil { // side by side
			return nil, nil, err
		}
	}
	if !link.GetCache().WaitForCacheSync(ctx) {
		return nil, nil, ctx.Err()
	}
	return &linked{hub: link.GetClient(), past: link.GetAPIReader(), watches: watches}, link.GetCache(), nil
}

// dialing dials, and counts that of a link in use. client-go keeps it by its cache of transports, for good if the transport can be reached from
// here: then a link's client, and its caches, would never be let go.
func (a *Agent) dialing(spare *atomic.Bool) func(context.Context, string, string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if !spare.Load() {
			a.dials.Add(1)
		}
		return dialer.DialContext(ctx, network, address)
	}
}

// linked is what the controllers have of the hub: all of it of the same link, so that how far a watch has come is told of the cache that it fills.
type linked struct {
	hub     client.Client
	past    client.Reader // the hub past the cache
	watches *watches      // nil once they have ended
}

// unlink ends the link. What its caches hold stays; they come no further.
func (a *Agent) unlink(l *linking) {
	l.end()
	ended := *a.linked.Load()
	ended.watches = nil
	a.linked.Store(&ended)
}

// watches are a link's informers by type: controller-runtime does not tell how far one has come.
type watches struct{ sync.Map }

// informer is kube.Informer.
func (w *watches) informer(lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
	i := kube.Informer(lw, of, resync, by)
	w.Store(reflect.TypeOf(of), i)
	return i
}

// position is Env's.
func (a *Agent) position(kind client.Object) string {
	l := a.linked.Load()
	if l == nil || l.watches == nil {
		return ""
	}
	i, ok := l.watches.Load(reflect.TypeOf(kind))
	if !ok {
		return ""
	}
	return i.(toolscache.SharedIndexInformer).LastSyncResourceVersion()
}

// attempt is how long one may take.
const attempt = 10 * time.Second

// await calls try until it succeeds. The log says each new reason once, with what to do.
func (a *Agent) await(ctx context.Context, what, remedy string, limit time.Duration, try func(context.Context) error) error {
	last, pause := "", kube.Pause
	for {
		one, cancel := context.WithTimeout(ctx, limit)
		err := try(one)
		cancel()
		if err == nil {
			return nil
		}
		if err.Error() != last {
			last = err.Error()
			a.log.Info("waiting for "+what, "reason", last, "remedy", remedy)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause.Step()):
		}
	}
}

type kind struct {
	item      client.Object
	list      client.ObjectList
	namespace string // "" for all
}

func localKinds() []kind {
	return []kind{
		{&mcsv1beta1.ServiceExport{}, &mcsv1beta1.ServiceExportList{}, ""},
		{&mcsv1beta1.ServiceImport{}, &mcsv1beta1.ServiceImportList{}, ""},
		{&hubv1alpha1.ServiceExportRecord{}, &hubv1alpha1.ServiceExportRecordList{}, kube.SystemNamespace},
		{&aboutv1beta1.ClusterProperty{}, &aboutv1beta1.ClusterPropertyList{}, ""},
	}
}

func hubKinds(namespace string) []kind {
	return []kind{
		{&hubv1alpha1.ClusterSet{}, &hubv1alpha1.ClusterSetList{}, namespace},
		{&hubv1alpha1.ServiceExportRecord{}, &hubv1alpha1.ServiceExportRecordList{}, namespace},
		{&hubv1alpha1.EndpointRecord{}, &hubv1alpha1.EndpointRecordList{}, namespace},
		{&coordinationv1.Lease{}, &coordinationv1.LeaseList{}, namespace},
		{&inventoryv1alpha1.ClusterProfile{}, &inventoryv1alpha1.ClusterProfileList{}, namespace},
	}
}

// served confirms that kinds can be listed with the rights that the agent has, before any cache is asked: nothing is decided on a kind
// that is not there. An API server that is busy is asked for all of them at once.
func served(ctx context.Context, api client.Reader, kinds []kind) error {
	errs := make([]error, len(kinds))
	var all sync.WaitGroup
	for i, k := range kinds {
		all.Go(func() { errs[i] = api.List(ctx, k.list, client.InNamespace(k.namespace), client.Limit(1)) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func index(ctx context.Context, into client.FieldIndexer, side kube.Side) error {
	for _, x := range kube.Indexes() {
		if x.Side == side {
			if err := into.IndexField(ctx, x.Object, x.Field, x.Values); err != nil {
				return err
			}
		}
	}
	return nil
}
