// Package heartbeat renews this member's Lease on the hub, and watches everybody's (SPEC T1, DESIGN §7). The own one, seen again, proves
// that the hub is seen as it is; a peer's, seen to change, that the peer lives and what it states of its records.
//
// Time is only ever compared with time of the same clock: when this agent saw a change, never what another's clock wrote.
package heartbeat

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Heartbeat is what this agent has seen of the Leases.
type Heartbeat struct {
	*kube.Env
	holder string

	mu       sync.Mutex
	duration time.Duration
	every    time.Duration     // from one own renewal to the next
	wrote    []renewal         // the own ones of late, one of which is to be seen again
	due      bool              // the last one failed
	said     *metav1.MicroTime // the latest renewal of this cluster's, by this process or one before
	first    time.Time         // when one was seen first
	began    chan struct{}     // closed then
	acquired metav1.MicroTime  // what the first one said
	unseen   time.Time         // since when the hub takes renewals and shows none
	taken    time.Time         // when it took the last one
	// predecessor held the Lease before; succeeded tells that it was this cluster's own and has ended.
	predecessor string
	succeeded   bool
	restored    bool                  // the hub was, since this agent began or as it did
	begun       bool                  // the hub has taken a renewal
	unkept      *coordinationv1.Lease // the last one, which could not be kept here
	seen        map[string]sight
	missing     map[string]absence // by record
	swept       time.Time          // when those that are long past were dropped last
	rival       rival              // nobody, mostly
	verdicts    map[string]verdict

	// Of verify alone.
	verified int64                 // the hub's connections when its caches were last found right
	look     time.Time             // when they are compared again
	interval time.Duration         // from the last comparison to then
	wrong    map[string]difference // at the last look
}

// absence is since when a record has been missed, and when it last was.
type absence struct{ since, last time.Time }

// renewal is one of this instance's own.
type renewal struct {
	said metav1.MicroTime
	at   time.Time // by a clock that nobody sets
}

// sight is the last change of a Lease that was seen.
type sight struct {
	renewed liveness.Renewal
	at      time.Time // by this agent's clock
	changed bool      // this very Lease was seen to change: somebody renews it
	states  string
}

// New returns a Heartbeat that has seen nothing. holder names this instance of the agent.
func New(env *kube.Env, holder string) *Heartbeat {
	return &Heartbeat{Env: env, holder: holder, duration: 40 * time.Second, every: 10 * time.Second, began: make(chan struct{}), seen: map[string]sight{}, missing: map[string]absence{}, verdicts: map[string]verdict{}}
}

// Controller is this room's entry in the list of controllers. Requests are the names of Leases; the ClusterSet asks for the own one.
func (h *Heartbeat) Controller() kube.Controller {
	return kube.Controller{
		Name:     "heartbeat",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: kube.Named(func(client.Object) types.NamespacedName {
				return types.NamespacedName{Name: h.Cluster}
			})},
			{Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: kube.Named(func(o client.Object) types.NamespacedName {
				return types.NamespacedName{Name: o.GetName()}
			})},
		},
		Reconciler: h,
	}
}

// Fresh tells whether the hub has shown the own renewal within the Lease's duration.
func (h *Heartbeat) Fresh() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.seen[h.Cluster]
	return ok && h.Now().Sub(s.at) < h.duration
}

// HubSeen is when that was last; zero before the first time.
func (h *Heartbeat) HubSeen() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[h.Cluster].at
}

// Shown is closed once the hub has shown an own renewal.
func (h *Heartbeat) Shown() <-chan struct{} { return h.began }

// Reconcile renews the own Lease where that is due, and takes note of every other.
func (h *Heartbeat) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := types.NamespacedName{Namespace: h.HubNamespace, Name: req.Name}
	shown, err := kube.Get[*coordinationv1.Lease](ctx, h.Hub(), name)
	if err != nil {
		return reconcile.Result{}, err
	}
	h.note(req.Name, shown)
	if req.Name != h.Cluster {
		return reconcile.Result{}, nil
	}
	if shown != nil {
		h.watchRival(shown)
	}
	if h.Rival() {
		return reconcile.Result{RequeueAfter: h.duration / 4}, nil
	}
	spec, _, err := kube.LeaseSpec(ctx, h.Hub(), h.HubNamespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	every := time.Duration(spec.RenewSeconds) * time.Second
	h.mu.Lock()
	h.duration, h.every = time.Duration(spec.DurationSeconds)*time.Second, every
	due := time.Duration(0)
	if n := len(h.wrote); n > 0 && !h.due {
		due = every - h.Now().Sub(h.wrote[n-1].at)
	}
	h.mu.Unlock()
	if due > 0 {
		return reconcile.Result{RequeueAfter: h.again(ctx, due)}, nil
	}
	return h.beat(ctx, name, spec, every)
}

// beat renews the own Lease, which is due.
func (h *Heartbeat) beat(ctx context.Context, name types.NamespacedName, spec hubv1alpha1.LeaseSpec, every time.Duration) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, max(every/2, time.Second)) // the next one is to be in time
	defer cancel()
	err := h.renew(ctx, name, spec)
	h.Answered(err)
	if err != nil {
		return reconcile.Result{}, err
	}
	h.suspect()
	return reconcile.Result{RequeueAfter: h.again(ctx, every)}, nil
}

// suspect asks for a new start where the hub takes renewals and does not show them: its watches are silently dead (DESIGN §7).
func (h *Heartbeat) suspect() {
	h.mu.Lock()
	if h.unseen.IsZero() {
		h.unseen = h.Now()
	} else if gap := h.Now().Sub(h.taken); gap >= 2*h.every {
		h.unseen = h.unseen.Add(gap) // in which it was away, and no more silent than that
	}
	h.taken = h.Now()
	silent := h.Now().Sub(h.unseen)
	if silent > h.duration {
		h.unseen = time.Time{} // what is opened now has as long again
	}
	h.mu.Unlock()
	if silent > h.duration {
		h.Relist("HubSilent", fmt.Sprintf("The hub takes this member's Lease renewals, and its watch has shown none for %v.", silent.Round(time.Second)))
	}
}

// note keeps when a change was seen. The own Lease counts only as this instance wrote it of late: a watch may be slower than renewals
// are, and one that is older shows the hub as it was then.
func (h *Heartbeat) note(cluster string, lease *coordinationv1.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lease == nil || lease.Spec.RenewTime == nil {
		return // what was seen grows old
	}
	renewed := liveness.RenewalOf(lease)
	was, ok := h.seen[cluster]
	// One that is older than what was seen came back from a backup, and says nothing of now.
	if ok && !renewed.After(was.renewed) || cluster == h.Cluster && !h.mine(*lease.Spec.RenewTime) {
		return
	}
	if cluster == h.Cluster {
		h.unseen = time.Time{}
		if h.first.IsZero() {
			h.first = h.Now()
			close(h.began)
		}
	}
	// A Lease that was made anew is a first sight, until its owner renews it: a backup of the hub's objects makes it so, too, and it states
	// then what was true of the backup.
	changed := ok && renewed.Created.Equal(was.renewed.Created)
	h.seen[cluster] = sight{renewed: renewed, at: h.Now(), changed: changed, states: lease.Annotations[liveness.AnnotationRecords]}
}

// late tells whether an own renewal is too old to show the hub as it is: half of a Lease's duration.
func (h *Heartbeat) late(r renewal) bool { return h.Now().Sub(r.at) >= h.duration/2 }

// mine tells whether this is an own renewal of late.
func (h *Heartbeat) mine(said metav1.MicroTime) bool {
	return slices.ContainsFunc(h.wrote, func(r renewal) bool { return r.said.Equal(&said) && !h.late(r) })
}

// remember keeps an own renewal.
func (h *Heartbeat) remember(said metav1.MicroTime) {
	h.wrote = append(slices.DeleteFunc(h.wrote, h.late), renewal{said, h.Now()})
	h.due = false
}

// renew writes the own Lease. It goes by the hub and not by the cache, which may be what is wrong; and a resourceVersion below one that
// was seen tells that the hub came back from a backup: its watches then wait for versions that will be used a second time.
func (h *Heartbeat) renew(ctx context.Context, name types.NamespacedName, spec hubv1alpha1.LeaseSpec) error {
	names, err := h.own(ctx)
	if err != nil {
		return err
	}
	lease, err := kube.Get[*coordinationv1.Lease](ctx, h.HubNow(), name)
	if err != nil {
		return err
	}
	write := h.Hub().Update
	if lease == nil {
		lease, write = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}, h.create
	}
	highest, err := h.highest(ctx)
	if err != nil {
		return err
	}
	if err := h.begin(ctx, lease); err != nil {
		return err
	}
	h.mu.Lock()
	now := next(h.Now(), lease.Spec.RenewTime, h.said)
	h.said = &now
	h.remember(now) // before it is written, since it may be seen before this returns
	if h.acquired.IsZero() {
		h.acquired = now
	}
	since := h.acquired
	h.mu.Unlock()
	said := votes.Said(lease)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &h.holder, &spec.DurationSeconds, &now
	lease.Spec.AcquireTime = &since
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, liveness.AnnotationRecords, liveness.Statement(names))
	h.say(lease, said)
	if err := write(ctx, lease); err != nil {
		h.mu.Lock()
		h.due = true
		h.mu.Unlock()
		return err
	}
	h.begun = true
	h.keep(ctx, lease)
	if order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, highest); err == nil && order <= 0 {
		h.mu.Lock()
		h.restored = true
		h.mu.Unlock()
		h.Relist("HubRestored", fmt.Sprintf("The hub wrote resourceVersion %s after %s was seen: it was restored from a backup. What is in effect stays; what owners publish again is followed.",
			lease.ResourceVersion, highest))
	}
	return nil
}

// next is what the next renewal says: the time, and always later than those before, whatever the clock does, and whatever the hub has lost of
// them: peers take one that is earlier for a backup's.
func next(now time.Time, before ...*metav1.MicroTime) metav1.MicroTime {
	said := metav1.NewMicroTime(now.Truncate(time.Microsecond))
	for _, last := range before {
		if last != nil && !last.Before(&said) {
			said = metav1.NewMicroTime(last.Add(time.Microsecond))
		}
	}
	return said
}

// highest is the highest resourceVersion of Leases that the hub's cache has seen; one that is written later must be above. Versions of
// other kinds may be of another etcd (kube-apiserver's --etcd-servers-overrides), and are not compared with a Lease's.
func (h *Heartbeat) highest(ctx context.Context) (string, error) {
	var leases coordinationv1.LeaseList
	if err := h.Hub().List(ctx, &leases, client.InNamespace(h.HubNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	highest := "1"
	for i := range leases.Items {
		version := leases.Items[i].ResourceVersion
		if order, err := resourceversion.CompareResourceVersion(version, highest); err == nil && order > 0 {
			highest = version
		}
	}
	return highest, nil
}

func (h *Heartbeat) create(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return h.Hub().Create(ctx, o)
}
