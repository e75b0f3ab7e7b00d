// Package sources tells of each other member whether it lives (SPEC T1, T3, S3; DESIGN §7): a Lease here keeps what was seen of it, and the
// condition Live on the copies of its records says what becomes of its endpoints. serviceimport goes by that.
package sources

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Controller is this room's entry in the list of controllers. Requests are cluster ids of other members.
func Controller(env *kube.Env) kube.Controller {
	r := &reconciler{Env: env, sights: map[string]liveness.Sight{}}
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
	mu     sync.Mutex
	sights map[string]liveness.Sight
}

// ofLease asks for the member whose Lease it is; the own one is the clock by which all others are looked at.
func (r *reconciler) ofLease(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetName() != r.Cluster {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetName()}}}
	}
	return r.all(ctx, o)
}

// all asks for every member that was ever seen from here.
func (r *reconciler) all(ctx context.Context, _ client.Object) (out []reconcile.Request) {
	var leases coordinationv1.LeaseList
	if err := r.Local.List(ctx, &leases, client.InNamespace(kube.SystemNamespace), client.HasLabels{liveness.LabelSource}); err != nil {
		return nil // the cache answers; it fails only when the agent stops
	}
	for i := range leases.Items {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: leases.Items[i].Labels[liveness.LabelSource]}})
	}
	return out
}

// Reconcile looks at one member.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	seen := r.HubSeen()
	if seen.IsZero() {
		return reconcile.Result{RequeueAfter: time.Second}, nil // the own Lease comes
	}
	shown, err := kube.Get[*coordinationv1.Lease](ctx, r.Hub(), types.NamespacedName{Namespace: r.HubNamespace, Name: req.Name})
	if err != nil {
		return reconcile.Result{}, err
	}
	var copies hubv1alpha1.ServiceExportRecordList
	if err := r.Local.List(ctx, &copies, client.InNamespace(kube.SystemNamespace), client.MatchingFields{kube.ByCluster: req.Name}); err != nil {
		return reconcile.Result{}, err
	}
	kept, err := kube.Get[*coordinationv1.Lease](ctx, r.Local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: LeaseName(req.Name)})
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
	limits := liveness.Limits{
		Renew: time.Duration(spec.RenewSeconds) * time.Second,
		Dead:  time.Duration(spec.DurationSeconds+spec.GraceSeconds) * time.Second,
	}
	was, s := r.look(req.Name, kept, limits.Seen(seen, r.Now()), renewal(shown), limits)
	if was.Dead != s.Dead {
		log.FromContext(ctx).Info("a member's life", "source", req.Name, "dead", s.Dead, "lastRenewal", s.Renewal, "seen", s.At.UTC())
	}
	// The verdict is due a moment after the silence has lasted long enough.
	again := limits.Renew
	if due := limits.Dead - s.Checked.Sub(s.At) + 10*time.Millisecond; !s.Dead && due > 0 && due < again {
		again = due
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(r.say(ctx, &copies, s, spec), r.persist(ctx, req.Name, kept, s, limits))
}

func renewal(lease *coordinationv1.Lease) time.Time {
	if lease == nil || lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// look goes by what this process has seen, or else by what was kept.
func (r *reconciler) look(cluster string, kept *coordinationv1.Lease, checked, renewal time.Time, l liveness.Limits) (was, s liveness.Sight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.sights[cluster]
	if !ok {
		was = remember(kept)
	}
	s = was.Look(checked, renewal, l)
	r.sights[cluster] = s
	return was, s
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

// persist keeps a Sight: with every renewal and every verdict, and as often while there are none, so that a restart goes on from there.
func (r *reconciler) persist(ctx context.Context, cluster string, kept *coordinationv1.Lease, s liveness.Sight, l liveness.Limits) error {
	lease := &coordinationv1.Lease{}
	if kept == nil {
		keep(lease, cluster, s, l)
		return r.Local.Create(ctx, lease)
	}
	if was := remember(kept); was.Renewal.Equal(s.Renewal) && was.Dead == s.Dead && was.Back.Equal(s.Back) && s.Checked.Sub(was.Checked) < l.Renew {
		return nil
	}
	lease = kept.DeepCopy()
	keep(lease, cluster, s, l)
	return r.Local.Update(ctx, lease)
}

// live is the condition of that type. It changes with the verdict only, not with what is seen meanwhile: a member that counts as dead may
// renew again for minutes before it is let back (T3), and each change is a write of every copy and an Event.
func live(s liveness.Sight, spec hubv1alpha1.LeaseSpec) metav1.Condition {
	c := metav1.Condition{Type: hubv1alpha1.ConditionLive, Status: metav1.ConditionTrue, Reason: "Renewing", Message: "Its cluster renews its Lease on the hub."}
	if !s.Dead {
		return c
	}
	since := ""
	if len(s.Deaths) > 0 {
		since = " since " + s.Deaths[len(s.Deaths)-1].UTC().Format(time.RFC3339)
	}
	c.Status, c.Reason = metav1.ConditionFalse, endpoints.Expiry(spec.OnExpiry, spec.KeepLast)
	c.Message = fmt.Sprintf("Its cluster counts as dead%s: it did not renew its Lease on the hub. What becomes of its endpoints here is the ClusterSet's spec.lease.onExpiry: %s.", since, c.Reason)
	return c
}

// say sets the condition Live on a member's copies. Those that were never dead bear none.
func (r *reconciler) say(ctx context.Context, copies *hubv1alpha1.ServiceExportRecordList, s liveness.Sight, spec hubv1alpha1.LeaseSpec) error {
	c := live(s, spec)
	var errs []error
	for i := range copies.Items {
		rec := &copies.Items[i]
		if !s.Dead && meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionLive) == nil {
			continue
		}
		out, changed := conditions.Set(rec.Status.Conditions, []metav1.Condition{c}, rec.Generation, metav1.NewTime(r.Now()))
		if !changed {
			continue
		}
		rec = rec.DeepCopy()
		rec.Status.Conditions = out
		err := r.Local.Status().Update(ctx, rec)
		if err == nil && s.Dead {
			r.Events.Event(rec, kube.Warning, "SourceExpired", c.Message)
		}
		errs = append(errs, kube.Gone(err))
	}
	return errors.Join(errs...)
}
