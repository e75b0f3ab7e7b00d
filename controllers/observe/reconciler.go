// Package observe probes the endpoints that other members publish and counts the votes of all live members (SPEC F4;
// DESIGN §7). This member's vote goes out with the renewals of its Lease (heartbeat). Endpoints that a majority does
// not reach stand in status.withheld and in the condition Reached of the record's copy. serviceimport makes them not
// ready.
//
// It does nothing if the ClusterSet has no spec.probe. Nothing changes while the hub is not seen, the ClusterSet is
// missing, or too few members vote.
package observe

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Requests that are not namespace/name of a Service: no Service has an empty namespace.
var (
	count = types.NamespacedName{Name: "count"} // count the votes
	round = types.NamespacedName{Name: "round"} // probe the endpoints that are due
)

// Config is what an Observer needs.
type Config struct {
	Cluster      string // cluster ID of this member
	HubNamespace string

	Local   client.Client
	Hub     func() client.Client // the hub's caches
	HubSeen func() time.Time     // when the hub last showed a renewal of this member
	Fresh   func() bool          // whether the hub is seen as it is now

	Families func(context.Context) ([]corev1.IPFamily, error) // IP families of this cluster
	Reserved []netip.Prefix                                   // addresses that no other cluster may claim (S4)
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)

	Now    func() time.Time
	Events kube.Events
}

// Observer knows what this member reaches, and what the others say they reach.
type Observer struct {
	Config
	on atomic.Bool // the ClusterSet allows probes

	writing sync.Mutex // one writer of status.withheld at a time

	mu        sync.Mutex
	known     bool // whether the ClusterSet allows probes has been read
	spec      hubv1alpha1.ProbeSpec
	pace      votes.Pace
	targets   map[types.NamespacedName]map[votes.Endpoint]*target
	probed    map[types.NamespacedName]map[string]bool  // by record that has endpoints on the hub
	notProbed map[types.NamespacedName][]votes.Endpoint // endpoints of families that this cluster lacks
	seed      votes.Vote                                // the last vote of this member's previous process
	ballot    *votes.Ballot
	keepLast  bool      // as of the ballot
	changed   time.Time // when ballot or keepLast last changed
	pending   bool      // some Service was not evaluated because the hub was not seen
	votes     map[string]memberVote
	seen      time.Time // HubSeen at the last count
	rounded   time.Time // begin of the last round
	probes    kube.Probes
	tooLarge  bool // the last vote was
}

// memberVote is the last vote of a member.
type memberVote struct {
	text    string
	vote    votes.Vote
	renewed liveness.Renewal
	silent  time.Duration // time without a renewal while the hub was seen
}

// New returns an Observer that has seen nothing.
func New(c Config) *Observer {
	return &Observer{
		Config:    c,
		targets:   map[types.NamespacedName]map[votes.Endpoint]*target{},
		probed:    map[types.NamespacedName]map[string]bool{},
		notProbed: map[types.NamespacedName][]votes.Endpoint{},
		votes:     map[string]memberVote{},
	}
}

// Controller returns the controller that runs o. Its requests are count, round, and namespace/name of a Service.
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
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: o.requests},
			{Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: o.requests},
			{Side: kube.Hub, Object: &hubv1alpha1.EndpointRecord{}, Requests: service},
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: service},
		},
		Reconciler: o,
	}
}

func (o *Observer) requests(context.Context, client.Object) []reconcile.Request {
	out := []reconcile.Request{{NamespacedName: count}}
	if o.on.Load() {
		out = append(out, reconcile.Request{NamespacedName: round})
	}
	return out
}

// Reconcile counts votes, runs a round of probes, or evaluates one Service.
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
	copies, err := o.updateTargets(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !o.Fresh() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.pending = true // the next count evaluates it
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, o.writeStatus(ctx, copies)
}

// Votes returns the text of this member's vote for its Lease; known is false until it is known whether the ClusterSet
// allows probes.
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

// vote returns this member's vote. The caller holds mu.
func (o *Observer) vote() votes.Vote {
	down := map[votes.Endpoint]bool{}
	for _, of := range o.targets {
		for e, t := range of {
			down[e] = t.result.Down
		}
	}
	return votes.Of(down, slices.Concat(slices.Collect(maps.Values(o.notProbed))...))
}

// Probes returns what this member has probed, in numbers.
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
			if t.result.Down {
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
