// Package observe looks at the endpoints that other members publish, and counts what all live members say of them (SPEC F4; DESIGN §7). Its
// own vote goes out with the renewals of this member's Lease (kube.Env.Votes); what a majority does not reach stands in status.withheld and
// in the condition Reached of the copies of its record, by which serviceimport goes.
//
// It rests where the ClusterSet has no spec.probe. Where the hub is not seen as it is now, where the ClusterSet is gone, or where too few
// vote, nothing changes.
package observe

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The two requests that are not namespace/name of a Service: no Service has an empty namespace.
var (
	count = types.NamespacedName{Name: "count"} // what the members say
	round = types.NamespacedName{Name: "round"} // look at the endpoints that are due
)

// Observer is what this member sees of the endpoints of others.
type Observer struct {
	*kube.Env
	on atomic.Bool // the ClusterSet lets members probe

	judging sync.Mutex // one writer of status.withheld at a time

	mu       sync.Mutex
	known    bool // whether the ClusterSet lets them has been seen
	spec     hubv1alpha1.ProbeSpec
	pace     votes.Pace
	targets  map[types.NamespacedName]map[votes.Endpoint]*target
	looked   map[types.NamespacedName]map[string]bool  // by record that the hub shows endpoints of: whether they are looked at
	beyond   map[types.NamespacedName][]votes.Endpoint // those that others look at, and this member has not the family for
	seed     votes.Vote                                // what this member's last process said last
	ballot   *votes.Ballot
	floor    bool      // keepLast, as of the ballot
	changed  time.Time // when they last changed
	owing    bool      // a Service was not judged by them, since the hub was not seen
	heard    map[string]heard
	seen     time.Time // the hub, when that was last looked at
	rounded  time.Time // when the last round began
	probes   kube.Probes
	tooLarge bool // the last vote was
}

// heard is what a member last said.
type heard struct {
	text    string
	vote    votes.Vote
	renewed liveness.Renewal
	silent  time.Duration // for how long it has not been since, while the hub was seen
}

// New returns an Observer that has seen nothing.
func New(env *kube.Env) *Observer {
	return &Observer{Env: env, targets: map[types.NamespacedName]map[votes.Endpoint]*target{}, looked: map[types.NamespacedName]map[string]bool{},
		beyond: map[types.NamespacedName][]votes.Endpoint{}, heard: map[string]heard{}}
}

// Controller is this room's entry in the list of controllers. Requests are count, round, and namespace/name of a Service.
func (o *Observer) Controller() kube.Controller {
	service := kube.Named(func(record client.Object) (n types.NamespacedName) {
		if o.on.Load() {
			n = kube.Exported(record)
		}
		return n
	})
	return kube.Controller{
		Name:     "observe",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: o.both},
			{Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: o.both},
			{Side: kube.Hub, Object: &hubv1alpha1.EndpointRecord{}, Requests: service},
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: service},
		},
		Reconciler: o,
	}
}

func (o *Observer) both(context.Context, client.Object) []reconcile.Request {
	out := []reconcile.Request{{NamespacedName: count}}
	if o.on.Load() {
		out = append(out, reconcile.Request{NamespacedName: round})
	}
	return out
}

// Reconcile is one pass over what is asked for.
func (o *Observer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	switch req.NamespacedName {
	case count:
		return o.count(ctx)
	case round:
		return o.round(ctx)
	}
	if !o.on.Load() {
		return reconcile.Result{}, nil
	}
	copies, err := o.aim(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !o.Fresh() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.owing = true // the next count makes up for it
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, o.judge(ctx, copies)
}

// Votes is kube.Env's.
func (o *Observer) Votes() (text string, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.known {
		return "", false
	}
	var left int
	text, left = o.vote().Text()
	o.tooLarge = left > 0
	return text, true
}

// vote is this member's. The caller holds mu.
func (o *Observer) vote() votes.Vote {
	down := map[votes.Endpoint]bool{}
	for _, of := range o.targets {
		for e, t := range of {
			down[e] = t.look.Down
		}
	}
	return votes.Of(down, slices.Concat(slices.Collect(maps.Values(o.beyond))...))
}

// Probes is kube.Env's.
func (o *Observer) Probes() kube.Probes {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.probes
	out.TooLarge = o.tooLarge
	out.Sources = map[string]kube.Probed{}
	for _, of := range o.targets {
		withheld := map[string][]string{} // by record
		for e, t := range of {
			p := out.Sources[e.Cluster]
			if _, known := withheld[e.Record]; !known && o.ballot != nil {
				withheld[e.Record], _ = o.ballot.Withheld(e.Cluster, e.Record)
			}
			if t.look.Down {
				p.Unreached++
			} else {
				p.Reached++
			}
			if w := withheld[e.Record]; slices.Contains(w, e.Address) || slices.Contains(w, votes.All) {
				p.Withheld++
			}
			out.Sources[e.Cluster] = p
		}
	}
	return out
}
