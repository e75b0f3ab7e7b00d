package clustersetip

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// repair compares imports, derived Services, IPAddresses and ServiceCIDRs once in a patrol (V4), and returns when to look again.
func (r *Room) repair(ctx context.Context, cidrs []*networkingv1.ServiceCIDR, fenced []ipam.Range) (time.Duration, error) {
	r.mu.Lock()
	now := r.Now()
	left := r.repairAt.Sub(now)
	r.mu.Unlock()
	if left > 0 {
		return left, nil
	}
	seen := ipam.Seen{Ranges: cidrs, Manager: kube.Manager, Now: now}
	for _, f := range fenced {
		seen.Fencing = append(seen.Fencing, f.Prefix)
	}
	if err := r.look(ctx, &seen); err != nil {
		return 0, err
	}
	findings, next := ipam.Repair(seen)
	var errs []error
	missing := map[ipam.Owner]bool{}
	for i := range findings {
		f := &findings[i]
		if f.Action == ipam.Requeue {
			missing[f.Owner] = true
			if !r.missing[f.Owner] { // it may be on its way: said if it is still so by the next patrol
				continue
			}
		}
		_, err := r.mend(ctx, f)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return 0, err // and all is compared again
	}
	r.repaired.over()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing, r.repairAt = missing, now.Add(patrol)
	if !next.IsZero() && next.Before(r.repairAt) {
		r.repairAt = next
	}
	return max(r.repairAt.Sub(now), time.Second), nil
}

// restore makes the IPAddress of an address again if it is a VIP of this Service, and tells whether it did: that is not left to the next
// patrol, since without it anybody may be given the address. ip is what is there instead: nothing, or a fence of ours.
func (r *Room) restore(ctx context.Context, a netip.Addr, ip *networkingv1.IPAddress, service types.NamespacedName) (bool, error) {
	svc, err := kube.Get[*corev1.Service](ctx, r.Local, service)
	if err != nil || svc == nil {
		return false, err
	}
	seen := ipam.Seen{Services: []*corev1.Service{svc}, Manager: kube.Manager, Now: r.Now()}
	if ip != nil {
		seen.Addresses = append(seen.Addresses, ip)
	}
	if seen.Ranges, err = r.cidrs(ctx); err != nil {
		return false, err
	}
	findings, _ := ipam.Repair(seen)
	i := slices.IndexFunc(findings, func(f ipam.Finding) bool {
		return f.Address == a && (f.Action == ipam.Create || f.Action == ipam.Replace)
	})
	if i < 0 {
		return false, nil
	}
	return r.mend(ctx, &findings[i])
}

func (r *Room) look(ctx context.Context, seen *ipam.Seen) error {
	var imports mcsv1beta1.ServiceImportList
	var services corev1.ServiceList
	var addresses networkingv1.IPAddressList
	for _, list := range []client.ObjectList{&imports, &services, &addresses} {
		if err := r.Local.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	for i := range imports.Items {
		seen.Imports = append(seen.Imports, &imports.Items[i])
	}
	for i := range services.Items {
		seen.Services = append(seen.Services, &services.Items[i])
	}
	for i := range addresses.Items {
		a, err := netip.ParseAddr(addresses.Items[i].Name)
		if _, given := r.given(a); err == nil && given {
			continue // on its way to a Service
		}
		seen.Addresses = append(seen.Addresses, &addresses.Items[i])
	}
	return r.missed(ctx, addresses.Items)
}

// missed looks at the addresses that are known and that the cache does not show: what is deleted while there is no watch yet is no event. One
// that was just written, the cache may show later.
func (r *Room) missed(ctx context.Context, there []networkingv1.IPAddress) error {
	shown := make(map[string]bool, len(there))
	for i := range there {
		shown[there[i].Name] = true
	}
	var missed []netip.Addr
	r.mu.Lock()
	for a := range r.view.addresses {
		if !shown[a.String()] {
			missed = append(missed, a)
		}
	}
	r.mu.Unlock()
	return r.several(missed, func(a netip.Addr) error {
		var now networkingv1.IPAddressList
		if err := r.LocalNow.List(ctx, &now, client.MatchingFields{"metadata.name": a.String()}); err != nil || len(now.Items) > 0 {
			return err
		}
		_, err := r.address(ctx, a.String())
		return err
	})
}

func (r *Room) given(a netip.Addr) (gift, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, given := r.gifts[a]
	return g, given
}

// mend does what a finding asks for, and tells whether it was still to be done. What is written goes by the UID that was seen.
func (r *Room) mend(ctx context.Context, f *ipam.Finding) (bool, error) {
	if stale, err := r.stale(ctx, f); stale || err != nil {
		return false, err
	}
	log.FromContext(ctx).Info("repairing", "kind", f.Kind, "action", f.Action, "address", f.Address, "service", f.Service, "what", f.Message)
	object := about("IPAddress", f.Address.String())
	if f.Service.Name != "" && f.Action != ipam.Delete {
		object = &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: f.Service.Namespace, Name: f.Service.Name}
	}
	switch f.Kind {
	case ipam.Missing:
		r.repaired.Event(object, kube.Warning, string(ipam.Missing), f.Message+".")
	case ipam.Leaked:
		r.repaired.Event(object, kube.Warning, string(ipam.Leaked), f.Message+".")
	case ipam.Doubled:
		r.repaired.Event(object, kube.Warning, string(ipam.Doubled), f.Message+".")
	case ipam.OutOfRange:
		r.repaired.Event(object, kube.Warning, string(ipam.OutOfRange), f.Message+".")
	case ipam.Foreign:
		r.repaired.Event(object, kube.Warning, string(ipam.Foreign), f.Message+".")
	}
	if f.Action == ipam.Replace { // nor fence it again in between
		r.mu.Lock()
		r.change(f.Address, func() { r.gifts[f.Address] = gift{to: f.Service, since: r.Now()} })
		r.mu.Unlock()
	}
	err := r.write(ctx, f)
	if f.Action == ipam.Replace && err != nil {
		r.mu.Lock()
		r.change(f.Address, func() { delete(r.gifts, f.Address) })
		r.mu.Unlock()
	}
	return true, err
}

func (r *Room) write(ctx context.Context, f *ipam.Finding) error {
	if f.Action == ipam.Delete || f.Action == ipam.Replace {
		ip, uid := &networkingv1.IPAddress{}, f.UID
		ip.Name = f.Address.String()
		if err := kube.Gone(r.Local.Delete(ctx, ip, client.Preconditions{UID: &uid})); err != nil {
			return err
		}
	}
	if f.Action == ipam.Delete || f.Action == ipam.Report || f.Action == ipam.Requeue {
		return nil
	}
	err := r.Local.Create(ctx, ipam.Reference(f.Address, f.Service))
	if f.Action == ipam.Create && apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err // also where somebody was faster with what was freed for it: then all is compared again
}

// stale tells whether an API server, asked past the caches, shows otherwise what a finding was made from: watches that lag, or a clock that
// is ahead, are not to free a VIP that lives, nor to say that one is lost whose IPAddress is on its way to us. The Service is asked for
// last: what it has then is not being made any more. Where its IPAddress is to be made it is asked for first as well: one that has the
// address had its IPAddress before that.
func (r *Room) stale(ctx context.Context, f *ipam.Finding) (bool, error) {
	if f.Action == ipam.Report || f.Action == ipam.Requeue {
		return false, nil
	}
	if f.Action != ipam.Delete {
		if used, err := r.used(ctx, f); !used || err != nil {
			return true, err
		}
	}
	var addresses networkingv1.IPAddressList
	if err := r.LocalNow.List(ctx, &addresses, client.MatchingFields{"metadata.name": f.Address.String()}); err != nil {
		return false, err
	}
	var uid types.UID // "" as in a finding of none
	for i := range addresses.Items {
		uid = addresses.Items[i].UID
	}
	if uid != f.UID || f.Service.Name == "" {
		return uid != f.UID, nil
	}
	used, err := r.used(ctx, f)
	return used == (f.Action == ipam.Delete), err
}

// used tells whether the API server shows the Service of a finding with its address.
func (r *Room) used(ctx context.Context, f *ipam.Finding) (bool, error) {
	var there corev1.ServiceList
	err := r.LocalNow.List(ctx, &there, client.InNamespace(f.Service.Namespace), client.MatchingFields{"metadata.name": f.Service.Name})
	return slices.ContainsFunc(there.Items, func(s corev1.Service) bool { return slices.Contains(s.Spec.ClusterIPs, f.Address.String()) }), err
}
