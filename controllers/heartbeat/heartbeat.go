// Package heartbeat renews this member's Lease on the hub (SPEC T1, DESIGN §7). If a watch shows this agent's own
// renewal, the caches show the hub's current state. The Lease also carries what other controllers
// state in it: which members this one does not reach, where its agent answers, and which withdrawals it has applied.
// A change of the first is stated at once, because others decide by it (SPEC F5).
//
// It measures time on this agent's clock only, from when it observed a renewal. It does not look at the Leases of other
// members: sources does.
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

type Config struct {
	kube.Member
	Holder string               // names this process in the Lease
	HubNow func() client.Reader // reads past the hub's caches
	// Complete sets what other controllers state in a renewal. It reads caches only.
	Complete func(context.Context, *coordinationv1.Lease) error
	// Answered is called with the hub's answer to each renewal.
	Answered func(error)
	// ListAgain ends the hub's watches, and lists follow.
	ListAgain func()
}

// Heartbeat is the state of this member's Lease, as this agent has renewed and observed it.
type Heartbeat struct {
	Config

	// Only Reconcile uses these.
	last  *coordinationv1.Lease // this process's latest renewal, as the hub returned it
	stale bool                  // the Lease on the hub differs from last

	mu       sync.Mutex
	duration time.Duration // leaseDurationSeconds of the ClusterSet
	interval time.Duration // time between two renewals
	// lastAttempt is when the Lease was last renewed, or found to be another agent's. After any other failure it is
	// zero: retry at once.
	lastAttempt   time.Time
	retryAfter    time.Duration     // from lastAttempt, in place of interval if it is set
	written       []renewal         // this process's recent renewals
	lastRenewTime *metav1.MicroTime // of this cluster, by this process or an earlier one
	seen          liveness.Renewal  // the last renewal by this process that the hub has shown
	seenAt        time.Time         // when, by this agent's clock; zero before the first
	unseenSince   time.Time         // since then the hub has accepted renewals and shown none
	silentLists   int               // in a row, because of that
	contested     bool              // another process holds the Lease
	notStored     error             // why the latest renewal is not stored in this cluster
	foreign       foreign
	foundLast     bool // the hub had this cluster's last renewal when this process started
	// lostBefore: all that the hub may have lost was written before; zero if it lost nothing. Lease hub-renewed has it
	// for the next process.
	lostBefore time.Time
	// writtenBefore: an earlier process has written nothing after it. It is set when this process starts or finds the
	// hub restored, not by its own renewals: its revisions would run ahead of its clock, and those of the next process
	// could be lower.
	writtenBefore time.Time
}

// New returns a Heartbeat that has observed no Lease.
func New(c Config) *Heartbeat {
	return &Heartbeat{Config: c, duration: 40 * time.Second, interval: 10 * time.Second}
}

// Controller returns the controller that renews the Lease. Its only request is the name of this member's Lease; a
// change of the ClusterSet requests it, too.
func (h *Heartbeat) Controller() kube.Controller {
	own := types.NamespacedName{Name: h.Cluster}
	return kube.Controller{
		Name:     "heartbeat",
		NeedsHub: true,
		Watches: []kube.Watch{
			{
				Side:     kube.Hub,
				Object:   &hubv1alpha1.ClusterSet{},
				Requests: kube.Named(func(client.Object) types.NamespacedName { return own }),
			},
			{
				Side:   kube.Hub,
				Object: &coordinationv1.Lease{},
				Requests: kube.Named(func(o client.Object) (n types.NamespacedName) {
					if o.GetName() == h.Cluster {
						n = own
					}
					return n
				}),
			},
			{
				Side: kube.Local, Object: &coordinationv1.Lease{}, Alike: kube.SameState,
				Requests: kube.Named(func(client.Object) types.NamespacedName { return own }),
			},
		},
		Reconciler: h,
	}
}

// Reconcile observes this member's Lease, and renews it when that is due.
func (h *Heartbeat) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	name := types.NamespacedName{Namespace: h.HubNamespace, Name: h.Cluster}
	lease, err := kube.Get[*coordinationv1.Lease](ctx, h.Hub(), name)
	if err != nil {
		return reconcile.Result{}, err
	}
	h.observe(lease)
	set, _, err := kube.SetOf(ctx, h.Hub(), h.HubNamespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	spec := set.Spec.Lease
	due := h.due(spec)
	if due > 0 && h.isUrgent(ctx) {
		due -= max(0, h.interval-minPause)
	}
	if due > 0 {
		return reconcile.Result{RequeueAfter: due}, nil
	}
	err = h.tryRenew(ctx, name, spec)
	if err != nil && !errors.Is(err, errForeign) {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: h.due(spec)}, nil
}

// minPause is the least time before an urgent renewal.
const minPause = time.Second

// isUrgent returns whether the hub does not have yet which members this one does not reach.
func (h *Heartbeat) isUrgent(ctx context.Context) bool {
	if h.last == nil || h.Contested() {
		return false
	}
	next := h.last.DeepCopy()
	if err := h.Complete(ctx, next); err != nil {
		return false // the next renewal reports it
	}
	was, _ := reach.ReadUnreachable(h.last) // both are what WriteUnreachable wrote
	is, _ := reach.ReadUnreachable(next)
	return !maps.EqualFunc(was, is, func(_, _ time.Time) bool { return true })
}

// due applies the ClusterSet's spec and returns the time until the next renewal.
func (h *Heartbeat) due(spec hubv1alpha1.LeaseSpec) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.duration = time.Duration(spec.DurationSeconds) * time.Second
	h.interval = time.Duration(spec.RenewSeconds) * time.Second
	if h.lastAttempt.IsZero() {
		return 0
	}
	pause := h.interval
	if h.retryAfter > 0 {
		pause = h.retryAfter
	}
	return pause - h.Now().Sub(h.lastAttempt)
}

// maxRenewal is how long a renewal may take. It is less than a manager that stops waits for its controllers.
const maxRenewal = 15 * time.Second

// tryRenew renews this member's Lease, and repeats a renewal that a changed Lease has caused to fail. It returns
// errForeign while another agent holds the Lease. An agent that stops ends it first: a successor would take a renewal
// that is on the hub and not stored here for another agent's.
func (h *Heartbeat) tryRenew(ctx context.Context, name types.NamespacedName, spec hubv1alpha1.LeaseSpec) error {
	limit := min(max(h.interval/2, time.Second), maxRenewal) // the next renewal must be in time
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err := h.renew(ctx, name, spec)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		h.stale = true
		err = h.renew(ctx, name, spec)
	}
	h.mu.Lock()
	h.lastAttempt, h.retryAfter = h.Now(), 0
	switch {
	case errors.Is(err, errForeign):
		h.retryAfter = h.interval / 4 // to observe whether its holder renews it
	case err != nil:
		h.lastAttempt, h.unseenSince = time.Time{}, time.Time{}
	}
	h.mu.Unlock()
	switch {
	case errors.Is(err, errForeign):
		h.Answered(nil) // it showed the Lease
	case !errors.Is(err, errHere):
		h.Answered(err)
	}
	if err == nil {
		h.checkWatches()
	}
	return err
}

// renew writes this member's Lease. It has the hub listed again if that was restored to before the last renewal.
func (h *Heartbeat) renew(ctx context.Context, name types.NamespacedName, spec hubv1alpha1.LeaseSpec) error {
	previous, err := h.last, error(nil)
	if previous == nil || h.stale {
		if previous, err = h.leaseToRenew(ctx, name); err != nil {
			return err
		}
	}
	lease := previous.DeepCopy()
	if ptr.Deref(lease.Spec.HolderIdentity, "") != h.Holder { // else it shows that the holder was asked
		delete(lease.Annotations, clusterset.AnnotationAskedBy)
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &h.Holder, &spec.DurationSeconds
	lease.Spec.RenewTime = new(h.nextRenewTime(lease.Spec.RenewTime))
	if err := h.Complete(ctx, lease); err != nil {
		return fmt.Errorf("%w: %w", errHere, err)
	}
	if err := kube.Put(ctx, h.Hub(), lease); err != nil {
		return err
	}
	h.mu.Lock()
	restored := h.last != nil && wentBack(h.last, previous, lease)
	h.contested, h.foreign = false, foreign{}
	if restored {
		h.writtenBefore = lastWrite(h.last.Spec.RenewTime, h.interval)
		h.lostBefore = h.writtenBefore
	}
	h.mu.Unlock()
	h.last, h.stale = lease, false
	h.storeRenewal(ctx, lease)
	if restored {
		h.Events.Event(kube.System(), kube.Warning, "HubRestored",
			"The hub lost this member's last Lease renewal: it was restored from a backup. "+
				"Records that are in effect in this cluster stay until their owners publish again.")
		h.ListAgain()
	}
	return nil
}

// wentBack returns whether the hub has lost the last renewal: it had an earlier one, or assigned a
// lower resourceVersion. Only versions of Leases are comparable, because other kinds may be in
// another etcd (--etcd-servers-overrides of kube-apiserver).
func wentBack(last, previous, written *coordinationv1.Lease) bool {
	order, err := resourceversion.CompareResourceVersion(written.ResourceVersion, last.ResourceVersion)
	return err == nil && order <= 0 ||
		previous.ResourceVersion != "" && previous.Spec.RenewTime.Before(last.Spec.RenewTime)
}

// nextRenewTime returns the renewTime of the next renewal. It is always later than the last one: other members treat an
// earlier one as restored from a backup. It is recorded before the write, because the watch may show the renewal before
// the write returns.
func (h *Heartbeat) nextRenewTime(onHub *metav1.MicroTime) metav1.MicroTime {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := laterThan(h.Now(), onHub, h.lastRenewTime)
	h.lastRenewTime = &now
	h.written = append(h.recent(), renewal{now, h.Now()})
	return now
}

// laterThan returns now, or the first microsecond after all of before if that is later.
func laterThan(now time.Time, before ...*metav1.MicroTime) metav1.MicroTime {
	renewTime := metav1.NewMicroTime(now.Truncate(time.Microsecond))
	for _, last := range before {
		if last != nil && !last.Before(&renewTime) {
			renewTime = metav1.NewMicroTime(last.Add(time.Microsecond))
		}
	}
	return renewTime
}

// checkWatches lists the hub again if it accepts renewals and its watches do not show them (DESIGN §7). The limit
// doubles each time: if the hub is only overloaded, lists of all members make it worse.
func (h *Heartbeat) checkWatches() {
	h.mu.Lock()
	if h.unseenSince.IsZero() {
		h.unseenSince = h.Now()
	}
	silent := h.Now().Sub(h.unseenSince)
	again := silent > h.duration<<min(h.silentLists, 4)
	if again {
		h.silentLists++
		h.unseenSince = time.Time{}
	}
	h.mu.Unlock()
	if again {
		h.Events.Event(kube.System(), kube.Warning, "HubSilent", fmt.Sprintf("The hub accepts this member's Lease "+
			"renewals, but its watch has shown none for %v. The hub is listed again.", silent.Round(time.Second)))
		h.ListAgain()
	}
}
