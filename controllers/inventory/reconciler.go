package inventory

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Half of what P5 allows per object, since the member writes its part of the status too.
const (
	interval = time.Minute
	burst    = 5
)

// Controller is this room's entry in the list of controllers, for one pass at a time. Requests are cluster ids: the names of ClusterProfiles and of Leases.
func Controller(env *kube.Env) kube.Controller {
	named := kube.Named(func(o client.Object) types.NamespacedName { return types.NamespacedName{Name: o.GetName()} })
	return kube.Controller{
		Name:     "inventory",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &inventoryv1alpha1.ClusterProfile{}, Requests: named},
			{Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: named},
		},
		Reconciler: &reconciler{Env: env, members: map[string]*member{}},
	}
}

type reconciler struct {
	*kube.Env
	members map[string]*member // by id
}

// member is what this program remembers of one.
type member struct {
	of     types.UID // its ClusterProfile's
	missed bool      // its Lease was looked for, and was not there
	seen   sight
	budget *rate.Limiter // of writes to its status
}

// Reconcile keeps one ClusterProfile.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := types.NamespacedName{Namespace: r.HubNamespace, Name: req.Name}
	profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, r.Hub(), name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if profile == nil || profile.DeletionTimestamp != nil || !ours(profile) {
		delete(r.members, req.Name)
		return reconcile.Result{}, nil
	}
	want := profile.DeepCopy()
	if marks(want) {
		return reconcile.Result{}, r.Hub().Patch(ctx, want, kube.Changes(profile))
	}
	silence, err := r.silence(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	m := r.member(profile)
	now := r.Now() // one for all: who is not silent yet by the first look is not so by what follows
	if err := m.look(ctx, r.Hub(), name, now); err != nil {
		return reconcile.Result{}, err
	}
	if !m.seen.at.IsZero() && now.Sub(m.seen.at) >= silence { // nobody is called silent on a cache's word
		if err := m.look(ctx, r.HubNow(), name, now); err != nil {
			return reconcile.Result{}, err
		}
	}
	changed, again := conditions(want, m.seen, silence, now)
	if !changed {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	one := m.budget.ReserveN(now, 1)
	if wait := one.DelayFrom(now); wait > 0 {
		one.CancelAt(now)
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := r.Hub().Status().Patch(ctx, want, kube.Changes(profile)); err != nil {
		if apierrors.IsConflict(err) {
			one.CancelAt(now) // it was not made
		}
		return reconcile.Result{}, err
	}
	r.say(ctx, profile, want)
	return reconcile.Result{RequeueAfter: again}, nil
}

// look takes note of a Lease. One that is older than what was seen came back from a backup, and says nothing of now.
func (m *member) look(ctx context.Context, from client.Reader, name types.NamespacedName, now time.Time) error {
	lease, err := kube.Get[*coordinationv1.Lease](ctx, from, name)
	if err != nil {
		return err
	}
	if lease == nil || lease.Spec.RenewTime == nil {
		m.missed = true
		return nil
	}
	if renewed := *lease.Spec.RenewTime; m.seen.at.IsZero() || m.seen.renewed.Before(&renewed) {
		m.seen = sight{renewed: renewed, at: now, changed: m.missed || !m.seen.at.IsZero()}
	}
	return nil
}

// member is what is remembered of the member whose ClusterProfile this is: nothing of one that had its id before.
func (r *reconciler) member(p *inventoryv1alpha1.ClusterProfile) *member {
	m := r.members[p.Name]
	if m == nil || m.of != p.UID {
		m = &member{of: p.UID, budget: rate.NewLimiter(rate.Every(interval), burst)}
		r.members[p.Name] = m
	}
	return m
}

// silence is how long a member may go without a renewal: what the ClusterSet says.
func (r *reconciler) silence(ctx context.Context) (time.Duration, error) {
	seconds := int32(40)
	var sets hubv1alpha1.ClusterSetList
	if err := r.Hub().List(ctx, &sets, client.InNamespace(r.HubNamespace)); err != nil {
		return 0, err
	}
	if len(sets.Items) > 0 && sets.Items[0].Spec.Lease.DurationSeconds > 0 {
		seconds = sets.Items[0].Spec.Lease.DurationSeconds
	}
	return time.Duration(seconds) * time.Second, nil
}

// say reports what has become of a member.
func (r *reconciler) say(ctx context.Context, was, is *inventoryv1alpha1.ClusterProfile) {
	for _, c := range is.Status.Conditions {
		before := meta.FindStatusCondition(was.Status.Conditions, c.Type)
		if before != nil && before.Status == c.Status || before == nil && c.Status != metav1.ConditionTrue {
			continue
		}
		kind := kube.Normal
		if c.Status != metav1.ConditionTrue {
			kind = kube.Warning
		}
		r.Events.Event(is, kind, c.Reason, c.Message)
		log.FromContext(ctx).Info("condition", "cluster", is.Name, "type", c.Type, "status", c.Status, "reason", c.Reason)
	}
}
