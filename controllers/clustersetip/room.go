// Package clustersetip gives VIPs their addresses and ranges (DESIGN §5, SPEC V): it keeps this member's ServiceCIDRs and their fences as
// decide/ipam lays them out, says which address a derived Service is to ask for, mends what is broken (V4), and tells the hub what this
// member needs. The lock on an address is the API server's IPAddress object; what is remembered here only saves asking in vain.
package clustersetip

import (
	"context"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The requests: the ranges as a whole, and one address.
var ranges = types.NamespacedName{Name: "ranges"}

const ofAddress = "address" // the namespace of requests whose name is an address

// Room is the controller, and the VIPs of kube.Env.
type Room struct {
	*kube.Env

	mu sync.Mutex // of all below
	// view is nil until the caches have been read once.
	view *view
	// gifts are addresses that were given out, and that no cache shows in use yet.
	gifts map[netip.Addr]gift
	// rests are addresses that nobody else gets, though no IPAddress says whose they are: VIPs that lost theirs (keep), and those whose Service
	// is gone, for a while, since answers with them may still live in caches. The quarantine of an import that is gone is its Service's
	// (decide/derived); this one is for Services that went without it.
	rests map[netip.Addr]rest
	// over are those whose quarantine is over, and when that was told: what they leave does not rest.
	over map[types.NamespacedName]time.Time
	// waits are requests that got no answer that will do yet, by derived Service.
	waits map[types.NamespacedName]*wait
	// barred are derived Services that the API server refused whatever their addresses, as by a quota, and when.
	barred map[types.NamespacedName]time.Time
	// full are the families that the API server had no address of when it was asked for one of them alone, and when that was.
	full map[corev1.IPFamily]time.Time
	// last is what the hub said last.
	last hubView
	// refused is why this cluster takes no range of ours of a family; nothing if it does.
	refused map[corev1.IPFamily]error
	growing map[corev1.IPFamily]bool // a range is being made
	// emptying are the ranges that are looked at for their end, and attention is how soon they were to be looked at again last.
	emptying  []netip.Prefix
	attention time.Duration
	// repairAt is when everything is compared next; missing is what was missing the last time.
	repairAt time.Time
	missing  map[ipam.Owner]bool
	// laid and repaired are what was told of the ranges and of what is broken.
	laid, repaired *faults
	// overflowing are the families whose VIPs come from the cluster's own ranges, and whose users were told.
	overflowing map[corev1.IPFamily]bool
	count       *counters
}

type gift struct {
	to     types.NamespacedName
	since  time.Time
	before bool // it was that already when it was given out last
}

// hubView is what the ClusterSet says to this member.
type hubView struct {
	seen   bool
	mode   ipam.Mode
	blocks []netip.Prefix
	pools  map[corev1.IPFamily]bool // the families that blocks are cut of
}

var _ kube.VIPs = (*Room)(nil)

// New makes it for an agent.
func New(env *kube.Env) *Room {
	r := &Room{
		Env: env, gifts: map[netip.Addr]gift{}, rests: map[netip.Addr]rest{}, over: map[types.NamespacedName]time.Time{}, waits: map[types.NamespacedName]*wait{}, barred: map[types.NamespacedName]time.Time{}, full: map[corev1.IPFamily]time.Time{}, overflowing: map[corev1.IPFamily]bool{},
		count: newCounters(),
	}
	r.laid, r.repaired = &faults{of: r, now: map[string]bool{}}, &faults{of: r, now: map[string]bool{}}
	return r
}

// Controller is this room's entry in the list of controllers.
func (r *Room) Controller() kube.Controller {
	always := kube.Named(func(client.Object) types.NamespacedName { return ranges })
	return kube.Controller{
		Name: "clustersetip",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &aboutv1beta1.ClusterProperty{}, Requests: always},
			{Side: kube.Local, Object: &networkingv1.ServiceCIDR{}, Requests: always, Optional: true},
			{Side: kube.Local, Object: &networkingv1.IPAddress{}, Requests: r.ofAddress, Optional: true},
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: always},
		},
		Reconciler: r,
		Metrics:    r.collectors(),
	}
}

// ofAddress asks for the address, and for the ranges where these are running short, or one of them may be empty now.
func (r *Room) ofAddress(_ context.Context, o client.Object) []reconcile.Request {
	out := []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: ofAddress, Name: o.GetName()}}}
	r.mu.Lock()
	defer r.mu.Unlock()
	a, err := netip.ParseAddr(o.GetName())
	if leaves := err == nil && r.leaves(a); r.view != nil && r.view.short() || leaves {
		out = append(out, reconcile.Request{NamespacedName: ranges})
	}
	return out
}

// Reconcile looks at one address, or at all ranges.
func (r *Room) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Namespace == ofAddress {
		return r.address(ctx, req.Name)
	}
	return r.lay(ctx)
}
