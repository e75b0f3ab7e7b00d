package sim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterset-dns/clusterset-dns/controllers"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

var (
	localKinds = []string{
		api.Namespace,
		api.Service,
		api.EndpointSlice,
		api.ServiceExport,
		api.ServiceImport,
		api.ServiceExportRecord,
		api.ClusterProperty,
		api.Lease,
	}
	rangeKinds = []string{api.ServiceCIDR, api.IPAddress}
	hubKinds   = []string{api.ClusterSet, api.ServiceExportRecord, api.EndpointPage, api.Lease, api.ClusterProfile}
)

// reserved are the ranges that no peer may claim (S4).
var reserved = []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}

// limits are small, so that exports go into pages and back.
var limits = pages.Limits{Endpoints: 3, Groups: 2}

// version of Kubernetes that every member has.
const version = "v1.36.0"

// agent is one process of clusterset-controller, from its start to its end.
type agent struct {
	*World
	*member
	name     string
	dead     bool
	local    *api.Cache
	hub      *api.Cache  // what Hub shows; nil until it was listed once
	joining  *api.Cache  // is being listed, to become hub
	linked   *api.Client // of hub
	noReads  bool        // of the hub: nothing arrives, and nobody says so
	noWrites bool        // to the hub
	cutOff   time.Time   // from its own API server, since then; zero if it is not
	followed bool        // another replica was elected after it
	env      *kube.Env
	crashIn  int // writes until it dies; -1 for not
	loops    []*loop
	passes   int             // that run now, one within the other
	flow     *flow           // of the pass that runs
	heard    map[string]word // the latest in each record and page
	ctx      context.Context
}

// loop is one of its controllers.
type loop struct {
	kube.Controller
	queue
	started bool
}

// crashed is what a client panics with when its agent dies.
type crashed struct{ *agent }

func (w *World) startAgent(m *member) {
	w.started++
	a := &agent{World: w, member: m, name: fmt.Sprintf("%s/%d", m.id, w.started), crashIn: -1, heard: map[string]word{}}
	w.note("%s starts", a.name)
	for _, former := range m.agents {
		former.followed = true
	}
	a.local = api.NewCache(m.server, localKinds...)
	if w.ranges {
		a.local = api.NewCache(m.server, slices.Concat(localKinds, rangeKinds)...)
	}
	a.prepare(a.local, kube.Local)
	a.join()
	a.ctx = log.IntoContext(context.Background(), a.logger())
	local, past := a.client(m.server, api.Agent, a.local), a.client(w.hub, api.Member+m.id, nil)
	now := func() time.Time { return w.now.Add(m.skew) }
	env := &kube.Env{
		Member: kube.Member{
			Cluster:      m.id,
			HubNamespace: hubNamespace,
			Reserved:     reserved,
			Local:        local,
			LocalNow:     a.client(m.server, api.Agent, nil),
			Hub: func() client.Client {
				if a.linked == nil {
					return nil
				}
				return a.linked
			},
			Families: kube.Families(local, now),
			Now:      now,
			Events:   a,
			Missing: func(client.Object) error {
				if !w.ranges {
					return errors.New("this world has no ranges")
				}
				return nil
			},
		},
		HubNow:    func() client.Reader { return past },
		ListAgain: a.listAgain,
		Restart:   func(why string) { a.fail("%s begins anew, though its membership has not changed: %s", a.name, why) },
		Answered:  func(error) {},
		Version:   func(context.Context) (string, error) { return version, nil },
		Dial:      w.dialFrom(a),
		Pages:     limits,
		Gateways:  func() bool { return m.gateways },
		Home:      home,
		AnswersAt: []string{w.answersAt(m)},
	}
	a.env = env
	if w.BreakAgent != nil {
		w.BreakAgent(env)
	}
	for _, c := range controllers.Agent(env, a.name) {
		a.loops = append(a.loops, &loop{Controller: c, queue: newQueue()})
	}
	m.agents = append(m.agents, a)
}

func (a *agent) client(s *api.Server, user string, cache *api.Cache) *api.Client {
	return &api.Client{
		Server: s, User: user, Cache: cache,
		Before: func(verb string, k api.Key) error { return a.before(s, verb, k) },
		After:  func(verb string, k api.Key) error { return a.after(s, verb, k) },
	}
}

func (a *agent) logger() logr.Logger {
	return funcr.New(func(_, args string) { a.note("%s   says %s", a.name, args) }, funcr.Options{})
}

// Event is kube.Events'.
func (a *agent) Event(about runtime.Object, eventType, reason, message string) {
	if o, ok := about.(client.Object); ok {
		a.note("%s   Event %s %s on %s: %s", a.name, eventType, reason, api.KeyOf(o), message)
	}
	a.history.Events[reason]++
}

// prepare gives a cache of one side what the agent's have.
func (a *agent) prepare(c *api.Cache, side kube.Side) {
	c.Shuffle = a.rng.Shuffle
	for _, x := range kube.Indexes() {
		if x.Side == side {
			c.Index(x.Object, x.Field, x.Values)
		}
	}
}

// join begins to read the hub.
func (a *agent) join() {
	a.joining = api.NewCache(a.World.hub, hubKinds...)
	a.prepare(a.joining, kube.Hub)
}

// listAgain is kube.Env's ListAgain.
func (a *agent) listAgain() {
	a.note("%s   lists the hub again", a.name)
	for _, kind := range hubKinds {
		a.cache(kube.Hub).Break(kind)
	}
}

// advance is called once a kind has been listed: loops start when what they stand on is there (controllers/agent).
func (a *agent) advance() {
	if !a.local.Synced() {
		return
	}
	for _, l := range a.loops {
		if !l.started && !l.NeedsHub {
			a.startLoop(l)
		}
	}
	if a.joining == nil || !a.joining.Synced() || len(a.joining.All(api.ClusterSet)) == 0 {
		return
	}
	a.hub, a.joining = a.joining, nil
	a.linked = a.client(a.World.hub, api.Member+a.id, a.hub)
	a.note("%s sees the hub", a.name)
	for _, l := range a.loops {
		l.started = true
		a.enqueueAll(l, kube.Local)
		a.enqueueAll(l, kube.Hub)
	}
}

func (a *agent) startLoop(l *loop) {
	l.started = true
	a.enqueueAll(l, kube.Local)
}

// enqueueAll asks a loop to look at all that the caches of one side hold.
func (a *agent) enqueueAll(l *loop, side kube.Side) {
	for _, watch := range l.Watches {
		if watch.Side != side || watch.Optional && !a.ranges {
			continue
		}
		for _, o := range a.cache(side).All(api.KindOf(watch.Object)) {
			l.add(watch.Requests(a.ctx, o)...)
		}
	}
}

// cache is the one of a side that takes events.
func (a *agent) cache(side kube.Side) *api.Cache {
	switch {
	case side == kube.Local:
		return a.local
	case a.joining != nil:
		return a.joining
	}
	return a.hub
}

// handle lets the loops know of a change that a cache has seen.
func (a *agent) handle(side kube.Side, kind string, c api.Change) {
	if side == kube.Hub && c.New != nil {
		a.hears(c.New)
	}
	for _, l := range a.loops {
		if !l.started || side == kube.Hub && a.joining != nil {
			continue
		}
		for _, watch := range l.Watches {
			if watch.Side != side || watch.Optional && !a.ranges || api.KindOf(watch.Object) != kind ||
				c.Old != nil && c.New != nil && watch.Alike != nil && watch.Alike(c.Old, c.New) {
				continue
			}
			for _, o := range []client.Object{c.Old, c.New} {
				if o != nil {
					l.add(watch.Requests(a.ctx, o)...)
				}
			}
		}
	}
}

// pass runs Reconcile once.
func (a *agent) pass(l *loop, req reconcile.Request) {
	l.ready = slices.DeleteFunc(l.ready, func(r reconcile.Request) bool { return r == req })
	l.running[req] = true
	a.passes++
	a.note("%s %s %s", a.name, l.Name, req)
	defer func() {
		a.passes--
		r := recover()
		if c, ok := r.(crashed); ok && c.agent == a {
			return
		}
		if r != nil {
			panic(r)
		}
	}()
	defer a.watchTraffic(l, req)()
	res, err := l.Reconciler.Reconcile(log.IntoContext(a.ctx, a.logger()), req)
	if err != nil {
		a.note("%s %s %s: %v", a.name, l.Name, req, err)
	}
	a.mustBeUnchanged()
	l.done(req, res, err, a.now)
}

// mustBeUnchanged: what a cache hands out is read-only. It is looked at now and then, since it takes long.
func (a *agent) mustBeUnchanged() {
	look := a.World.steps%4 == 0
	for _, c := range []*api.Cache{a.local, a.hub} {
		if c == nil {
			continue
		}
		if look {
			if err := c.Returned(); err != nil {
				a.fail("a cached object was changed: %v", err)
			}
		}
		if a.passes == 1 {
			c.Forget()
		}
	}
}

// die ends the agent wherever it is.
func (a *agent) die() {
	a.note("%s DIES", a.name)
	a.dead = true
	a.agents = slices.DeleteFunc(a.agents, func(b *agent) bool { return a == b })
}
