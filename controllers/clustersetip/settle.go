package clustersetip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Settle is kube.VIPs'.
func (r *Room) Settle(ctx context.Context, q kube.VIPRequest, grant kube.VIPGrant, svc *corev1.Service, err error) error {
	r.mu.Lock()
	if err == nil {
		delete(r.waits, q.Service)
		delete(r.barred, q.Service)
		r.gave(q.Service, svc)
		for _, f := range grant.Families {
			if !slices.ContainsFunc(grant.Addresses, func(a netip.Addr) bool { return familyOf(a) == f }) { // it was the API server's choice
				delete(r.full, f)
			}
		}
		r.count.given(r.view, grant.Families, svc, r.Now().Sub(grant.Asked))
		r.mu.Unlock()
		return nil
	}
	var back []ipam.Range
	for _, a := range grant.Addresses {
		r.change(a, func() {
			if r.gifts[a].before && answered(err) {
				return // the Service that it was made for may be there, and not to be seen yet
			}
			delete(r.gifts, a)
			if _, kept := r.rests[a]; !kept && !answered(err) {
				r.rests[a] = rest{q.Service, r.Now().Add(ipam.Grace + patrol)} // the Service may be there, or come yet, and by then it is seen
			}
		})
		back = append(back, r.fenceOf(a))
	}
	if !ofAddresses(err) {
		r.barred[q.Service] = r.Now()
	}
	partial := len(grant.Families) > 1 && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err)
	cause := err
	over, err := r.judge(q, grant, err)
	full := errors.Is(err, ipam.ErrFull)
	if full && len(grant.Families) == 1 {
		r.full[grant.Families[0]] = r.Now()
	}
	r.mu.Unlock()
	var own []netip.Addr // that the API server had kept of the Service
	reclaim := func(age time.Duration, lists ...client.ListOption) {
		kept, failed := r.reclaim(ctx, q.Service, age, lists...)
		own, err = append(own, kept...), join(err, failed)
	}
	switch {
	case partial && full: // what the API server chose of the other family, nobody has named
		reclaim(0, client.MatchingLabels{networkingv1.LabelManagedBy: ipam.APIServer})
	case partial && refused(cause):
		reclaim(0, named(grant.Addresses)...)
	case partial: // the Service may come yet, and its addresses are its own
		reclaim(ipam.Grace, named(grant.Addresses)...)
	}
	if len(over) > 0 {
		reclaim(ipam.Grace, named(over)...)
		r.giveUp(q.Service, over, own, cause)
	}
	for i, f := range back {
		if f.Name != "" {
			err = join(err, r.reserve(ctx, grant.Addresses[i], f.Name))
		}
	}
	return err
}

// gave notes the addresses that a Service has, until their IPAddresses are seen, or are to be (V7): the caches tell of them later, and by then
// somebody may have deleted it. Under the lock.
func (r *Room) gave(service types.NamespacedName, svc *corev1.Service) {
	for _, text := range svc.Spec.ClusterIPs {
		a, err := netip.ParseAddr(text)
		if e := r.view.addresses[a]; err == nil && (e.uid == "" || e.fence) {
			r.change(a, func() { r.gifts[a] = gift{to: service, since: r.Now()} })
		}
	}
}

// join keeps an error as it is where there is no other.
func join(err, other error) error {
	if other == nil {
		return err
	}
	return errors.Join(err, other)
}

// giveUp notes the previous addresses that cannot be had again: those that are not the Service's own, left of its last life.
func (r *Room) giveUp(service types.NamespacedName, over, own []netip.Addr, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range over {
		if w := r.waits[service]; w != nil && !slices.Contains(own, a) {
			w.lost[a] = cause
		}
	}
}

// reclaim frees what the API server has kept of a Service that is not there, once it is this old: where one of two families cannot be
// had, it does not release the other (Kubernetes 1.36, txnAllocClusterIPs), and where it ends in the middle of a deletion, nothing; it would
// refuse both to the same Service from then on. It looks among the IPAddresses of each of these lists; own are the addresses that it has kept.
func (r *Room) reclaim(ctx context.Context, service types.NamespacedName, age time.Duration, lists ...client.ListOption) (own []netip.Addr, err error) {
	if r.served() != nil {
		return nil, nil
	}
	var there corev1.ServiceList
	err = r.LocalNow.List(ctx, &there, client.InNamespace(service.Namespace), client.MatchingFields{"metadata.name": service.Name})
	if err != nil || len(there.Items) > 0 {
		return nil, err
	}
	for _, these := range lists {
		var list networkingv1.IPAddressList
		if err := r.LocalNow.List(ctx, &list, these); err != nil {
			return own, err
		}
		for i := range list.Items {
			ip := &list.Items[i]
			e := entryOf(ip)
			if e.fence || e.held.Foreign || e.held.Owner != service {
				continue
			}
			own = append(own, e.held.Address)
			if r.Now().Sub(ip.CreationTimestamp.Time) < age {
				continue
			}
			if err := kube.Gone(r.Local.Delete(ctx, ip, client.Preconditions{UID: &ip.UID})); err != nil {
				return own, err
			}
		}
	}
	return own, nil
}

// named are the lists of these addresses.
func named(addresses []netip.Addr) (lists []client.ListOption) {
	for _, a := range addresses {
		lists = append(lists, client.MatchingFields{"metadata.name": a.String()})
	}
	return lists
}

// judge is what the API server's error means: wait, take another address, or tell the user. over are the previous addresses that were
// waited for long enough.
func (r *Room) judge(q kube.VIPRequest, grant kube.VIPGrant, err error) (over []netip.Addr, _ error) {
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return nil, err
	}
	text := err.Error()
	r.count.failed(r.view, concerned(text, grant), grant.Addresses, err)
	if strings.Contains(text, ipam.ErrFull.Error()) {
		return nil, fmt.Errorf("%w: %w", ipam.ErrFull, err)
	}
	if !apierrors.IsInvalid(err) || len(grant.Addresses) == 0 {
		return nil, err
	}
	waiting, again := r.patient(q.Service, patience), false
	w := r.waits[q.Service]
	previous := append(slices.Clone(q.Previous), r.view.alloc.Owned(q.Service)...) // as assign takes them
	for _, a := range blamed(text, grant.Addresses) {
		switch {
		case waiting && (slices.Contains(previous, a) || !strings.Contains(text, ipam.ErrAllocated.Error()[len("address"):])):
			again = true
		case slices.Contains(previous, a):
			over = append(over, a)
			again = true
		default:
			r.view.alloc.Quarantine(ipam.Quarantined{Address: a, Until: r.Now().Add(elsewhere)})
			w.fails++
			again = again || w.fails <= tries
		}
	}
	if again {
		return over, kube.ErrVIPBusy
	}
	return nil, err
}

// blamed are the addresses that an error names; all where it names none.
func blamed(text string, asked []netip.Addr) []netip.Addr {
	if out := mentioned(text, asked); out != nil {
		return out
	}
	return asked
}

func mentioned(text string, asked []netip.Addr) (out []netip.Addr) {
	for _, a := range asked {
		if strings.Contains(text, "failed to allocate IP "+a.String()+":") {
			out = append(out, a)
		}
	}
	return out
}

// concerned are the families of the addresses that an error names; all where it names none.
func concerned(text string, grant kube.VIPGrant) (out []corev1.IPFamily) {
	for _, a := range mentioned(text, grant.Addresses) {
		out = append(out, familyOf(a))
	}
	if out == nil {
		return grant.Families
	}
	return out
}
