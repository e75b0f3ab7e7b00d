package clustersetip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

const (
	// patience is how long a VIP is asked for again: an API server frees the address of a deleted Service, and gives out those of a new
	// ServiceCIDR, only after its watches have shown it.
	patience = 10 * time.Second
	// building is how long a request waits for a range that is being made, before it is told that there is no room, or (preferred) gets an
	// address of another range for good.
	building = 30 * time.Second
	// tries is how many fresh addresses may turn out to be taken before that counts as an error.
	tries = 5
	// elsewhere is how long an address that the API server refused is not asked for again; by then the watch has shown who has it.
	elsewhere = 30 * time.Second
	// freeing is how long an API server whose IPAddresses cannot be read is left alone with what the Service had before: it frees the addresses
	// of a Service one by one, after the event of its end, and asked for both in between it takes one and keeps it from the next request.
	freeing = time.Second
	// crowded is how long a family that the API server had no address of is not asked for together with others: it would refuse all.
	crowded = 30 * time.Second
)

// wait is what is known of a request that was not answered for good.
type wait struct {
	since, asked time.Time
	fails        int
	lost         map[netip.Addr]error // previous addresses that cannot be had again, and why
}

// patient tells whether a request may wait on, as of when it was first put off.
func (r *Room) patient(service types.NamespacedName, limit time.Duration) bool {
	w := r.waits[service]
	if w == nil || r.Now().Sub(w.asked) > patrol { // another request than the one that was put off
		w = &wait{since: r.Now(), lost: map[netip.Addr]error{}}
		r.waits[service] = w
	}
	w.asked = r.Now()
	return r.Now().Sub(w.since) < limit
}

// Reserve is kube.VIPs'.
func (r *Room) Reserve(ctx context.Context, q kube.VIPRequest) (kube.VIPGrant, error) {
	if err := r.bar(ctx, q); err != nil {
		return kube.VIPGrant{}, err
	}
	r.mu.Lock()
	fences, grant, err := r.choose(ctx, q)
	r.mu.Unlock()
	if err != nil {
		return grant, err
	}
	// At once: until the Service is made, each may be lost to an ordinary one. If somebody has it by now, the API server will say so.
	err = r.several(slices.SortedFunc(maps.Keys(fences), netip.Addr.Compare), func(a netip.Addr) error { return r.free(ctx, a, fences[a]) })
	if err != nil {
		return kube.VIPGrant{}, errors.Join(err, r.Settle(ctx, q, grant, nil, err))
	}
	return grant, nil
}

// choose decides, and notes what it gives; fences are the reservations of ours that are in the way.
func (r *Room) choose(ctx context.Context, q kube.VIPRequest) (fences map[netip.Addr]types.UID, grant kube.VIPGrant, err error) {
	delete(r.over, q.Service)
	if err := r.load(ctx); err != nil {
		return nil, grant, err
	}
	hub, err := r.hubView(ctx)
	if err != nil {
		return nil, grant, err
	}
	if hub.mode != r.view.mode { // just changed, or just seen: the ranges are being looked at
		return nil, grant, kube.ErrVIPBusy
	}
	if r.leaving(q) && r.patient(q.Service, patience) {
		return nil, grant, kube.ErrVIPBusy
	}
	if r.view.unsupported != nil && len(q.Previous) > 0 && q.Try != nil && r.patient(q.Service, freeing) {
		return nil, grant, kube.ErrVIPBusy
	}
	grant.Asked = r.Now()
	reserve, refused := r.assign(q)
	var losses []string
	left := leave(reserve, r.full, r.Now())
	for _, f := range q.Families {
		i := slices.IndexFunc(reserve, func(s ipam.Reservation) bool { return s.Family == f })
		why, later := r.unanswered(q, f, reserve, refused, i)
		if why == nil && slices.Contains(left, f) {
			why = fmt.Errorf("%w: the API server had no address of %s a moment ago", ipam.ErrFull, f)
		}
		if later {
			return nil, kube.VIPGrant{}, kube.ErrVIPBusy
		}
		if why != nil {
			r.count.failed(r.view, []corev1.IPFamily{f}, nil, why)
			grant.Refused = errors.Join(grant.Refused, why)
			continue
		}
		grant.Families = append(grant.Families, f)
		if loss := r.loss(q, &reserve[i]); loss != "" {
			losses = append(losses, loss)
		}
		if a := reserve[i].Address; a.IsValid() {
			grant.Addresses = append(grant.Addresses, a)
		}
	}
	if len(grant.Families) == 0 {
		return nil, kube.VIPGrant{}, grant.Refused
	}
	r.overflow(grant.Families, reserve)
	for _, loss := range losses {
		r.Events.Event(q.Import, kube.Warning, "VIPLost", loss)
	}
	fences = map[netip.Addr]types.UID{}
	for _, a := range grant.Addresses {
		r.change(a, func() { r.gifts[a] = gift{to: q.Service, since: r.Now(), before: r.gifts[a].to == q.Service} })
		r.view.spend(a)
		if e := r.view.addresses[a]; e.fence {
			fences[a] = e.uid
		}
	}
	return fences, grant, nil
}

// leave are the families that are not asked for now: the API server is to choose their addresses, and had none a moment ago. Where that is so
// of all, the one that was asked for longest ago is asked for again, alone.
func leave(reserve []ipam.Reservation, full map[corev1.IPFamily]time.Time, now time.Time) (left []corev1.IPFamily) {
	for _, s := range reserve {
		if at, was := full[s.Family]; was && !s.Address.IsValid() && now.Sub(at) < crowded {
			left = append(left, s.Family)
		}
	}
	if len(left) == 0 || len(left) < len(reserve) {
		return left
	}
	slices.SortStableFunc(left, func(a, b corev1.IPFamily) int { return full[a].Compare(full[b]) })
	return left[1:]
}

// overflow tells, once while it lasts, that VIPs of a family come from the cluster's own ranges, since those for VIPs have no room.
func (r *Room) overflow(families []corev1.IPFamily, reserve []ipam.Reservation) {
	for _, s := range reserve {
		if s.Overflow != nil && slices.Contains(families, s.Family) && !r.overflowing[s.Family] {
			r.overflowing[s.Family] = true
			r.Events.Event(kube.System(), kube.Warning, "VIPRangeOverflow", fmt.Sprintf("New VIPs of %s come from the cluster's own ranges: %v. They stay there.", s.Family, r.because(s.Family, s.Overflow)))
		}
	}
}

// leaving tells whether an IPAddress of the Service is there to be seen, though it has no address of that family: its last life's, which the API
// server is about to free. Whoever asks in between may lose it: before Kubernetes 1.34 the allocator's bitmap is free before its IPAddress is,
// and what is then refused by the latter stays taken in the former.
func (r *Room) leaving(q kube.VIPRequest) bool {
	return slices.ContainsFunc(r.view.alloc.Owned(q.Service), func(a netip.Addr) bool {
		e := r.view.addresses[a]
		return slices.Contains(q.Families, familyOf(a)) && e.uid != "" && !e.fence && !e.held.Foreign && e.held.Owner == q.Service
	})
}

// assign asks the allocator. What the caches still show of the Service's own is its past: it has none.
func (r *Room) assign(q kube.VIPRequest) ([]ipam.Reservation, []ipam.Refusal) {
	wanted := ipam.Wanted{Owner: q.Service, Families: q.Families, Since: q.Import.CreationTimestamp.Time}
	var past []ipam.Held
	previous := slices.Clone(q.Previous)
	for _, a := range r.view.alloc.Owned(q.Service) { // of a Service that is gone, or left of an attempt
		if !slices.Contains(previous, a) {
			previous = append(previous, a)
		}
	}
	for _, a := range previous {
		if w := r.waits[q.Service]; w == nil || w.lost[a] == nil {
			wanted.Previous = append(wanted.Previous, a)
		}
		for _, h := range r.claims(a) {
			if h.Owner == q.Service && !h.Foreign {
				past = append(past, h)
				r.view.alloc.Drop(h)
			}
		}
	}
	defer func() {
		for _, h := range past {
			r.view.alloc.Hold(h)
		}
	}()
	return r.view.alloc.Assign([]ipam.Wanted{wanted}, r.Now())
}

// unanswered tells why a family gets nothing, or that a later request may get something better. i is its reservation.
func (r *Room) unanswered(q kube.VIPRequest, f corev1.IPFamily, reserve []ipam.Reservation, refused []ipam.Refusal, i int) (why error, later bool) {
	if i < 0 {
		j := slices.IndexFunc(refused, func(s ipam.Refusal) bool { return s.Family == f })
		if j < 0 {
			return nil, true // the caches still show it in use by the Service, which is not there
		}
		if r.soon(f) && r.patient(q.Service, building) {
			return nil, true
		}
		return r.because(f, refused[j].Err), false
	}
	s := reserve[i]
	switch {
	case s.Lost != nil && r.patient(q.Service, patience):
		return nil, true
	case s.Address.IsValid() && s.Overflow == nil || r.view.mode == ipam.ModeShared:
		return nil, false
	case r.view.mode == ipam.ModeExclusive: // without ranges to be seen, which is judged as shared
		return r.because(f, ipam.ErrMismatchedNetwork), false
	}
	return nil, r.soon(f) && r.patient(q.Service, building)
}

// soon tells whether there may be more room of a family in a moment: a range is being made, or the mode is new and the hub is granting the
// first block.
func (r *Room) soon(f corev1.IPFamily) bool {
	if r.view.unsupported != nil || r.refused[f] != nil {
		return false
	}
	coming := !r.last.seen || r.last.pools[f]
	unready := slices.ContainsFunc(r.view.ranges, func(one ipam.Range) bool {
		return one.Use != ipam.Ordinary && (one.State == ipam.NotReady || one.State == ipam.Unfenced) && familyOf(one.Prefix.Addr()) == f
	})
	return r.growing[f] || unready || coming && r.view.size[f] == 0 && r.Now().Sub(r.view.since) < building
}

// because adds to a refusal what keeps ranges of the family from being made.
func (r *Room) because(f corev1.IPFamily, err error) error {
	switch {
	case r.view.unsupported != nil:
		return fmt.Errorf("%w: mode %s needs ranges, and this cluster has none to be seen: %w", err, r.view.mode, r.view.unsupported)
	case r.refused[f] != nil:
		return fmt.Errorf("%w; this cluster's API server refuses ranges for VIPs: %w", err, r.refused[f])
	}
	return err
}

// loss says that an import gets another address than it had; "" if it does not.
func (r *Room) loss(q kube.VIPRequest, got *ipam.Reservation) string {
	i := slices.IndexFunc(q.Previous, func(a netip.Addr) bool { return familyOf(a) == got.Family })
	if i < 0 || q.Previous[i] == got.Address {
		return ""
	}
	why := got.Lost
	if w := r.waits[q.Service]; w != nil && w.lost[q.Previous[i]] != nil {
		why = w.lost[q.Previous[i]]
	}
	return fmt.Sprintf("%s cannot be had again: %v. The import gets another address.", q.Previous[i], why)
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
