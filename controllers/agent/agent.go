// Package agent runs the controllers of one member. Those that need only the member's API server
// start at once; the others start when the hub can be reached. It contains no policy.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/membership"
	"github.com/clusterset-dns/clusterset-dns/controllers/relist"
)

// Scheme returns a scheme with every kind that an agent reads or writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, coordinationv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, mcsv1beta1.Install, hubv1alpha1.AddToScheme,
		aboutv1beta1.AddToScheme, inventoryv1alpha1.AddToScheme, externaldnsv1alpha1.AddToScheme)
	utilruntime.Must(kinds.AddToScheme(s))
	return s
}

type Options struct {
	Cluster      string // this member's cluster ID
	Given        bool   // the user has set Cluster; it was not read from the cluster
	HubNamespace string
	Holder       string // names this instance of the agent
	AnswerOn     string // host:port at which other members ask whether this agent is alive; empty: none
	PodIPs       []string
	Reserved     []netip.Prefix
	// DNSEndpointZone is the zone of the DNSEndpoints to write; empty: none.
	DNSEndpointZone string
	// DNS asks this cluster's DNS whether it serves clusterset.local; nil: the agent runs outside of the cluster.
	DNS func(context.Context) error
	Now func() time.Time // this cluster's clock; nil: time.Now
}

// Agent is started by a manager, once it leads.
type Agent struct {
	Options
	mgr      manager.Manager
	hub      func() (*rest.Config, error)
	log      logr.Logger
	env      *kube.Env
	list     []kube.Controller
	started  map[string]controller.Controller
	linked   atomic.Pointer[link]   // to the hub; nil until its caches have synced
	relist   relist.Lists           // of the hub
	access   atomic.Pointer[access] // of the link, or of the last attempt at it
	ready    atomic.Bool
	optional []optional
	absent   map[string]error // why optional APIs are not used, by name; written before the controllers start
	gate     *membership.Gate
	seen     seen // for the Membership
	health   *health.Reporter
}

// New adds an agent to a manager of its own cluster. hub returns the hub's address and
// credentials. It is called at each attempt to connect, so the kubeconfig may be created later.
func New(mgr manager.Manager, hub func() (*rest.Config, error), o Options) (*Agent, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Agent{
		Options: o,
		mgr:     mgr,
		hub:     hub,
		log:     mgr.GetLogger().WithName("agent"),
		started: map[string]controller.Controller{},
		absent:  map[string]error{},
	}
	events, err := kube.NewEvents(mgr.GetConfig(), mgr.GetScheme(), o.HubNamespace+"/"+o.Cluster)
	if err != nil {
		return nil, err
	}
	a.env = &kube.Env{
		Member: kube.Member{
			Cluster: o.Cluster, HubNamespace: o.HubNamespace, Reserved: o.Reserved,
			Local: mgr.GetClient(), LocalNow: mgr.GetAPIReader(),
			Hub: func() client.Client {
				if l := a.linked.Load(); l != nil {
					return l.client
				}
				return nil
			},
			Families: kube.Families(mgr.GetClient(), o.Now), Now: o.Now, Events: events,
		},
		HubNow:          func() client.Reader { return a.linked.Load().reader },
		ListAgain:       a.relist.Again,
		DNSEndpointZone: o.DNSEndpointZone,
		Dial:            (&net.Dialer{KeepAlive: -1}).DialContext,
		Home:            hostPort(mgr.GetConfig().Host), AnswersAt: o.answersAt(),
	}
	if err := a.newGate(); err != nil {
		return nil, err
	}
	if a.env.Version, err = versionReader(mgr.GetConfig()); err != nil {
		return nil, err
	}
	if a.optional, err = optionals(mgr.GetAPIReader(), mgr.GetConfig(), o.DNSEndpointZone != ""); err != nil {
		return nil, err
	}
	a.env.Missing = a.missing
	a.env.Gateways = func() bool { return a.absent[gatewayGroup] == nil }
	refusals := &membership.RefusalReporter{Local: a.gate.Local, Now: o.Now, Events: a.env.Events}
	a.env.Answered = func(answer error) {
		a.seen.do(func(s *seen) { s.answer, s.accepted = answer, answer == nil })
		ctx, cancel := context.WithTimeout(logr.NewContext(context.Background(), a.log), attemptTimeout)
		defer cancel()
		refusals.Answered(ctx, answer)
	}
	a.list = controllers.Agent(a.env, o.Holder)
	if a.health, err = newHealth(a); err != nil {
		return nil, err
	}
	errs := []error{metrics.Registry.Register(&collector{a}), mgr.Add(a)}
	for _, c := range a.list {
		for _, m := range c.Metrics {
			errs = append(errs, metrics.Registry.Register(m))
		}
	}
	return a, errors.Join(errs...)
}

// Ready is the readiness check: this cluster is a member and its controllers run, or this replica does not lead.
// Whether the hub can be reached is a condition and a metric.
func (a *Agent) Ready() error {
	select {
	case <-a.mgr.Elected():
	default:
		return nil
	}
	var why error
	if a.seen.do(func(s *seen) { why = s.notMember }); why != nil {
		return fmt.Errorf("not a member: %w", why)
	}
	if !a.ready.Load() {
		return errors.New("the controllers do not run yet: waiting for the kinds that deploy/member brings")
	}
	return a.unsynced()
}

// unsynced returns which informer of this cluster has not synced, nil if all have. Until then, controller-runtime
// starts no controller that watches this cluster.
func (a *Agent) unsynced() error {
	for _, c := range a.list {
		for _, w := range c.Watches {
			if w.Side != kube.Local || w.Optional {
				continue
			}
			ctx := context.Background() // warm has made the informer: nothing waits
			informer, err := a.mgr.GetCache().GetInformer(ctx, w.Object, cache.BlockUntilSynced(false))
			if err != nil {
				return err
			}
			if !informer.HasSynced() {
				return fmt.Errorf("the API server has not listed all objects of %T", w.Object)
			}
		}
	}
	return nil
}

// Contested returns whether another agent holds this member's Lease.
func (a *Agent) Contested() bool { return a.env.Contested() }

// Start runs until ctx ends, or until membership changes, which is an error (manager.Runnable).
func (a *Agent) Start(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if err := greet(ctx, &a.Options, a.log); err != nil {
		return err
	}
	a.env.Restart = func(why string) { end(fmt.Errorf("%w: %s", errRestart, why)) }
	if err := a.run(ctx); err != nil {
		return err
	}
	if why := context.Cause(ctx); errors.Is(why, errRestart) {
		return why
	}
	return nil
}

func (a *Agent) run(ctx context.Context) error {
	go a.health.Run(logr.NewContext(ctx, a.log))
	logger := a.log.WithValues("remedy", "kubectl apply -k deploy/member")
	err := kube.Await(ctx, logger, "this cluster", attemptTimeout, func(attempt context.Context) error {
		err := checkKinds(attempt, a.mgr.GetAPIReader(), localKinds())
		if err != nil {
			a.health.Kick()
		}
		return err
	})
	if err != nil {
		return nil // Await fails only once ctx has ended, also below
	}
	if err := a.enter(ctx); err != nil {
		return nil
	}
	opened := make(chan *link, 1)
	go func() {
		l, err := a.openLink(ctx)
		if err == nil {
			opened <- l
		} else if ctx.Err() == nil {
			a.env.Restart("the hub: " + err.Error())
		}
	}()
	if err := index(ctx, a.mgr.GetFieldIndexer(), kube.Local); err != nil {
		return err
	}
	logger = a.log.WithValues("remedy", "it must answer")
	if err := kube.Await(ctx, logger, "this cluster", attemptTimeout, a.warm); err != nil {
		return nil
	}
	if err := a.checkOptional(ctx); err != nil {
		return nil
	}
	for _, c := range a.list {
		if !c.NeedsHub {
			if err := a.start(c, nil); err != nil {
				return err
			}
		}
	}
	go a.watchOptional(ctx)
	a.ready.Store(true)
	a.log.Info("this cluster's side runs")
	a.health.Kick()
	go a.renew(ctx)

	return a.followHub(ctx, opened)
}

// warm starts the informers of this cluster in parallel. It does not wait until they have synced.
func (a *Agent) warm(ctx context.Context) error {
	for _, c := range a.list {
		for _, w := range c.Watches {
			if w.Side == kube.Local && !w.Optional {
				if _, err := a.mgr.GetCache().GetInformer(ctx, w.Object, cache.BlockUntilSynced(false)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// attach adds the hub watches of all controllers. It first starts those that need the hub: a
// running controller accepts no further watch until this cluster's caches have synced.
func (a *Agent) attach(hub cache.Cache) error {
	for _, c := range a.list {
		if c.NeedsHub {
			if err := a.start(c, hub); err != nil {
				return err
			}
		}
	}
	for _, c := range a.list {
		if !c.NeedsHub {
			if err := a.watch(a.started[c.Name], c, kube.Hub, hub); err != nil {
				return err
			}
		}
	}
	return nil
}

// start runs a controller with its watches of this cluster, and of the hub unless hub is nil.
func (a *Agent) start(c kube.Controller, hub cache.Cache) error {
	ctl, err := c.New(a.mgr, concurrency(c.Name))
	if err != nil {
		return err
	}
	a.started[c.Name] = ctl
	if err := a.watch(ctl, c, kube.Local, a.mgr.GetCache()); err != nil {
		return err
	}
	if hub != nil {
		if err := a.watch(ctl, c, kube.Hub, hub); err != nil {
			return err
		}
	}
	return a.mgr.Add(ctl)
}

// concurrency returns the number of workers. They are many because passes mostly wait for an API server, and because
// live changes, which go first, must leave some to the first list. The heartbeat is one loop.
func concurrency(name string) int {
	if name == "heartbeat" {
		return 1
	}
	return 16
}

// watch adds the watches of one side to a controller, but not those of kinds that this cluster does not serve.
func (a *Agent) watch(ctl controller.Controller, c kube.Controller, side kube.Side, from cache.Cache) error {
	for _, w := range c.Watches {
		if w.Side != side || w.Optional && a.missing(w.Object) != nil {
			continue
		}
		concerns := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return w.Alike == nil || !w.Alike(e.ObjectOld, e.ObjectNew)
		}}
		if err := ctl.Watch(source.Kind(from, w.Object, eventHandler(w), concerns)); err != nil {
			return fmt.Errorf("%s: watch of %T: %w", c.Name, w.Object, err)
		}
	}
	return nil
}

func eventHandler(w kube.Watch) handler.EventHandler {
	h := handler.EnqueueRequestsFromMapFunc(w.Requests)
	if w.Ahead != nil {
		return ahead{h, w.Ahead}
	}
	return h
}

// ahead gives changed objects of the initial list the priority of a live change.
type ahead struct {
	handler.EventHandler
	changed func(context.Context, client.Object) bool
}

func (a ahead) Create(ctx context.Context, e event.CreateEvent, queue requestQueue) {
	e.IsInInitialList = e.IsInInitialList && !a.changed(ctx, e.Object)
	a.EventHandler.Create(ctx, e, queue)
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// hostPort returns the host and port of an API server's address, "" if it has none.
func hostPort(address string) string {
	u, _, err := rest.DefaultServerUrlFor(
		&rest.Config{Host: address, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, // https if no scheme
	)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
