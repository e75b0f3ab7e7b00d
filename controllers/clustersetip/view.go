package clustersetip

import (
	"context"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// view is what the caches show of addresses and ranges, and the allocator that goes by it. Owners are derived Services, by whose name
// IPAddresses refer to them; the import's name leads to it and not back.
type view struct {
	mode  ipam.Mode
	since time.Time // when it became that
	// unsupported is why there are no ranges to be seen (V7).
	unsupported error
	ranges      []ipam.Range // as judged: unfenced while their fence does not stand
	alloc       *ipam.Allocator
	addresses   map[netip.Addr]entry
	// fenced are the ranges whose addresses have a reservation each, or are to have one.
	fenced fences
	// own and rest are the ranges for VIPs, those that have series of their own and the others.
	own, rest []ipam.Range
	// free and size are of the ranges for VIPs, by family; free counts down as addresses are given, until the ranges are looked at again.
	free, size map[corev1.IPFamily]int
	// looked are the families that were short of room when the ranges were looked at last: more is under way, or cannot be had yet.
	looked map[corev1.IPFamily]bool
}

// entry is an IPAddress.
type entry struct {
	held  ipam.Held
	fence bool   // a reservation of ours
	other string // what it refers to, where that is no Service
	uid   types.UID
}

// ordinary tells whether it is of a Service that is no derived one.
func (e entry) ordinary() bool { return e.uid != "" && !e.fence && e.other == "" && e.held.Foreign }

// entryOf reads an IPAddress. Whether a Service of this name is a derived one, only the Service tells: see Room.entryOf.
func entryOf(ip *networkingv1.IPAddress) entry {
	e := entry{uid: ip.UID}
	ref := ip.Spec.ParentRef
	if ipam.Reserves(ip, kube.Manager) {
		e.fence = true
		return e
	}
	a, err := netip.ParseAddr(ip.Name)
	if err != nil {
		return e
	}
	e.held = ipam.Held{Address: a, Foreign: true}
	if ref != nil {
		e.held.Owner = types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	}
	if ref == nil || ref.Group != "" || ref.Resource != "services" {
		e.other = ipam.Parent(ip)
		return e
	}
	e.held.Foreign = !derived.Named(ref.Name)
	return e
}

// entryOf reads an IPAddress. Its Service may not be there to be seen yet: what it tells later, keep notes.
func (r *Room) entryOf(ctx context.Context, ip *networkingv1.IPAddress) (entry, error) {
	e := entryOf(ip)
	if e.fence || e.held.Foreign {
		return e, nil
	}
	svc, err := kube.Get[*corev1.Service](ctx, r.Local, e.held.Owner)
	if svc != nil {
		e.held.Foreign = !derived.Is(svc, kube.Manager)
	}
	return e, err
}

// load reads the caches once, and once more when they have what could not be read before. Under the lock.
func (r *Room) load(ctx context.Context) error {
	if r.view != nil && (r.view.unsupported == nil || r.served() != nil) {
		return nil
	}
	v := &view{addresses: map[netip.Addr]entry{}, looked: map[corev1.IPFamily]bool{}}
	v.unsupported = r.served()
	if v.unsupported == nil {
		var list networkingv1.IPAddressList
		if err := r.Local.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		for i := range list.Items {
			a, err := netip.ParseAddr(list.Items[i].Name)
			if err != nil {
				continue
			}
			v.addresses[a] = entryOf(&list.Items[i])
		}
	}
	hub, err := r.hubView(ctx)
	if err != nil {
		return err
	}
	cidrs, err := r.cidrs(ctx)
	if err != nil {
		return err
	}
	all, err := r.claimants(ctx)
	if err != nil {
		return err
	}
	r.view = v
	r.keep(all)
	r.fit(hub.mode, rangesOf(cidrs))
	return nil
}

// served is nil while ServiceCIDRs and IPAddresses can be read.
func (r *Room) served() error {
	for _, o := range []client.Object{&networkingv1.ServiceCIDR{}, &networkingv1.IPAddress{}} {
		if err := r.Served(o); err != nil {
			return err
		}
	}
	return nil
}

func (r *Room) cidrs(ctx context.Context) ([]*networkingv1.ServiceCIDR, error) {
	if r.served() != nil {
		return nil, nil
	}
	var list networkingv1.ServiceCIDRList
	if err := r.Local.List(ctx, &list); err != nil {
		return nil, err
	}
	out := make([]*networkingv1.ServiceCIDR, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	slices.SortFunc(out, func(a, b *networkingv1.ServiceCIDR) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func rangesOf(cidrs []*networkingv1.ServiceCIDR) (all []ipam.Range) {
	for _, c := range cidrs {
		ranges, _ := ipam.Ranges(c) // what cannot be read is said where the ranges are laid out
		all = append(all, ranges...)
	}
	return all
}

// fit makes the allocator for a mode and ranges, under the lock. In mode exclusive a range gives out nothing new before its fence stands.
func (r *Room) fit(mode ipam.Mode, all []ipam.Range) {
	v := r.view
	if v.mode != mode {
		v.since = r.Now()
	}
	v.mode = mode
	v.own, v.rest = forVIPs(all)
	judged := slices.Clone(all)
	for i := range judged {
		one := &judged[i]
		if one.Use != ipam.Exclusive {
			continue
		}
		switch {
		case mode != ipam.ModeExclusive:
		case !ipam.Fits(one.Prefix):
			one.Use = ipam.Ordinary
		case one.State == ipam.Ready && !r.stands(one.Prefix):
			one.State = ipam.Unfenced
		}
	}
	v.ranges = judged
	works := mode
	if v.unsupported != nil {
		works, judged = ipam.ModeShared, nil
	}
	if v.alloc != nil { // which change keeps at what is known
		v.alloc.Fit(works, judged)
	} else {
		v.alloc = ipam.NewAllocator(works, judged)
		for _, known := range []iter.Seq[netip.Addr]{maps.Keys(v.addresses), maps.Keys(r.gifts), maps.Keys(r.rests)} {
			for a := range known {
				for _, h := range r.claims(a) {
					v.alloc.Hold(h)
				}
			}
		}
	}
	s := r.standing(mode, judged)
	v.free, v.size = map[corev1.IPFamily]int{}, map[corev1.IPFamily]int{}
	for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if v.free[f], v.size[f] = ipam.Room(s, f); v.free[f] > 0 || mode != ipam.ModePreferred {
			delete(r.overflowing, f)
		}
	}
}

// standing is what the layout is decided by, but for what the hub and the cluster say.
func (r *Room) standing(mode ipam.Mode, all []ipam.Range) ipam.Standing {
	s := ipam.Standing{Mode: mode, Ranges: all, Held: make([]ipam.Held, 0, len(r.view.addresses)+len(r.gifts)+len(r.rests))}
	for _, e := range r.view.addresses {
		if !e.fence {
			s.Held = append(s.Held, e.held)
		}
	}
	for a, g := range r.gifts {
		s.Held = append(s.Held, ipam.Held{Owner: g.to, Address: a})
	}
	for a, rest := range r.rests { // no VIP any more, and no room
		s.Held = append(s.Held, ipam.Held{Owner: rest.of, Address: a, Foreign: true})
	}
	return s
}

// stands tells whether every address of a fence has an IPAddress, whosever it is, or is given out just now.
func (r *Room) stands(p netip.Prefix) bool {
	for a := range ipam.Addresses(p) {
		if _, there := r.view.addresses[a]; !there {
			if _, given := r.gifts[a]; !given {
				return false
			}
		}
	}
	return true
}

// spend counts an address that is free no more.
func (v *view) spend(a netip.Addr) {
	if v.alloc.Gives(a) {
		v.free[familyOf(a)]--
	}
}

// short tells, once, whether a family is running out of room since the ranges were looked at.
func (v *view) short() (any bool) {
	if v.mode == ipam.ModeShared || v.unsupported != nil {
		return false
	}
	for f, size := range v.size {
		if size > 0 && !v.looked[f] && ipam.Low(v.free[f], size) {
			v.looked[f], any = true, true
		}
	}
	return any
}
