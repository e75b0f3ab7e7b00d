// Package heartbeat renews this member's Lease on the hub, and watches the Leases of all members (SPEC T1, DESIGN §7).
// The own renewal, seen again, proves that the caches show the hub as it is now. A change of another Lease proves that
// its member is live, and states which records that member has.
//
// It compares times of one clock only: when this agent saw a change, never what the clock of another cluster wrote.
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Config is what a Heartbeat needs. Local and Hub read caches; LocalNow and HubNow read past them.
type Config struct {
	Cluster      string // this member's cluster ID
	HubNamespace string
	Holder       string // names this process in the Lease

	Local    client.Client
	LocalNow client.Reader
	Hub      func() client.Client
	HubNow   func() client.Reader

	// Votes returns what this member cannot reach of other members' endpoints. known is false until that has been
	// observed.
	Votes func() (text string, known bool)
	// Answered is called with the hub's answer to each renewal.
	Answered func(error)
	// Relist is called if the hub was restored or its watches are dead: all of it must be listed again.
	Relist func(reason, message string)
	Events kube.Events
	Now    func() time.Time
}

// Heartbeat holds what this agent has seen of the Leases.
type Heartbeat struct {
	Config

	// Of Reconcile alone.
	last  *coordinationv1.Lease // this process's latest renewal, as the hub returned it
	stale bool                  // the hub no longer has it
	kept  bool                  // it is stored in this cluster

	mu        sync.Mutex
	duration  time.Duration
	every     time.Duration     // between two own renewals
	tried     time.Time         // when a renewal was last tried without an error
	wait      time.Duration     // from then to the next one, if that is not every
	wrote     []renewal         // own renewals of late, one of which the hub must show
	said      *metav1.MicroTime // the latest renewal of this cluster, by this process or an earlier one
	acquired  metav1.MicroTime  // what the first renewal of this process said
	shown     bool              // the hub has shown an own renewal
	unseen    time.Time         // since when the hub has taken renewals and shown none
	silences  int               // relists in a row because of that
	contested bool              // another process holds the Lease
	foreign   foreign
	lapsed    bool // the hub is not as this cluster's last renewal left it, or was not when this process began

	seen     map[string]observation // by cluster
	missing  map[string]absence     // by record
	swept    time.Time              // when old entries of missing were last dropped
	complete map[string]statement   // by cluster
}

// New returns a Heartbeat that has seen nothing.
func New(c Config) *Heartbeat {
	return &Heartbeat{
		Config: c, duration: 40 * time.Second, every: 10 * time.Second, lapsed: true, kept: true,
		seen: map[string]observation{}, missing: map[string]absence{}, complete: map[string]statement{},
	}
}

// Controller returns the controller that reconciles Leases by name. A ClusterSet asks for the own one.
func (h *Heartbeat) Controller() kube.Controller {
	return kube.Controller{
		Name:     "heartbeat",
		NeedsHub: true,
		Watches: []kube.Watch{
			{
				Side:   kube.Hub,
				Object: &hubv1alpha1.ClusterSet{},
				Requests: kube.Named(func(client.Object) types.NamespacedName {
					return types.NamespacedName{Name: h.Cluster}
				}),
			},
			{
				Side:   kube.Hub,
				Object: &coordinationv1.Lease{},
				Requests: kube.Named(func(o client.Object) types.NamespacedName {
					return types.NamespacedName{Name: o.GetName()}
				}),
			},
		},
		Reconciler: h,
	}
}

// Reconcile observes a Lease, and renews the own one when that is due.
func (h *Heartbeat) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := types.NamespacedName{Namespace: h.HubNamespace, Name: req.Name}
	lease, err := kube.Get[*coordinationv1.Lease](ctx, h.Hub(), name)
	if err != nil {
		return reconcile.Result{}, err
	}
	h.observe(req.Name, lease)
	if req.Name != h.Cluster {
		return reconcile.Result{}, nil
	}
	spec, _, err := kube.LeaseSpec(ctx, h.Hub(), h.HubNamespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if due := h.due(spec); due > 0 {
		return reconcile.Result{RequeueAfter: due}, nil
	}
	err = h.beat(ctx, name, spec)
	if err != nil && !errors.Is(err, errForeign) {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: h.due(spec)}, nil
}

// due returns the time until the next renewal, by the ClusterSet's spec.
func (h *Heartbeat) due(spec hubv1alpha1.LeaseSpec) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.duration = time.Duration(spec.DurationSeconds) * time.Second
	h.every = time.Duration(spec.RenewSeconds) * time.Second
	if h.tried.IsZero() {
		return 0
	}
	wait := h.every
	if h.wait > 0 {
		wait = h.wait
	}
	return wait - h.Now().Sub(h.tried)
}

// beat tries to renew the own Lease. It returns errForeign while another agent holds it.
func (h *Heartbeat) beat(ctx context.Context, name types.NamespacedName, spec hubv1alpha1.LeaseSpec) error {
	ctx, cancel := context.WithTimeout(ctx, max(h.every/2, time.Second)) // the next renewal must be in time
	defer cancel()
	err := h.renew(ctx, name, spec)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		h.stale = true
		err = h.renew(ctx, name, spec)
	}
	h.mu.Lock()
	h.tried, h.wait = h.Now(), 0
	switch {
	case errors.Is(err, errForeign):
		h.wait = h.every / 4 // to see whether it is renewed
	case err != nil:
		h.tried, h.unseen = time.Time{}, time.Time{}
	}
	h.mu.Unlock()
	if errors.Is(err, errForeign) {
		h.reportForeign(ctx)
		return err
	}
	h.Answered(err)
	if err == nil {
		h.checkSilence()
	}
	return err
}

// renew writes the own Lease in place of the last renewal.
func (h *Heartbeat) renew(ctx context.Context, name types.NamespacedName, spec hubv1alpha1.LeaseSpec) error {
	names, err := h.own(ctx)
	if err != nil {
		return err
	}
	previous := h.last
	if previous == nil || h.stale {
		if previous, err = h.current(ctx, name); err != nil {
			return err
		}
	}
	lease := previous.DeepCopy()
	vote := votes.Read(lease)
	if text, known := h.Votes(); known {
		vote = text
	}
	now, acquired := h.remember(lease.Spec.RenewTime)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &h.Holder, &spec.DurationSeconds
	lease.Spec.RenewTime, lease.Spec.AcquireTime = &now, &acquired
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, liveness.AnnotationRecords, liveness.Statement(names))
	votes.Write(lease, vote)
	if lease.ResourceVersion == "" {
		err = h.Hub().Create(ctx, lease)
	} else {
		err = h.Hub().Update(ctx, lease)
	}
	if err != nil {
		return err
	}
	restored := h.last != nil && wentBack(h.last, previous, lease)
	h.last, h.stale = lease, false
	h.mu.Lock()
	h.contested, h.foreign = false, foreign{}
	h.lapsed = h.lapsed || restored
	h.mu.Unlock()
	h.keep(ctx, lease)
	if restored {
		h.Relist(
			"HubRestored",
			"The hub went back to before this member's last renewal: it was restored from a backup. "+
				"What is in effect stays; what owners publish again is followed.",
		)
	}
	return nil
}

// wentBack returns whether the hub has lost the last renewal: it had an earlier one, or wrote a lower resourceVersion
// now. Versions of other kinds may be of another etcd (kube-apiserver's --etcd-servers-overrides), and are not
// compared.
func wentBack(last, previous, written *coordinationv1.Lease) bool {
	order, err := resourceversion.CompareResourceVersion(written.ResourceVersion, last.ResourceVersion)
	return err == nil && order <= 0 ||
		previous.ResourceVersion != "" && previous.Spec.RenewTime.Before(last.Spec.RenewTime)
}

// remember returns what the next renewal says and what the first one said. Peers take a renewal that is not later than
// the one before for one from a backup, so it is later whatever the clock does and whatever the hub has lost. It is
// remembered before it is written, since it may be seen before the write returns.
func (h *Heartbeat) remember(onHub *metav1.MicroTime) (now, acquired metav1.MicroTime) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now = next(h.Now(), onHub, h.said)
	h.said = &now
	h.addWritten(now)
	if h.acquired.IsZero() {
		h.acquired = now
	}
	return now, h.acquired
}

func next(now time.Time, before ...*metav1.MicroTime) metav1.MicroTime {
	said := metav1.NewMicroTime(now.Truncate(time.Microsecond))
	for _, last := range before {
		if last != nil && !last.Before(&said) {
			said = metav1.NewMicroTime(last.Add(time.Microsecond))
		}
	}
	return said
}

// checkSilence asks for a new link if the hub takes renewals and does not show them: its watches are dead (DESIGN §7).
// It waits longer each time, since a hub that is merely overloaded would get all lists at once.
func (h *Heartbeat) checkSilence() {
	h.mu.Lock()
	if h.unseen.IsZero() {
		h.unseen = h.Now()
	}
	silent := h.Now().Sub(h.unseen)
	dead := silent > h.duration<<min(h.silences, 4)
	if dead {
		h.silences++
		h.unseen = time.Time{}
	}
	h.mu.Unlock()
	if dead {
		h.Relist("HubSilent", fmt.Sprintf(
			"The hub takes this member's Lease renewals, and its watch has shown none for %v.",
			silent.Round(time.Second),
		))
	}
}
