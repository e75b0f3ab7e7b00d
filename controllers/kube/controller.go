// Package kube holds what all controllers of an agent share: access to the two API servers, field indexes, Events, and
// the description of a controller from which a manager, or test/sim, starts it. It contains no policy.
package kube

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
)

// SystemNamespace is the namespace in a member for the agent's copies of records and its Leases (DESIGN §11).
const SystemNamespace = "clusterset-system"

// Manager is the value of every managed-by label that this project sets (DESIGN §11).
const Manager = "clusterset-controller.clusterset-dns.io"

// Side names one of the two API servers that an agent talks to.
type Side string

const (
	Local Side = "local"
	Hub   Side = "hub"
)

// Member is what controllers of one member share. Clients read from caches that may be stale. The objects that they
// return must not be changed.
type Member struct {
	Cluster      string // this member's cluster ID
	HubNamespace string

	Local    client.Client
	LocalNow client.Reader // past the cache, for what a stale view would decide wrongly
	// Hub returns nil until the hub's caches have synced once. While the hub is unreachable it shows the last view.
	Hub func() client.Client
	// Fresh returns whether the caches show the hub's current state. On a stale view a controller may add, but must
	// not remove.
	Fresh func() bool

	Missing  func(client.Object) error                        // returns why an optional kind cannot be read, or nil
	Families func(context.Context) ([]corev1.IPFamily, error) // returns those that Services of this cluster can have
	Reserved []netip.Prefix                                   // ranges that no endpoint of another member may have (S4)

	Now    func() time.Time
	Events Events
}

// Env is what controllers.Agent constructs the controllers from.
type Env struct {
	Member

	HubNow    func() client.Reader // past the cache; call it only while Hub does not return nil
	Held      func() bool          // whether most other members stopped renewing together, so that none expires
	Home      string               // address of this cluster's API server, dialed to test this agent's own network
	AnswersAt []string             // addresses at which this agent answers other members
	Answered  func(error)          // called with the hub's answer to each renewal of this member's Lease
	ListAgain func()               // ends the hub's watches, and lists follow
	Restart   func(why string)     // ends the agent, because what it read at its start has changed
	Contested func() bool          // whether another process holds this member's Lease: this one publishes nothing
	Cloned    func() bool          // whether that process has renewed it since, so that it still runs
	Pages     pages.Limits         // limits of EndpointPages; zero means pages.OfHub
	Gateways  func() bool          // whether Envoy Gateway is in this cluster

	DNSEndpointZone string // of the DNSEndpoints to write (F6: --dnsendpoint-zone); "" for none

	// Dial opens a connection to an agent or an endpoint of another member.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Version returns this cluster's Kubernetes version.
	Version func(context.Context) (string, error)
}

// HubEnv is what a controller of a clusterset on its hub is constructed from.
type HubEnv struct {
	Namespace string        // of the clusterset
	Hub       client.Client // reads from a cache
	Live      client.Reader // reads from the API server
	Events    Events
	Now       func() time.Time
}

type Controller struct {
	Name       string
	NeedsHub   bool // it starts once the hub's caches have synced; others start at once, and get their hub watches then
	Watches    []Watch
	Reconciler reconcile.Reconciler
	Metrics    []prometheus.Collector
}

// Watch maps a change of an object to requests. Requests is called with the old and the new object of an update, and
// with the last known state of a deleted object.
type Watch struct {
	Side     Side
	Object   client.Object
	Optional bool // the cluster may not serve the kind (V7); there is no watch then
	Requests func(context.Context, client.Object) []reconcile.Request
	// Alike returns whether an update changes nothing that the controller reads. Such an update causes no request. With
	// nil, each update causes one.
	Alike func(was, is client.Object) bool
	// Ahead returns whether an object of the initial list has changed since the controller last acted on it. Its
	// requests then go before those of the rest of the list. With nil, all wait in order.
	Ahead func(context.Context, client.Object) bool
}

// Index is a field index that a cache must have, for client.MatchingFields.
type Index struct {
	Side   Side
	Object client.Object
	Field  string
	Values client.IndexerFunc
}
