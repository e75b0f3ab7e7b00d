// Package sources decides for each other member whether it is live or expired (SPEC T1, T3, F4, S3; DESIGN §7): by
// whether its agent or its endpoints answer or, if its agent never did, by its Lease on the hub. It stores the state in
// one Lease per source cluster in clusterset-system. serviceimport reads these Leases: one small write is enough,
// however many Services the member exports. This package does not change endpoints itself.
package sources

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Config is what a Reconciler needs.
type Config struct {
	kube.Member
	// HubSeen returns when the hub last showed a renewal of this member; zero before the first.
	HubSeen func() time.Time

	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Home string // address of this cluster's API server; "" if unknown
}

// Reconciler observes other members. Requests are cluster IDs, and round. A request for this member checks whether
// most others are silent together.
type Reconciler struct {
	Config

	mu           sync.Mutex
	observations map[string]liveness.Observation // by cluster ID
	silence      liveness.CommonSilence
	stored       []coordinationv1.Lease      // this member's own for the others, as last listed
	renewals     map[string]liveness.Renewal // by cluster ID, as the hub last showed them
	listed       time.Time                   // when both were
	held         bool
	members      map[string]*member // by cluster ID
	rounded      time.Time          // begin of the last round
	rounds       int
	lastFailure  string // of a round to store what it saw, as logged
}

// New returns a Reconciler that has observed nothing.
func New(c Config) *Reconciler {
	return &Reconciler{Config: c, observations: map[string]liveness.Observation{}, members: map[string]*member{}}
}

// Held reports whether most other members are silent together, so that none of them expires.
func (r *Reconciler) Held() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

func (r *Reconciler) Controller() kube.Controller {
	exporter := kube.Named(func(record client.Object) (n types.NamespacedName) {
		if id := kube.Origin(record).ClusterID; id != r.Cluster {
			n.Name = id
		}
		return n
	})
	return kube.Controller{
		Name:     "sources",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: r.requestsForLease},
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: r.requestsForAll},
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: exporter},
		},
		Reconciler: r,
	}
}

// requestsForLease returns the member that owns a Lease on the hub. A renewal of this member's own Lease requests all:
// it proves that the Leases of the hub are current. The hub's namespace may hold Leases that belong to no member.
func (r *Reconciler) requestsForLease(ctx context.Context, lease client.Object) []reconcile.Request {
	switch {
	case lease.GetName() == r.Cluster:
		return r.requestsForAll(ctx, lease)
	case clusterset.CheckID(lease.GetName()) != nil:
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: lease.GetName()}}}
}

// requestsForAll returns every member with a stored Lease, a round, which repeats itself from then on, and this member.
// Without other members, only the request for this one ends a common silence.
func (r *Reconciler) requestsForAll(ctx context.Context, _ client.Object) []reconcile.Request {
	source := func(lease client.Object) types.NamespacedName {
		return types.NamespacedName{Name: lease.GetLabels()[liveness.LabelSource]}
	}
	others := kube.Requests(ctx, r.Local, &coordinationv1.LeaseList{}, source,
		client.InNamespace(kube.SystemNamespace), client.HasLabels{liveness.LabelSource})
	return append(kube.Request(types.NamespacedName{Name: r.Cluster}),
		append(others, reconcile.Request{NamespacedName: round})...)
}

// Reconcile observes one member, or runs a round.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.NamespacedName == round {
		return r.askAll(ctx)
	}
	return r.decide(ctx, req.Name)
}

// decide decides whether a member is live and stores that. Both its own requests and rounds call it, also at the same
// time: of two that store the same version of its Lease, one fails and is repeated.
func (r *Reconciler) decide(ctx context.Context, cluster string) (reconcile.Result, error) {
	onHub, err := kube.Get[*coordinationv1.Lease](
		ctx, r.Hub(), types.NamespacedName{Namespace: r.HubNamespace, Name: cluster},
	)
	if err != nil {
		return reconcile.Result{}, err
	}
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: liveness.LeaseName(cluster)}
	stored, err := kube.Get[*coordinationv1.Lease](ctx, r.Local, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !kube.IsAgents(onHub) && cluster != r.Cluster {
		exports, err := r.exports(ctx, cluster)
		if err != nil {
			return reconcile.Result{}, err
		}
		if !exports {
			return reconcile.Result{}, r.forget(ctx, cluster, stored)
		}
	}
	set, found, err := kube.SetOf(ctx, r.Hub(), r.HubNamespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	spec := set.Spec.Lease
	limits, m, ownRenewal := limitsOf(spec), r.known(cluster, stored), r.HubSeen()
	addresses, was := r.addresses(onHub, stored), liveness.StateOf(stored).Expired
	// Without a ClusterSet or an own renewal, no Lease proves anything. But a member that answers again is live.
	if !found || ownRenewal.IsZero() {
		expired, _ := m.IsExpired(true, was, r.Now(), limits.Expiry)
		if was && !expired && (m.State == reach.Answers || m.State == reach.Serving) {
			err = r.save(ctx, cluster, stored, load(stored), m, addresses, liveness.State{}, limits)
		}
		return reconcile.Result{RequeueAfter: time.Second}, err
	}
	hub := limits.View(ownRenewal, r.Now())
	renewal := liveness.RenewalOf(onHub)
	until, err := r.observedUntil(ctx, cluster, renewal, spec, hub, limits)
	if err != nil || cluster == r.Cluster {
		return reconcile.Result{}, err
	}
	o := r.observe(cluster, stored, hub, until, renewal, limits)
	wait := again(o, load(stored), hub, limits)
	var state liveness.State
	var in time.Duration
	if state.Expired, in = m.IsExpired(o.Expired, was, r.Now(), limits.Expiry); in > 0 {
		wait = min(wait, in)
	}
	if state.Expired {
		state.OnExpiry = spec.OnExpiry
	}
	return reconcile.Result{RequeueAfter: wait}, r.save(ctx, cluster, stored, o, m, addresses, state, limits)
}

// again returns when to observe a member without an event: a moment after its Lease expires, or after a missed
// renewal must be stored.
func again(o, stored liveness.Observation, hub liveness.HubView, l liveness.Limits) time.Duration {
	wait := l.Renew + l.Renew/10
	if age := o.ObservedUntil.Sub(stored.ObservedUntil); age > 0 && age < l.Renew {
		wait -= age
	}
	expiry := l.Expiry - o.ObservedUntil.Sub(o.RenewedAt) + 10*time.Millisecond
	if !o.Expired && o.ObservedUntil.Equal(hub.SeenUntil) && expiry > 0 {
		wait = min(wait, expiry)
	}
	return wait
}

func limitsOf(spec hubv1alpha1.LeaseSpec) liveness.Limits {
	return liveness.Limits{
		Renew:  time.Duration(spec.RenewSeconds) * time.Second,
		Expiry: time.Duration(spec.DurationSeconds+spec.GraceSeconds) * time.Second,
	}
}

// exports reports whether this cluster holds a record of the member.
func (r *Reconciler) exports(ctx context.Context, cluster string) (bool, error) {
	var records hubv1alpha1.ServiceExportRecordList
	err := r.Local.List(ctx, &records, client.InNamespace(kube.SystemNamespace),
		client.MatchingFields{kube.ByCluster: cluster}, client.UnsafeDisableDeepCopy)
	return len(records.Items) > 0, err
}

// refreshLeases reads all stored Leases, and the renewals on the hub, at most once a second: reading them for each
// observation was a fifth of what an agent beside 100 members allocates.
func (r *Reconciler) refreshLeases(ctx context.Context, now time.Time) error {
	if now.Sub(r.listed).Abs() < time.Second {
		return nil
	}
	stored, err := kube.Sources(ctx, r.Local)
	if err != nil {
		return err
	}
	var onHub coordinationv1.LeaseList
	if err := r.Hub().
		List(ctx, &onHub, client.InNamespace(r.HubNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	r.stored, r.renewals, r.listed = stored, make(map[string]liveness.Renewal, len(onHub.Items)), now
	for i := range onHub.Items {
		r.renewals[onHub.Items[i].Name] = liveness.RenewalOf(&onHub.Items[i])
	}
	return nil
}

// observedUntil returns until when silence counts after a renewal of one member. It reports the beginning of a common
// silence.
func (r *Reconciler) observedUntil(
	ctx context.Context,
	cluster string,
	renewal liveness.Renewal,
	spec hubv1alpha1.LeaseSpec,
	hub liveness.HubView,
	l liveness.Limits,
) (time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refreshLeases(ctx, hub.Now); err != nil {
		return time.Time{}, err
	}
	r.renewals[cluster] = renewal
	if spec.MostSilent == hubv1alpha1.MostSilentExpire {
		r.held = false
		return hub.SeenUntil, nil
	}
	others := map[string]liveness.Observation{}
	for i := range r.stored {
		cluster := r.stored[i].Labels[liveness.LabelSource]
		o, known := r.observations[cluster]
		if !known {
			o = load(&r.stored[i])
		}
		others[cluster] = o
	}
	until := r.silence.ObservedUntil(hub, others, r.renewals, l)
	held := until.Before(hub.SeenUntil)
	if held != r.held {
		log.FromContext(ctx).
			Info("whether most other members are silent together has changed", "held", held, "since", until.UTC())
	}
	if held && !r.held {
		r.Events.Event(kube.System(), kube.Warning, "SourcesHeld", fmt.Sprintf("Most other members have not "+
			"renewed their Leases on the hub since %s. None of them expires by its Lease while spec.lease.mostSilent "+
			"of the ClusterSet is Hold. One that does not answer here either is unreachable all the same, while "+
			"something else answers. Repair the hub's network, evict members that will not return, or set mostSilent "+
			"to Expire.", until.Add(-2*l.Renew).UTC().Format(time.RFC3339)))
	}
	r.held = held
	return until, nil
}

// observe continues the observation of this process, else the stored one.
func (r *Reconciler) observe(
	cluster string,
	stored *coordinationv1.Lease,
	hub liveness.HubView,
	until time.Time,
	renewal liveness.Renewal,
	l liveness.Limits,
) liveness.Observation {
	r.mu.Lock()
	defer r.mu.Unlock()
	previous, known := r.observations[cluster]
	if !known {
		previous = load(stored).Restored(r.Now())
	}
	o := previous.Observe(hub, until, renewal, l)
	r.observations[cluster] = o
	return o
}

// known returns the reach state of a member: this process's, or else the stored one.
func (r *Reconciler) known(cluster string, stored *coordinationv1.Lease) member {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[cluster]; m != nil {
		return *m
	}
	return member{Member: reach.Restored(reach.Read(stored), r.Now())}
}

// forget deletes what is stored of a member that left, or of what is no member.
func (r *Reconciler) forget(ctx context.Context, cluster string, stored *coordinationv1.Lease) error {
	r.mu.Lock()
	delete(r.observations, cluster)
	delete(r.members, cluster)
	r.mu.Unlock()
	if stored == nil {
		return nil
	}
	return kube.Delete(ctx, r.Local, stored)
}

// save stores an observation if that is due, and reports a change of state.
func (r *Reconciler) save(
	ctx context.Context,
	cluster string,
	stored *coordinationv1.Lease,
	o liveness.Observation,
	m member,
	addresses []string, // at which its agent answers
	state liveness.State,
	l liveness.Limits,
) error {
	previous := liveness.StateOf(stored)
	if stored != nil && previous == state && reach.Read(stored).State == m.State &&
		slices.Equal(reach.ReadAddresses(stored, r.Reserved), addresses) &&
		!load(stored).NeedsWrite(o, m.State == reach.Answers, l) {
		return nil
	}
	lease := &coordinationv1.Lease{}
	if stored != nil {
		lease = stored.DeepCopy()
	}
	store(lease, cluster, o, state, l)
	m.Write(lease, m.roundTrip)
	reach.WriteAddresses(lease, addresses)
	if err := kube.Put(ctx, r.Local, lease); err != nil {
		return err
	}
	damped := previous.Expired && state.Expired && m.State != reach.Unreachable &&
		liveness.RenewingSince(stored).IsZero() && !o.RenewingSince.IsZero()
	if previous.Expired == state.Expired && !damped {
		return nil
	}
	log.FromContext(ctx).
		Info("the state of a source changed", "source", cluster, "expired", state.Expired, "damped", damped,
			"reach", m.State, "lastRenewal", o.Renewal.Time, "seen", o.RenewedAt.UTC())
	was := reach.Read(stored)
	switch {
	case damped:
		r.Events.Event(
			lease,
			kube.Normal,
			"SourceDamped",
			fmt.Sprintf("Cluster %s renews its Lease on the hub again, but expired %d times "+
				"within %v. It stays expired until %s, if it goes on renewing.",
				cluster, len(o.Expirations), liveness.FlapWindow, o.DampedUntil().UTC().Format(time.RFC3339)),
		)
	case m.State == reach.Unreachable:
		r.Events.Event(lease, kube.Warning, "SourceUnreachable", fmt.Sprintf("Cluster %s is unreachable since %s: "+
			"neither its agent nor any endpoint that was tried answered for four seconds, while others did. Its "+
			"endpoints follow onExpiry=%s. It counts as live again when an endpoint, or its agent after a renewal of "+
			"its Lease, has answered for %v.",
			cluster, m.Since.UTC().Format(time.RFC3339), state.OnExpiry, m.Damping(r.Now())))
	case state.Expired:
		why := "nothing here shows that it serves"
		switch m.State {
		case reach.Unknown:
			why = "its agent has never answered here"
		case reach.Serving:
			why = "its agent has not answered for an hour: nobody updates its endpoints, though one still answers"
		}
		r.Events.Event(
			lease,
			kube.Warning,
			"SourceExpired",
			fmt.Sprintf("Cluster %s has not renewed its Lease on the hub since %s or earlier, and %s. "+
				"Its endpoints follow onExpiry=%s. Run `kubectl clusterset doctor` in that cluster.",
				cluster, o.RenewedAt.UTC().Format(time.RFC3339), why, state.OnExpiry),
		)
	default:
		after := o.SinceExpiration()
		if was.State == reach.Unreachable {
			after = r.Now().Sub(was.Since)
		}
		r.Events.Event(lease, kube.Normal, "SourceLive", fmt.Sprintf(
			"Cluster %s counts as live again, after %v. Its endpoints are as it publishes them.",
			cluster, after.Round(time.Second)))
	}
	return nil
}
