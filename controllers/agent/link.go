package agent

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
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

// link is the connection to the hub, with caches.
type link struct {
	client client.Client
	reader client.Reader // past the caches
	cache  cache.Cache
	config *rest.Config
}

// openLink connects to the hub, and waits until the caches have synced. It tries until it succeeds or ctx ends.
func (a *Agent) openLink(ctx context.Context) (*link, error) {
	var hub cluster.Cluster
	const remedy = "check --hub-kubeconfig and --hub-namespace; on the hub: kubectl apply -k deploy/hub"
	logger := a.log.WithValues("remedy", remedy)
	err := kube.Await(ctx, logger, "the hub", attemptTimeout, func(ctx context.Context) error {
		cfg, err := a.hub()
		if err == nil {
			a.access.Store(accessOf(cfg))
			hub, err = a.connect(ctx, cfg)
		}
		a.env.Answered(err)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := index(ctx, hub.GetFieldIndexer(), kube.Hub); err != nil {
		return nil, err
	}
	go func() {
		if err := hub.Start(ctx); err != nil {
			a.log.Error(err, "the hub's caches ended")
		}
	}()
	for _, o := range hubKinds(a.HubNamespace) { // in parallel
		if _, err := hub.GetCache().GetInformer(ctx, o.item, cache.BlockUntilSynced(false)); err != nil {
			return nil, err
		}
	}
	if err := a.awaitSync(ctx, hub); err != nil {
		return nil, err
	}
	return &link{hub.GetClient(), hub.GetAPIReader(), hub.GetCache(), hub.GetConfig()}, nil
}

// awaitSync waits until the hub's caches have synced, or ctx ends. Meanwhile it asks the hub every attemptTimeout and
// reports the answer, because the heartbeat does not run yet.
func (a *Agent) awaitSync(ctx context.Context, hub cluster.Cluster) error {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_ = wait.PollUntilContextCancel(asking, attemptTimeout, false, func(context.Context) (bool, error) {
			attempt, cancel := context.WithTimeout(asking, attemptTimeout)
			defer cancel()
			if err := checkHubKinds(attempt, hub.GetAPIReader(), a.HubNamespace); asking.Err() == nil {
				a.env.Answered(err)
			}
			return false, nil
		})
	}()
	if !hub.GetCache().WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	return nil
}

// connect returns the hub once it serves the kinds and this cluster holds its claim there.
func (a *Agent) connect(ctx context.Context, cfg *rest.Config) (cluster.Cluster, error) {
	// With a Dial function, client-go gives each client connections of its own.
	cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	dialed, err := a.dialAt(ctx, cfg)
	if err == nil {
		err = checkHubKinds(ctx, dialed, a.HubNamespace)
	}
	if err != nil {
		return nil, membership.ExplainRefusal(err)
	}
	if _, err := a.gate.Claim(ctx, dialed); err != nil {
		return nil, err
	}
	// Unlike dialed, this has no timeout, which would end its watches.
	return cluster.New(cfg, func(o *cluster.Options) {
		o.Scheme = a.mgr.GetScheme()
		o.Logger = a.log
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return dialed.RESTMapper(), nil }
		o.Cache.DefaultNamespaces = map[string]cache.Config{a.HubNamespace: {}}
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
		o.Cache.NewInformer = a.relist.NewInformer
	})
}

// attemptTimeout is how long one attempt of what the agent waits for may take.
const attemptTimeout = 10 * time.Second

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
		{&hubv1alpha1.EndpointPage{}, &hubv1alpha1.EndpointPageList{}, namespace},
		{&coordinationv1.Lease{}, &coordinationv1.LeaseList{}, namespace},
		{&inventoryv1alpha1.ClusterProfile{}, &inventoryv1alpha1.ClusterProfileList{}, namespace},
	}
}

// checkKinds returns an error unless the agent can list every kind, so that no cache is asked for one that is missing
// or forbidden. The first list goes alone: if the API server is silent, lists in parallel would wait for discovery one
// after another. The others go in parallel, which saves time at a busy server.
func checkKinds(ctx context.Context, api client.Reader, kinds []kind) error {
	list := func(k kind) error {
		return api.List(ctx, k.list, client.InNamespace(k.namespace), client.Limit(1))
	}
	if err := list(kinds[0]); err != nil {
		return err
	}
	errs := make([]error, len(kinds))
	var all sync.WaitGroup
	for i, k := range kinds[1:] {
		all.Go(func() { errs[i] = list(k) })
	}
	all.Wait()
	return cmp.Or(errs...)
}

// checkHubKinds is checkKinds for the hub. Its error says what to do if the hub is of another version.
func checkHubKinds(ctx context.Context, api client.Reader, namespace string) error {
	err := checkKinds(ctx, api, hubKinds(namespace))
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the hub does not serve all kinds that this version needs: upgrade the hub first, then its "+
			"members (docs/operate.md#upgrading): %w", err)
	}
	return err
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

// followHub has the controllers use the link once it is open, and looks whether the hub's kubeconfig changes.
func (a *Agent) followHub(ctx context.Context, opened <-chan *link) error {
	look := time.NewTicker(kubeconfigInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-opened:
			a.linked.Store(l)
			if err := a.attach(l.cache); err != nil {
				return err
			}
			a.log.Info("the controllers follow the hub")
			a.health.Kick()
		case <-look.C:
			if cfg := a.newAccess(); cfg != nil {
				a.tryAccess(ctx, cfg)
			}
		}
	}
}

// kubeconfigInterval is how often the hub's kubeconfig is read. A kubelet takes a minute to bring a Secret.
const kubeconfigInterval = 10 * time.Second

// access is how the hub is reached, and as whom, without functions, which cannot be compared.
type access struct {
	config *rest.Config
	proxy  string
}

// accessOf returns the access of cfg. A token from a file is left out: client-go itself reads the file again.
func accessOf(cfg *rest.Config) *access {
	config := rest.CopyConfig(cfg)
	config.Dial, config.Proxy, config.WrapTransport = nil, nil, nil
	if config.BearerTokenFile != "" {
		config.BearerToken = ""
	}
	return &access{config, kube.ProxyURL(cfg)}
}

// newAccess returns the hub's kubeconfig if it can be read and differs from that of the link, else nil.
func (a *Agent) newAccess() *rest.Config {
	used := a.access.Load()
	if used == nil {
		return nil
	}
	cfg, err := a.hub()
	if err != nil || reflect.DeepEqual(accessOf(cfg), used) {
		return nil
	}
	return cfg
}

// tryAccess ends the agent if the hub can be reached with another kubeconfig: the next process uses that. If it cannot,
// the link stays.
func (a *Agent) tryAccess(ctx context.Context, cfg *rest.Config) {
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	answered := make(chan error, 1)
	go func() { // discovery takes no context: do not wait for it once the agent ends
		_, err := a.connect(attempt, cfg)
		answered <- err
	}()
	var err error
	select {
	case <-ctx.Done():
		return
	case err = <-answered:
	}
	if err == nil {
		a.env.Restart("the hub's kubeconfig has another address, authority or credential")
		return
	}
	a.seen.do(func(s *seen) {
		if s.unused == nil || s.unused.Error() != err.Error() {
			a.log.Info("the hub cannot be reached with its latest kubeconfig, and the earlier one stays in use",
				"reason", err.Error())
		}
		s.unused = err
	})
}
