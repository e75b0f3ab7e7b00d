// Package kube is what every reconciler stands on: the two API servers of an agent, and the description of a controller
// from which the manager (and the simulation in test/sim) starts it. It decides nothing.
package kube

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// SystemNamespace holds what the agent keeps in a member: its copies of the records in effect, and Leases (DESIGN §11).
const SystemNamespace = "clusterset-system"

// Manager is the value of every managed-by label that we set (DESIGN §11).
const Manager = "clusterset-controller.clusterset-dns.io"

// Side names one of the two API servers that an agent talks to.
type Side string

// The member's own API server, and the hub's.
const (
	Local Side = "local"
	Hub   Side = "hub"
)

// Env is what a reconciler may reach. Clients read from caches that may be stale, and hand out objects that must not be
// changed.
type Env struct {
	Cluster      string // this member's cluster id
	HubNamespace string

	Local client.Client
	// LocalNow reads past the cache, for the rare step that a stale view would make harmful.
	LocalNow client.Reader
	// Hub is nil until the hub's caches have synced once; afterwards it stays, and shows the last view while the hub is
	// away.
	Hub func() client.Client
	// HubNow reads the hub past the cache; nil as long as Hub is.
	HubNow func() client.Reader
	// Relist is called if the hub was restored, or takes writes and shows nothing: all of it must be listed again.
	Relist func(reason, message string)
	// Fresh tells whether the hub is seen as it is now. A stale view may be added from, never taken away on.
	Fresh func() bool
	// HubSeen is when the hub last showed an own renewal of this agent, by its clock; zero before the first.
	HubSeen func() time.Time
	// Gone tells whether a record of a member that the hub does not show is gone by its owner's word: the member's live
	// Lease has, since the record was first missed, stated exactly the set that the hub shows, and not suddenly few
	// (DESIGN §2). False while the view is not fresh. Whoever misses a record asks again within a minute. created is
	// when it was, by the hub's clock: what is older than its member's departure is gone with it.
	Gone func(cluster, record string, created time.Time) bool

	// Votes is what this member does not reach of others' endpoints, for its Lease on the hub (F4); known is false as
	// long as that has not been seen, and what the Lease says stays.
	Votes func() (text string, known bool)
	// Probes is the same in numbers.
	Probes func() Probes
	// Held tells that most other members are silent together, and that none of them counts as dead for it.
	Held func() bool
	// Dial opens a connection to an endpoint, for a probe.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Answered is told how the hub answered this member's renewal.
	Answered func(error)
	// Restart has the agent begin anew, by Gate: membership has changed.
	Restart func(why string)
	// Version is this cluster's Kubernetes version.
	Version func(context.Context) (string, error)

	// Cloned returns whether this agent has stopped publishing because another one renews this member's Lease.
	Cloned func() bool
	// Contested returns whether another agent holds this member's Lease.
	Contested func() bool

	// Families are those that this cluster's Services can have.
	Families func(context.Context) ([]corev1.IPFamily, error)

	// Served is nil once objects of an optional kind can be read, else it says why they cannot.
	Served func(client.Object) error

	// Reserved ranges hold no peer's endpoint (S4: --reserved-cidrs).
	Reserved []netip.Prefix

	Now    func() time.Time
	Events Events

	// Together calls do for each number below n, some at a time, and returns when all have.
	Together func(n int, do func(i int))
}

// Probes is what this member has looked at of others' endpoints.
type Probes struct {
	Sources           map[string]Probed // by cluster
	Succeeded, Failed int64             // looks so far
	TooLarge          bool              // not all that is down had room in the vote
}

// Probed is how many endpoints of a cluster are looked at: reached or not by this member; withheld here, by whoever's
// vote.
type Probed struct{ Reached, Unreached, Withheld int }

// Events reports to the user at the object concerned. eventType is Normal or Warning; reason is from the closed list in
// docs.
type Events interface {
	Event(about runtime.Object, eventType, reason, message string)
}

// Warning and Normal are the two types of Events.
const (
	Warning = corev1.EventTypeWarning
	Normal  = corev1.EventTypeNormal
)

// Controller is one loop: when to look (Watches), and what to do then (Reconciler).
type Controller struct {
	Name       string
	NeedsHub   bool // started once the hub's caches have synced; in the others, hub watches are added then
	Watches    []Watch
	Reconciler reconcile.Reconciler
	Metrics    []prometheus.Collector
}

// Watch turns a change of one kind into requests, each the key of one pass. For an update it is asked with the old and
// with the new object, for a deletion with the last one seen.
type Watch struct {
	Side     Side
	Object   client.Object
	Optional bool // this cluster may be without the kind (V7): watched once it is served
	Requests func(context.Context, client.Object) []reconcile.Request
	// Alike tells of an update whether it changes nothing of concern, so that it asks for nothing; nil: never.
	Alike func(was, is client.Object) bool
	// Ahead tells of an object of the first list whether it has changed while nobody looked, so that it goes ahead of
	// the others as a change does; nil: never. It decides on the order alone.
	Ahead func(context.Context, client.Object) bool
}

// Index is a field index that a cache must hold, for client.MatchingFields.
type Index struct {
	Side   Side
	Object client.Object
	Field  string
	Values client.IndexerFunc
}

// System is what Events are about that concern the agent as a whole.
func System() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Namespace",
		Name:       SystemNamespace,
		Namespace:  SystemNamespace,
	}
}
