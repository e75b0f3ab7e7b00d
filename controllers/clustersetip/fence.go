package clustersetip

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// abandoned is how old a gift is that nobody took: its Service was to be made at once.
const abandoned = 30 * time.Second

// address looks at one address whose IPAddress has changed: what it was is dropped, what it is is held, and one of a fence that nobody has
// is fenced again.
func (r *Room) address(ctx context.Context, name string) (reconcile.Result, error) {
	a, err := netip.ParseAddr(name)
	if err != nil {
		return reconcile.Result{}, nil //nolint:nilerr // no API server has such an IPAddress
	}
	ip, err := kube.Get[*networkingv1.IPAddress](ctx, r.Local, types.NamespacedName{Name: name})
	if err != nil {
		return reconcile.Result{}, err
	}
	var now entry
	if ip != nil {
		now = entryOf(ip)
	}
	r.mu.Lock()
	if r.view == nil {
		r.mu.Unlock()
		return reconcile.Result{}, nil // it is read with all others
	}
	left, lost := r.see(a, now)
	fence := r.fenceOf(a)
	r.mu.Unlock()
	switch {
	case left > 0:
		return reconcile.Result{RequeueAfter: left}, nil
	case fence.Name == "":
	case ip == nil:
		return reconcile.Result{}, r.reserve(ctx, a, fence.Name)
	case lost:
		r.swapLost(ip, fence)
	}
	return reconcile.Result{}, nil
}

// see notes what an address is now. left is how long it may still be on its way to whom it was given; lost tells that an ordinary Service
// has it, which was not known.
func (r *Room) see(a netip.Addr, now entry) (left time.Duration, lost bool) {
	r.record(a, now)
	if g, given := r.gifts[a]; given {
		taken := now.uid != "" && !now.fence
		if age := r.Now().Sub(g.since); !taken && age < abandoned {
			left = abandoned - age
		} else {
			r.change(a, func() { delete(r.gifts, a) })
		}
	}
	if lost = now.uid != "" && !now.fence && now.held.Foreign && !r.lost[now.uid] && r.fenceOf(a).Name != ""; lost {
		r.lost[now.uid] = true
		r.count.lost.Inc()
	}
	return left, lost
}

// note is what is known of an address because it was just written.
func (r *Room) note(a netip.Addr, now entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record(a, now)
}

// record is what an address is, under the lock.
func (r *Room) record(a netip.Addr, now entry) {
	if r.view.addresses[a] == now {
		return
	}
	r.change(a, func() {
		was := r.view.addresses[a]
		delete(r.view.addresses, a)
		if now.uid != "" {
			r.view.addresses[a] = now
			if _, given := r.gifts[a]; !given && !now.fence {
				r.view.spend(a)
			}
		}
		switch {
		case was.uid != "" && !was.fence && !was.held.Foreign && now.uid == "":
			r.rests[a] = rest{was.held.Owner, r.Now().Add(derived.Quarantine)}
		case now.uid != "" && !now.fence:
			delete(r.rests, a)
		}
	})
}

// change keeps the allocator at what is known of an address, while that changes.
func (r *Room) change(a netip.Addr, change func()) {
	for _, h := range r.claims(a) {
		r.view.alloc.Drop(h)
	}
	change()
	for _, h := range r.claims(a) {
		r.view.alloc.Hold(h)
	}
}

// claims are whose an address is: as its IPAddress says, as it was given out, and while it rests.
func (r *Room) claims(a netip.Addr) (out []ipam.Held) {
	if e, there := r.view.addresses[a]; there && !e.fence {
		out = append(out, e.held)
	}
	if g, given := r.gifts[a]; given {
		out = append(out, ipam.Held{Owner: g.to, Address: a})
	}
	if rest, kept := r.rests[a]; kept {
		out = append(out, ipam.Held{Owner: rest.of, Address: a})
	}
	return out
}

// fenceOf is the fenced range that an address is in; without a name if it is in none.
func (r *Room) fenceOf(a netip.Addr) ipam.Range {
	for _, f := range r.view.fenced {
		if f.Prefix.Contains(a) {
			return f
		}
	}
	return ipam.Range{}
}

// reserve makes the reservation of an address. That somebody has it is for the watch to tell.
func (r *Room) reserve(ctx context.Context, a netip.Addr, cidr string) error {
	ip := &networkingv1.IPAddress{}
	ip.Name = a.String()
	ip.Labels = map[string]string{networkingv1.LabelIPAddressFamily: string(familyOf(a)), networkingv1.LabelManagedBy: kube.Manager}
	ip.Spec.ParentRef = &networkingv1.ParentReference{Group: networkingv1.GroupName, Resource: "servicecidrs", Name: cidr}
	if err := r.Local.Create(ctx, ip); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	r.note(a, entry{fence: true, uid: ip.UID})
	return nil
}

// fence makes the reservations that a range lacks.
func (r *Room) fence(ctx context.Context, one ipam.Range) error {
	var missing []netip.Addr
	r.mu.Lock()
	for a := range ipam.Addresses(one.Prefix) {
		_, there := r.view.addresses[a]
		_, given := r.gifts[a]
		if !there && !given {
			missing = append(missing, a)
		}
	}
	r.mu.Unlock()
	return several(missing, func(a netip.Addr) error { return r.reserve(ctx, a, one.Name) })
}

// lift deletes the reservations that are in no range which is to be fenced.
func (r *Room) lift(ctx context.Context, keep []ipam.Range) error {
	var over []netip.Addr
	uids := map[netip.Addr]types.UID{}
	r.mu.Lock()
	for a, e := range r.view.addresses {
		if e.fence && !inside(keep, a) {
			over = append(over, a)
			uids[a] = e.uid
		}
	}
	r.mu.Unlock()
	return several(over, func(a netip.Addr) error {
		ip, uid := &networkingv1.IPAddress{}, uids[a]
		ip.Name = a.String()
		if err := r.Local.Delete(ctx, ip, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
		r.note(a, entry{})
		return nil
	})
}

func inside(ranges []ipam.Range, a netip.Addr) bool {
	for _, r := range ranges {
		if r.Prefix.Contains(a) {
			return true
		}
	}
	return false
}

// several does something for each address, some at a time: a fence is up to 256 writes.
func several(all []netip.Addr, do func(netip.Addr) error) error {
	const atOnce = 8
	var running sync.WaitGroup
	errs, turn := make([]error, len(all)), make(chan struct{}, atOnce)
	for i, a := range all {
		turn <- struct{}{}
		running.Go(func() {
			defer func() { <-turn }()
			errs[i] = do(a)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
