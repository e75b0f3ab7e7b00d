// Package sources tells of each other member whether it lives (SPEC T1, T3, S3; DESIGN §7): a Lease here keeps what was seen of it, and
// says what becomes of its endpoints. serviceimport goes by that: one small write, however many Services the member exports.
package sources

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Controller is this room's entry in the list of controllers. Requests are cluster ids of other members, and the own one. It sets env.Held.
func Controller(env *kube.Env) kube.Controller {
	r := &reconciler{Env: env, sights: map[string]liveness.Sight{}}
	env.Held = r.doubted.Load
	return kube.Controller{
		Name:     "sources",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: r.ofLease},
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: r.all},
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(func(o client.Object) (n types.NamespacedName) {
				if id := kube.Origin(o).ClusterID; id != env.Cluster {
					n.Name = id
				}
				return n
			})},
		},
		Reconciler: r,
	}
}

type reconciler struct {
	*kube.Env
	mu      sync.Mutex
	sights  map[string]liveness.Sight
	crowd   liveness.Crowd
	doubted atomic.Bool // the hub
}

// ofLease asks for the member whose Lease it is; the own one is the clock by which all others are looked at. The hub's namespace may hold
// Leases of others, such as its controller's.
func (r *reconciler) ofLease(ctx context.Context, o client.Object) []reconcile.Request {
	switch {
	case o.GetName() == r.Cluster:
		return r.all(ctx, o)
	case clusterset.CheckID(o.GetName()) != nil:
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetName()}}}
}

// all asks for every member that was ever seen from here, and for the own, without which nobody would look again at whether most are silent once
// none is left.
func (r *reconciler) all(ctx context.Context, _ client.Object) (out []reconcile.Request) {
	var leases coordinationv1.LeaseList
	if err := r.Local.List(ctx, &leases, client.InNamespace(kube.SystemNamespace), client.HasLabels{liveness.LabelSource}); err != nil {
		return nil // the cache answers; it fails only when the agent stops
	}
	out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: r.Cluster}})
	for i := range leases.Items {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: leases.Items[i].Labels[liveness.LabelSource]}})
	}
	return out
}

// Reconcile looks at one member, or where it is this one at whether most others are silent together.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	seen := r.HubSeen()
	if seen.IsZero() {
		return reconcile.Result{RequeueAfter: time.Second}, nil // the own Lease comes
	}
	if req.Name == r.Cluster {
		spec, found, err := kube.LeaseSpec(ctx, r.Env)
		if err != nil || !found {
			return reconcile.Result{}, err
		}
		limits := limitsOf(spec)
		_, err = r.believed(ctx, spec, limits.Seen(seen, r.Now()), limits)
		return reconcile.Result{}, err
	}
	shown, err := kube.Get[*coordinationv1.Lease](ctx, r.Hub(), types.NamespacedName{Namespace: r.HubNamespace, Name: req.Name})
	if err != nil {
		return reconcile.Result{}, err
	}
	var copies hubv1alpha1.ServiceExportRecordList
	if err := r.Local.List(ctx, &copies, client.InNamespace(kube.SystemNamespace), client.MatchingFields{kube.ByCluster: req.Name}); err != nil {
		return reconcile.Result{}, err
	}
	kept, err := kube.Get[*coordinationv1.Lease](ctx, r.Local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: liveness.LeaseName(req.Name)})
	if err != nil {
		return reconcile.Result{}, err
	}
	if shown == nil && len(copies.Items) == 0 {
		return reconcile.Result{}, r.forget(ctx, req.Name, kept)
	}
	spec, found, err := kube.LeaseSpec(ctx, r.Env)
	if err != nil || !found { // who was emptied says nothing of anybody's life, nor by which policy
		return reconcile.Result{}, err
	}
	limits := limitsOf(spec)
	hub := limits.Seen(seen, r.Now())
	believed, err := r.believed(ctx, spec, hub, limits)
	if err != nil {
		return reconcile.Result{}, err
	}
	s := r.look(req.Name, kept, hub, believed, liveness.RenewalOf(shown), limits)
	verdict := liveness.Verdict{Dead: s.Dead}
	if s.Dead {
		verdict.OnExpiry, verdict.KeepLast = spec.OnExpiry, spec.KeepLast
	}
	// A renewal that is missed is to be kept, once that is sure. The verdict is due a moment after the silence has lasted long enough.
	again := limits.Renew + limits.Renew/10
	if age := s.Checked.Sub(remember(kept).Checked); age > 0 && age < limits.Renew {
		again -= age
	}
	if due := limits.Dead - s.Checked.Sub(s.At) + 10*time.Millisecond; !s.Dead && believed.Equal(hub.Until) && due > 0 && due < again {
		again = due
	}
	return reconcile.Result{RequeueAfter: again}, r.persist(ctx, req.Name, kept, s, verdict, limits)
}

func limitsOf(spec hubv1alpha1.LeaseSpec) liveness.Limits {
	return liveness.Limits{
		Renew: time.Duration(spec.RenewSeconds) * time.Second,
		Dead:  time.Duration(spec.DurationSeconds+spec.GraceSeconds) * time.Second,
	}
}

// believed is until when the hub is, by what it shows of all others; where it is never to be doubted, until then.
func (r *reconciler) believed(ctx context.Context, spec hubv1alpha1.LeaseSpec, hub liveness.Hub, l liveness.Limits) (time.Time, error) {
	until := hub.Until
	if spec.MostSilent == hubv1alpha1.MostSilentExpire {
		r.doubted.Store(false)
		return until, nil
	}
	var kept, shown coordinationv1.LeaseList
	if err := r.Local.List(ctx, &kept, client.InNamespace(kube.SystemNamespace), client.HasLabels{liveness.LabelSource}, client.UnsafeDisableDeepCopy); err != nil {
		return until, err
	}
	if err := r.Hub().List(ctx, &shown, client.InNamespace(r.HubNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return until, err
	}
	renewals := map[string]liveness.Renewal{}
	for i := range shown.Items {
		renewals[shown.Items[i].Name] = liveness.RenewalOf(&shown.Items[i])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	others := map[string]liveness.Sight{}
	for i := range kept.Items {
		cluster := kept.Items[i].Labels[liveness.LabelSource]
		s, ok := r.sights[cluster]
		if !ok {
			s = remember(&kept.Items[i])
		}
		others[cluster] = s
	}
	at := r.crowd.Believed(hub, others, renewals, l)
	if doubted := at.Before(until); doubted != r.doubted.Load() {
		r.doubted.Store(doubted)
		log.FromContext(ctx).Info("whether most other members are silent together", "held", doubted, "since", at.UTC())
		if doubted {
			r.Events.Event(kube.System(), kube.Warning, "SourcesHeld", fmt.Sprintf(
				"Most of %d other members have not renewed their Leases on the hub since %s or before: while the ClusterSet's spec.lease.mostSilent is Hold, none of them expires. Mend the hub's network, evict who is gone for good, or set Expire.",
				len(others), at.Add(-2*l.Renew).UTC().Format(time.RFC3339)))
		}
	}
	return at, nil
}

// look goes by what this process has seen, or else by what was kept.
func (r *reconciler) look(cluster string, kept *coordinationv1.Lease, hub liveness.Hub, checked time.Time, renewal liveness.Renewal, l liveness.Limits) liveness.Sight {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.sights[cluster]
	if !ok {
		was = remember(kept)
	}
	s := was.Look(hub, checked, renewal, l)
	r.sights[cluster] = s
	return s
}

// forget drops a member that is gone.
func (r *reconciler) forget(ctx context.Context, cluster string, kept *coordinationv1.Lease) error {
	r.mu.Lock()
	delete(r.sights, cluster)
	r.mu.Unlock()
	if kept == nil {
		return nil
	}
	return kube.Gone(r.Local.Delete(ctx, kept))
}

// persist keeps a Sight where that is due, and tells of a death and of a return.
func (r *reconciler) persist(ctx context.Context, cluster string, kept *coordinationv1.Lease, s liveness.Sight, v liveness.Verdict, l liveness.Limits) error {
	said := liveness.VerdictOf(kept)
	lease, write := &coordinationv1.Lease{}, func(lease *coordinationv1.Lease) error { return r.Local.Create(ctx, lease) }
	if kept != nil {
		if said == v && !remember(kept).Worth(s, l) {
			return nil
		}
		lease, write = kept.DeepCopy(), func(lease *coordinationv1.Lease) error { return r.Local.Update(ctx, lease) }
	}
	keep(lease, cluster, s, v, l)
	if err := write(lease); err != nil {
		return err
	}
	back := said.Dead && v.Dead && liveness.BackOf(kept).IsZero() && !s.Back.IsZero()
	if said.Dead == v.Dead && !back {
		return nil
	}
	log.FromContext(ctx).Info("a member's life", "source", cluster, "dead", v.Dead, "lastRenewal", s.Renewal.At, "seen", s.At.UTC())
	switch {
	case back:
		r.Events.Event(lease, kube.Normal, "SourceDamped", fmt.Sprintf(
			"Cluster %s renews its Lease on the hub again, but died %d times within %v: what is done here with its endpoints stays so until %s at least, if it goes on renewing.",
			cluster, len(s.Deaths), liveness.Memory, s.Until().UTC().Format(time.RFC3339)))
	case v.Dead:
		r.Events.Event(lease, kube.Warning, "SourceExpired", fmt.Sprintf(
			"Cluster %s has not renewed its Lease on the hub since %s: what becomes of its endpoints here is the ClusterSet's spec.lease.onExpiry, %s. kubectl clusterset doctor there.",
			cluster, s.At.UTC().Format(time.RFC3339), v.OnExpiry))
	default:
		r.Events.Event(lease, kube.Normal, "SourceLive", fmt.Sprintf(
			"Cluster %s counts as live here again, after %v: its endpoints are as it publishes them.", cluster, s.Away().Round(time.Second)))
	}
	return nil
}
