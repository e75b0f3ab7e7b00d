package clustersetip

import (
	"context"
	"errors"
	"net/netip"
	"slices"
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

// address looks at one address whose IPAddress has changed: what it was is dropped, what it is is held, a live VIP that lost it has it made
// again, and one of a fence that nobody has is fenced again.
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
		if now, err = r.entryOf(ctx, ip); err != nil {
			return reconcile.Result{}, err
		}
	}
	r.mu.Lock()
	if r.view == nil {
		r.mu.Unlock()
		return reconcile.Result{}, nil // it is read with all others
	}
	left := r.see(a, now)
	fence := r.fenceOf(a)
	rest, rests := r.rests[a]
	r.mu.Unlock()
	if rests && left == 0 && (now.uid == "" || now.fence) {
		if restored, err := r.restore(ctx, a, ip, rest.of); restored || err != nil {
			return reconcile.Result{}, err
		}
	}
	switch {
	case left > 0:
		return reconcile.Result{RequeueAfter: left}, nil
	case fence.Name != "" && ip == nil:
		return reconcile.Result{}, r.reserve(ctx, a, fence.Name)
	}
	return reconcile.Result{}, nil
}

// see notes what an address is now. left is how long it may still be on its way to whom it was given.
func (r *Room) see(a netip.Addr, now entry) (left time.Duration) {
	r.record(a, now)
	if g, given := r.gifts[a]; given {
		taken := now.uid != "" && !now.fence
		if age := r.Now().Sub(g.since); !taken && age < abandoned {
			left = abandoned - age
		} else {
			r.change(a, func() { delete(r.gifts, a) })
		}
	}
	return left
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
		case was.uid != "" && !was.fence && !was.held.Foreign && (now.uid == "" || now.fence):
			if !r.rested(was.held.Owner) {
				r.rests[a] = rest{was.held.Owner, r.Now().Add(derived.Quarantine)}
			}
		case now.uid != "" && !now.fence:
			delete(r.rests, a)
		}
	})
}

// GiveUp is kube.VIPs'.
func (r *Room) GiveUp(service types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over[service] = r.Now()
}

// rested tells whether a derived Service was given up a moment ago, under the lock; later than that it was not deleted then.
func (r *Room) rested(service types.NamespacedName) bool {
	at, over := r.over[service]
	return over && r.Now().Sub(at) < abandoned
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
func (r *Room) fenceOf(a netip.Addr) ipam.Range { return r.view.fenced.of(a) }

// fences finds a fenced range by an address in it, however many there are.
type fences map[netip.Prefix]ipam.Range

func newFences(ranges []ipam.Range) fences {
	all := fences{}
	for _, r := range ranges {
		if r.Use == ipam.Exclusive && ipam.Fits(r.Prefix) {
			all[r.Prefix] = r
		}
	}
	return all
}

// of is the range that an address is in; without a name if it is in none.
func (all fences) of(a netip.Addr) ipam.Range {
	if len(all) == 0 {
		return ipam.Range{}
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		p := netip.PrefixFrom(a, bits).Masked()
		if r, there := all[p]; there {
			return r
		}
		if !ipam.Fits(p) {
			break
		}
	}
	return ipam.Range{}
}

// reserve makes the reservation of an address, if it is nobody's.
func (r *Room) reserve(ctx context.Context, a netip.Addr, cidr string) error {
	ip := &networkingv1.IPAddress{}
	ip.Name = a.String()
	ip.Labels = map[string]string{networkingv1.LabelIPAddressFamily: string(familyOf(a)), networkingv1.LabelManagedBy: kube.Manager}
	ip.Spec.ParentRef = &networkingv1.ParentReference{Group: networkingv1.GroupName, Resource: "servicecidrs", Name: cidr}
	err := r.Local.Create(ctx, ip)
	if apierrors.IsAlreadyExists(err) {
		return r.ask(ctx, a)
	}
	if err != nil {
		return err
	}
	r.note(a, entry{fence: true, uid: ip.UID})
	return nil
}

// ask notes whose an address is that is somebody's, past the cache: the watch may have shown that already, and shows it once.
func (r *Room) ask(ctx context.Context, a netip.Addr) error {
	var there networkingv1.IPAddressList
	if err := r.LocalNow.List(ctx, &there, client.MatchingFields{"metadata.name": a.String()}); err != nil {
		return err
	}
	for i := range there.Items {
		now, err := r.entryOf(ctx, &there.Items[i])
		if err != nil {
			return err
		}
		r.note(a, now)
	}
	return nil
}

// free deletes the reservation of an address. Where another IPAddress is there by now, that is what is known of it.
func (r *Room) free(ctx context.Context, a netip.Addr, uid types.UID) error {
	ip := &networkingv1.IPAddress{}
	ip.Name = a.String()
	err := r.Local.Delete(ctx, ip, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view.addresses[a].uid == uid {
		r.record(a, entry{})
	}
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
	return r.several(missing, func(a netip.Addr) error { return r.reserve(ctx, a, one.Name) })
}

// lift deletes the reservations that are in no range which is to be fenced.
func (r *Room) lift(ctx context.Context, keep fences) error {
	var over []netip.Addr
	uids := map[netip.Addr]types.UID{}
	r.mu.Lock()
	for a, e := range r.view.addresses {
		if e.fence && keep.of(a).Name == "" {
			over = append(over, a)
			uids[a] = e.uid
		}
	}
	r.mu.Unlock()
	slices.SortFunc(over, netip.Addr.Compare)
	return r.several(over, func(a netip.Addr) error { return r.free(ctx, a, uids[a]) })
}

// several does something for each address, some at a time: a fence is up to 256 writes.
func (r *Room) several(all []netip.Addr, do func(netip.Addr) error) error {
	errs := make([]error, len(all))
	r.Together(len(all), func(i int) { errs[i] = do(all[i]) })
	return errors.Join(errs...)
}
