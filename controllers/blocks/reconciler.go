// Package blocks grants members blocks of the ClusterSet's pools, in the status of the ClusterSet on the hub
// (DESIGN §5, SPEC V2). That status is the only storage: a restart continues from it, and the API server rejects
// an update that is based on an older one. Package grants decides; this package reads, writes and reports.
// A hub that was restored from a backup may lack blocks that members use. Granting therefore pauses after each start,
// so that members have time to report the ranges that they use: no block overlaps these.
package blocks

import (
	"context"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// New returns the controller. All its watches map to one request, so that passes never run in parallel.
func New(env kube.HubEnv) kube.Controller {
	single := kube.Named(func(client.Object) types.NamespacedName { return types.NamespacedName{Name: env.Namespace} })
	return kube.Controller{
		Name: "blocks",
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: single},
			{Side: kube.Hub, Object: &inventoryv1alpha1.ClusterProfile{}, Requests: single},
		},
		Reconciler: &reconciler{HubEnv: env, budget: rate.NewLimiter(rate.Every(writeInterval), writeBurst)},
	}
}

type reconciler struct {
	kube.HubEnv
	budget      *rate.Limiter       // of writes to the ClusterSet's status
	started     bool                // a pass has read the ClusterSet
	known       []hubv1alpha1.Block // as last read or written
	pausedUntil time.Time
}

const (
	// reportTimeout is the time that members have to report ranges that the hub does not know: they must connect
	// again and complete a few passes.
	reportTimeout = 2 * time.Minute
	// Each write of the status goes to every member, and a member can change its request at any rate.
	writeInterval = time.Second
	writeBurst    = 20
)

// Reconcile updates the ClusterSet's blocks and conditions.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (result reconcile.Result, err error) {
	facts, err := r.facts(ctx)
	if err != nil || facts == nil {
		return result, err
	}
	pause, err := r.pause(ctx, facts)
	if err != nil {
		return result, err
	}
	facts.Paused = pause > 0
	plan := grants.Decide(*facts)
	if plan.Waiting {
		result.RequeueAfter = pause
	}
	want := facts.Set.DeepCopy()
	want.Status.Blocks = plan.Blocks
	setConditions(want, plan.Conditions, metav1.NewTime(r.Now()))
	if !equality.Semantic.DeepEqual(want.Status, facts.Set.Status) {
		wait, err := kube.PatchStatus(ctx, r.Hub, r.budget, r.Now(), want, facts.Set)
		if err != nil || wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, err
		}
		r.known = want.Status.Blocks
	}
	for _, b := range plan.Released {
		log.FromContext(ctx).Info("block released", "cluster", b.ClusterID, "block", b.CIDR)
	}
	for _, b := range plan.Granted {
		log.FromContext(ctx).Info("block granted", "cluster", b.ClusterID, "block", b.CIDR)
	}
	return result, nil
}

// facts reads the input of the decision. It returns nil unless there is exactly one ClusterSet.
func (r *reconciler) facts(ctx context.Context) (*grants.Facts, error) {
	var sets hubv1alpha1.ClusterSetList
	if err := r.Hub.List(ctx, &sets, client.InNamespace(r.Namespace)); err != nil {
		return nil, err
	}
	var profiles inventoryv1alpha1.ClusterProfileList
	if err := r.Hub.List(ctx, &profiles, client.InNamespace(r.Namespace)); err != nil {
		return nil, err
	}
	if len(sets.Items) > 1 {
		for i := range sets.Items {
			r.Events.Event(&sets.Items[i], kube.Warning, "MultipleClusterSets",
				"This namespace has more than one ClusterSet. Members keep their settings and follow none of them, "+
					"and no silent member expires: delete all but one.")
		}
	}
	if len(sets.Items) != 1 || sets.Items[0].DeletionTimestamp != nil {
		return nil, nil
	}
	return &grants.Facts{Set: &sets.Items[0], Profiles: profiles.Items}, nil
}

// pause returns for how long no block may be granted, because the hub may lack blocks that members use: for
// reportTimeout after a start, unless there was no member, and after blocks disappear that this controller did not
// release.
func (r *reconciler) pause(ctx context.Context, facts *grants.Facts) (left time.Duration, err error) {
	now, set := r.Now(), facts.Set
	switch {
	case !r.started:
		r.started, r.known = true, set.Status.Blocks
		if slices.ContainsFunc(facts.Profiles, kube.Claimed) {
			r.pausedUntil = now.Add(reportTimeout)
		}
	case grants.Forgotten(r.known, set, facts.Profiles):
		// Only the API server can confirm that: the cache may lag behind the last write.
		var live hubv1alpha1.ClusterSetList
		if err := r.Live.List(ctx, &live, client.InNamespace(set.Namespace)); err != nil {
			return 0, err
		}
		if len(live.Items) == 1 && grants.Forgotten(r.known, &live.Items[0], facts.Profiles) {
			r.pausedUntil, r.known = now.Add(reportTimeout), live.Items[0].Status.Blocks
		}
	default:
		r.known = set.Status.Blocks
	}
	return r.pausedUntil.Sub(now), nil
}

// setConditions sets the given conditions, and removes those that this controller no longer sets.
func setConditions(set *hubv1alpha1.ClusterSet, wanted []metav1.Condition, now metav1.Time) {
	set.Status.Conditions, _ = conditions.Set(set.Status.Conditions, wanted, set.Generation, now)
	for _, kind := range []string{hubv1alpha1.ConditionBlocksGranted, hubv1alpha1.ConditionPoolsValid} {
		if meta.FindStatusCondition(wanted, kind) == nil {
			meta.RemoveStatusCondition(&set.Status.Conditions, kind)
		}
	}
}
