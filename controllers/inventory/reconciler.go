package inventory

import (
	"context"
	"slices"
	"time"

	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// interval and burst limit the writes to the status of one ClusterProfile: to half of the updates that KEP-4322 allows,
// since its member has the other half.
const (
	interval = time.Minute
	burst    = 5
)

// New returns the controller, which must run one pass at a time: the reconciler has no lock. Its requests are cluster
// IDs, which are the names of ClusterProfiles and of Leases.
func New(env kube.HubEnv) kube.Controller {
	named := kube.Named(kube.NameOnly)
	return kube.Controller{
		Name: "inventory",
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &inventoryv1alpha1.ClusterProfile{}, Requests: named},
			{Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: named},
		},
		Reconciler: &reconciler{HubEnv: env, members: map[string]*member{}},
	}
}

type reconciler struct {
	kube.HubEnv
	members map[string]*member // by cluster ID
}

// member is what this program remembers about one member.
type member struct {
	profile types.UID // of its ClusterProfile
	missing bool      // whether its Lease was once found missing
	seen    observation
	budget  *rate.Limiter // of writes to its status
	revoked time.Time     // when this program had revoked its rights; zero before
}

// Reconcile marks a new ClusterProfile as ours, and sets its conditions from the Lease of its member. It deletes the
// ClusterProfile of a member that says it has left, and cleans up once it is being deleted.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := types.NamespacedName{Namespace: r.Namespace, Name: req.Name}
	profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, r.Hub, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if profile == nil || !clusterset.IsOurs(profile) {
		delete(r.members, req.Name)
		return reconcile.Result{}, nil
	}
	if profile.DeletionTimestamp != nil {
		if slices.Contains(profile.Finalizers, clusterset.FinalizerRecords) {
			return r.cleanUp(ctx, profile)
		}
		return reconcile.Result{}, nil
	}
	want := profile.DeepCopy()
	if mark(want) {
		return reconcile.Result{}, r.Hub.Patch(ctx, want, kube.Changes(profile))
	}
	if profile.Annotations[clusterset.AnnotationLeft] != "" {
		r.Events.Event(profile, kube.Normal, ReasonLeft, "The cluster has left.")
		return reconcile.Result{}, kube.DeleteUnchanged(ctx, r.Hub, profile)
	}
	set, _, err := kube.SetOf(ctx, r.Hub, r.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	silence := time.Duration(set.Spec.Lease.DurationSeconds) * time.Second
	m := r.member(profile)
	now := r.Now() // one time for the whole pass, so that its checks agree
	if err := m.observe(ctx, r.Hub, name, now); err != nil {
		return reconcile.Result{}, err
	}
	if !m.seen.at.IsZero() && now.Sub(m.seen.at) >= silence { // the cache may be stale
		if err := m.observe(ctx, r.Live, name, now); err != nil {
			return reconcile.Result{}, err
		}
	}
	changed, again := setConditions(want, m.seen, silence, now)
	if !changed {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	wait, err := kube.PatchStatus(ctx, r.Hub, m.budget, now, want, profile)
	if err != nil || wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, err
	}
	for _, c := range want.Status.Conditions {
		if !meta.IsStatusConditionPresentAndEqual(profile.Status.Conditions, c.Type, c.Status) {
			log.FromContext(ctx).Info("condition changed",
				"cluster", want.Name, "type", c.Type, "status", c.Status, "reason", c.Reason)
		}
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// observe records a renewal of the Lease. A Lease with an earlier renewal than the last one is from a backup, and is
// ignored.
func (m *member) observe(ctx context.Context, from client.Reader, name types.NamespacedName, now time.Time) error {
	lease, err := kube.Get[*coordinationv1.Lease](ctx, from, name)
	if err != nil {
		return err
	}
	if lease == nil || lease.Spec.RenewTime == nil {
		m.missing = true
		return nil
	}
	if renewed := *lease.Spec.RenewTime; m.seen.at.IsZero() || m.seen.renewed.Before(&renewed) {
		m.seen = observation{renewed: renewed, at: now, changed: m.missing || !m.seen.at.IsZero()}
	}
	return nil
}

// member returns what is remembered about the member with this ClusterProfile. It forgets an earlier member with the
// same ID.
func (r *reconciler) member(p *inventoryv1alpha1.ClusterProfile) *member {
	m := r.members[p.Name]
	if m == nil || m.profile != p.UID {
		m = &member{profile: p.UID, budget: rate.NewLimiter(rate.Every(interval), burst)}
		r.members[p.Name] = m
	}
	return m
}
