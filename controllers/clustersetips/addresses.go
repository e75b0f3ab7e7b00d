// Package clustersetips picks the addresses of derived Services (DESIGN §5, SPEC V). It writes nothing: serviceimport
// creates the Service, and the API server's IPAddress is the lock. It remembers nothing: what counts is in the import,
// its derived Service and the IPAddresses.
package clustersetips

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

const (
	// building is how long a new import waits for a range that is being made, for a block, or for the API server's
	// allocator, which may not know a range yet and refuses its addresses.
	building = 10 * time.Second
	// patience is how long an import waits for an address that the API server refuses although no IPAddress shows
	// why: its allocator follows watches, too.
	patience = 10 * time.Second
	// releasing is how long an API server may take to release the address of a Service that was deleted. A dual-stack
	// creation that comes sooner can fail by one address and leave the other one allocated until Kubernetes repairs it.
	releasing = 2 * time.Second
	// tries is how many addresses may turn out to be taken before the API server chooses.
	tries = 8
	// probes is how many addresses are looked up one by one before all IPAddresses are listed.
	probes = 64
)

// Addresses picks addresses, one request at a time or several.
type Addresses struct {
	kube.Member
	count *counters
}

func New(m kube.Member) *Addresses { return &Addresses{m, newCounters()} }

func (a *Addresses) Metrics() []prometheus.Collector {
	return []prometheus.Collector{a.count.errors, a.count.duration}
}

// Pick returns the addresses that the derived Service asks for by name; the API server chooses for the families that
// have none. The error wraps ipam.ErrPending if a later attempt gets a better answer.
func (a *Addresses) Pick(ctx context.Context, q *ipam.Request) (out []netip.Addr, err error) {
	v, err := a.view(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range q.Families {
		address, err := a.previous(ctx, v, q, f)
		if err == nil && !address.IsValid() {
			address, err = a.fresh(ctx, v, q, f)
		}
		if err != nil {
			return nil, a.withLost(q, err)
		}
		if address.IsValid() {
			out = append(out, address)
		}
	}
	return out, nil
}

// view holds the ClusterSet's VIP settings and this cluster's ranges. It has no ranges if the API server does not serve
// ServiceCIDRs (SPEC V7).
type view struct {
	kube.VIPSettings
	served bool
	ranges []ipam.Range
}

func (a *Addresses) view(ctx context.Context) (v view, err error) {
	if v.VIPSettings, err = kube.ReadVIPSettings(ctx, a.Local, a.Hub(), a.HubNamespace, a.Cluster); err != nil {
		return v, err
	}
	v.served = a.Missing(&networkingv1.ServiceCIDR{}) == nil && a.Missing(&networkingv1.IPAddress{}) == nil
	if !v.served {
		return v, nil
	}
	var list networkingv1.ServiceCIDRList
	if err := a.Local.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return v, err
	}
	v.ranges, _ = ipam.AllRanges(list.Items) // servicecidrs reports what cannot be read
	return v, nil
}

func (v *view) in(f corev1.IPFamily, state ipam.State) (out []ipam.Range) {
	for _, r := range v.ranges {
		if r.State == state && ipam.Family(r.Prefix.Addr()) == f {
			out = append(out, r)
		}
	}
	return out
}

func prefixes(ranges []ipam.Range, want func(ipam.Range) bool) (out []netip.Prefix) {
	for _, r := range ranges {
		if want(r) {
			out = append(out, r.Prefix)
		}
	}
	return out
}

func forVIPs(r ipam.Range) bool { return r.VIPs }
func anyRange(ipam.Range) bool  { return true }

// previous returns the import's address if it can have it again (SPEC I6), and an invalid one if it must take
// another.
func (a *Addresses) previous(
	ctx context.Context, v view, q *ipam.Request, f corev1.IPFamily,
) (none netip.Addr, err error) {
	was := q.Previous(f)
	_, lost := q.Lost[was]
	switch {
	case lost:
		return none, nil
	case !was.IsValid():
		return was, nil
	case !v.served && q.Waited(a.Now()) < releasing: // no IPAddress shows when it is released
		return none, fmt.Errorf("%w %s: the API server may not have released it yet", ipam.ErrPending, was)
	case !v.served:
		return was, nil
	}
	holds := func(r ipam.Range) bool { return r.Prefix.Contains(was) }
	ready := slices.ContainsFunc(v.in(f, ipam.Ready), holds)
	if !ready && slices.ContainsFunc(v.in(f, ipam.Terminating), holds) {
		q.Lose(was, errors.New("its range is being deleted"))
		return none, nil
	}
	ip, err := kube.Get[*networkingv1.IPAddress](ctx, a.Local, types.NamespacedName{Name: was.String()})
	if err != nil {
		return none, err
	}
	if owner, _ := ownerOf(ip); ip != nil && owner != q.Service {
		// The cache may lag. If it does not, asking would fail, and could leave the address of the other family
		// allocated until the API server's repair loop frees it.
		if ip, err = a.live(ctx, was); err != nil {
			return none, err
		}
		if owner, described := ownerOf(ip); ip != nil && owner != q.Service {
			q.Lose(was, fmt.Errorf("%w %s", ipam.ErrTaken, described))
			return none, nil
		}
	}
	return was, a.awaitRelease(q, was, ip)
}

// live returns an IPAddress past the cache, or nil if there is none.
func (a *Addresses) live(ctx context.Context, address netip.Addr) (*networkingv1.IPAddress, error) {
	var list networkingv1.IPAddressList
	err := a.LocalNow.List(ctx, &list, client.MatchingFields{"metadata.name": address.String()})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// awaitRelease returns an error while the API server has yet to release an address that a request wants.
func (a *Addresses) awaitRelease(q *ipam.Request, address netip.Addr, ip *networkingv1.IPAddress) error {
	owner, described := ownerOf(ip)
	if ip == nil || owner != q.Service || q.Previous(ipam.Family(address)) != address {
		return nil // another's address is asked for all the same: a cache may lag
	}
	return fmt.Errorf("%w %s: the API server has not released it from the last %s", ipam.ErrPending, address, described)
}

// ownerOf returns the Service that an IPAddress belongs to, and what it refers to for a person.
func ownerOf(ip *networkingv1.IPAddress) (service types.NamespacedName, described string) {
	if ip == nil || ip.Spec.ParentRef == nil {
		return service, "nothing"
	}
	ref := ip.Spec.ParentRef
	if ref.Group == "" && ref.Resource == "services" {
		service = types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
		return service, "Service " + service.String()
	}
	kind := strings.TrimPrefix(ref.Group+"/"+ref.Resource, "/")
	return service, kind + " " + strings.TrimPrefix(ref.Namespace+"/"+ref.Name, "/")
}

// fresh returns a free address, or an invalid one if the API server is to choose.
func (a *Addresses) fresh(
	ctx context.Context, v view, q *ipam.Request, f corev1.IPFamily,
) (none netip.Addr, err error) {
	if v.Mode != ipam.ModePreferred || !v.served {
		return none, nil
	}
	refused := len(q.Lost) >= tries
	if !refused {
		address, found, err := a.free(ctx, prefixes(v.in(f, ipam.Ready), forVIPs), q)
		if found || err != nil {
			return address, err
		}
	}
	if (refused || v.coming(f)) && a.Now().Sub(q.Import.CreationTimestamp.Time).Abs() < building {
		return none, fmt.Errorf("%w: a range of %s is being made, or not in use yet", ipam.ErrPending, f)
	}
	ofFamily := func(r ipam.Range) bool { return r.VIPs && ipam.Family(r.Prefix.Addr()) == f }
	if v.Pools[f] || slices.ContainsFunc(v.ranges, ofFamily) { // else nobody has asked for such ranges
		a.Events.Event(kube.System(), kube.Warning, "VIPRangeOverflow", fmt.Sprintf(
			"New VIPs of %s come from the cluster's own ranges: no ServiceCIDR for VIPs has a free address, "+
				"or the API server refuses those. See condition BlocksGranted of the ClusterSet, or add a ServiceCIDR "+
				"labelled %s=%s.",
			f, ipam.LabelVIPs, ipam.Shared))
	}
	return none, nil
}

// coming reports whether a range for VIPs of this family may be ready soon: one is not ready yet, or the hub can still
// grant a block.
func (v *view) coming(f corev1.IPFamily) bool {
	return v.Set == nil || v.Pools[f] || len(prefixes(v.in(f, ipam.NotReady), forVIPs)) > 0
}

// free returns a free address of these ranges. The caches say what is taken, at a cost that does not depend on how
// much is (SPEC V5); if that finds none, all IPAddresses are listed once.
func (a *Addresses) free(ctx context.Context, ranges []netip.Prefix, q *ipam.Request) (netip.Addr, bool, error) {
	if len(ranges) == 0 {
		return netip.Addr{}, false, nil
	}
	var failed error
	lost := func(x netip.Addr) bool { _, is := q.Lost[x]; return is }
	address, found := ipam.Pick(ranges, q.Service.String(), probes, func(x netip.Addr) bool {
		ip, err := kube.Get[*networkingv1.IPAddress](ctx, a.Local, types.NamespacedName{Name: x.String()})
		failed = errors.Join(failed, err)
		return ip != nil || lost(x)
	})
	if found || failed != nil {
		return address, found, failed
	}
	var list networkingv1.IPAddressList
	if err := a.Local.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return address, false, err
	}
	taken := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		taken[list.Items[i].Name] = true
	}
	address, found = ipam.Pick(
		ranges, q.Service.String(), math.MaxInt, func(x netip.Addr) bool { return taken[x.String()] || lost(x) },
	)
	return address, found, nil
}

// Refused takes the API server's error on a Service that asked for these addresses. It returns nil if another attempt
// makes sense, and else the error to report.
func (a *Addresses) Refused(ctx context.Context, q *ipam.Request, asked []netip.Addr, cause error) error {
	if apierrors.IsAlreadyExists(cause) || apierrors.IsConflict(cause) {
		return cause
	}
	if len(asked) == 0 || !kube.InvalidField(cause, "spec.clusterIP") {
		return a.withLost(q, a.explain(ctx, q, cause))
	}
	owned := 0
	for _, address := range asked {
		if a.Missing(&networkingv1.IPAddress{}) != nil {
			continue
		}
		ip, err := a.live(ctx, address)
		if err == nil {
			err = a.awaitRelease(q, address, ip)
		}
		if err != nil {
			return a.withLost(q, err)
		}
		if ip != nil {
			_, described := ownerOf(ip)
			q.Lose(address, fmt.Errorf("%w %s", ipam.ErrTaken, described))
			owned++
		}
	}
	for _, address := range asked {
		switch _, lost := q.Lost[address]; {
		case owned > 0 || lost:
		case q.Previous(ipam.Family(address)) == address && q.Waited(a.Now()) < patience:
			return a.withLost(q, fmt.Errorf("%w %s: %w", ipam.ErrPending, address, cause))
		default:
			q.Lose(address, fmt.Errorf("the API server refuses it: %w", cause))
		}
	}
	for _, address := range asked {
		a.count.failed("allocated", ipam.Family(address))
	}
	return nil
}

// explain adds that the ranges are full, if the caches show it: the API server has no reason code for that.
func (a *Addresses) explain(ctx context.Context, q *ipam.Request, cause error) error {
	if v, err := a.view(ctx); err == nil && v.served && apierrors.IsInternalError(cause) {
		for _, f := range q.Families {
			if _, found, err := a.free(ctx, prefixes(v.in(f, ipam.Ready), anyRange), q); err == nil && !found {
				a.count.failed("full", f)
				return fmt.Errorf("%w: no ServiceCIDR has a free address of %s: %w", ipam.ErrFull, f, cause)
			}
		}
	}
	a.count.failed("other", q.Families...)
	return cause
}

// withLost adds the addresses of the import that belong to another Service to an error that ends a request, and reports
// them.
func (a *Addresses) withLost(q *ipam.Request, err error) error {
	for _, f := range q.Families {
		if was := q.Previous(f); errors.Is(q.Lost[was], ipam.ErrTaken) {
			a.reportLost(q, was, q.Lost[was])
			err = errors.Join(err, ipam.LostError(was.String()))
		}
	}
	return err
}

func (a *Addresses) reportLost(q *ipam.Request, was netip.Addr, why error) {
	a.Events.Event(q.Import, kube.Warning, "VIPLost", fmt.Sprintf(
		"%s is lost: %v. Clients that use it must resolve the name again.", was, why))
}

// Allocated takes the Service that the API server made or changed. An address that the import had before and lost
// is reported.
func (a *Addresses) Allocated(ctx context.Context, q *ipam.Request, svc *corev1.Service, took time.Duration) {
	v, err := a.view(ctx)
	for _, text := range svc.Spec.ClusterIPs {
		if ip, parsed := netip.ParseAddr(text); err == nil && parsed == nil &&
			slices.Contains(q.Families, ipam.Family(ip)) {
			a.count.allocated(v.label(ip), took)
		}
	}
	for _, f := range q.Families {
		was := q.Previous(f)
		if !was.IsValid() || slices.Contains(svc.Spec.ClusterIPs, was.String()) {
			continue
		}
		why := q.Lost[was]
		if why == nil {
			why = errors.New("the API server chose another")
		}
		a.reportLost(q, was, why)
	}
}
