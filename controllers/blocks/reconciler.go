// Package blocks grants members their blocks on the hub, in the ClusterSet's status (DESIGN §5, SPEC V2). That
// status is all it goes by: after a restart it goes on from there, and of two that write at a time the API server
// refuses the one that has not seen the other. Since
// a hub may come back from a backup, it waits before it grants what members may hold that the status has forgotten.
package blocks

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Controller is this controller's entry in the list of controllers. The one request is the clusterset, so that there is
// one grant at a time.
func Controller(env *kube.Env) kube.Controller {
	whole := kube.Named(
		func(client.Object) types.NamespacedName { return types.NamespacedName{Name: env.HubNamespace} },
	)
	return kube.Controller{
		Name:     "blocks",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: whole},
			{Side: kube.Hub, Object: &inventoryv1alpha1.ClusterProfile{}, Requests: whole},
		},
		Reconciler: &reconciler{Env: env, budget: rate.NewLimiter(rate.Every(interval), burst)},
	}
}

type reconciler struct {
	*kube.Env
	budget *rate.Limiter
	said   map[complaint]bool // what was reported and is still so
	// known are the blocks that were there last; sure is when members have told of those that were forgotten.
	known []hubv1alpha1.Block
	sure  time.Time
	// listening are those whom nobody has heard since this began; zero: it has not.
	listening grants.Listening
	began     time.Time
}

// telling is how long members have to tell of blocks that the hub does not know: to connect to it again and see
// that, a few of their passes.
const telling = 2 * time.Minute

// hearing is how often it is looked, while grants wait for it, whether members are heard.
const hearing = 5 * time.Second

// What the ClusterSet's status is written at most: each write goes to every member, and what members ask may change
// at their will.
const (
	interval = time.Second
	burst    = 20
)

// leftover is how often it is looked whether the traces of a departed member are gone. They are, by then, unless
// somebody made them.
const leftover = 30 * time.Second

// Reconcile brings the ClusterSet's blocks and conditions up to date.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (result reconcile.Result, err error) {
	facts, waits, err := r.gather(ctx)
	if err != nil || facts == nil {
		return result, err
	}
	if waits {
		result.RequeueAfter = leftover
	}
	left, err := r.unsure(ctx, facts)
	if err != nil {
		return result, err
	}
	facts.Unsure, facts.Restored = left > 0, !r.sure.IsZero()
	plan := grants.Decide(*facts)
	// Members are heard also while nobody asks: what they say then counts for who asks later.
	if left > 0 && (plan.Waiting || len(r.listening) > 0) && (left < result.RequeueAfter || !waits) {
		result.RequeueAfter = left
	}
	want := facts.Set.DeepCopy()
	want.Status.Blocks = plan.Blocks
	conditions(want, plan.Conditions, metav1.NewTime(r.Now()))
	if !equality.Semantic.DeepEqual(want.Status, facts.Set.Status) {
		now := r.Now()
		one := r.budget.ReserveN(now, 1)
		if wait := one.DelayFrom(now); wait > 0 {
			one.CancelAt(now)
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		if err := r.Hub().Status().Update(ctx, want); err != nil {
			if apierrors.IsConflict(err) {
				one.CancelAt(now) // it was not made
			}
			return result, err
		}
		r.known = want.Status.Blocks
	}
	r.tell(ctx, facts, want, &plan)
	return result, nil
}

// gather reads what is decided on; nil where there is not one ClusterSet. waits says that traces of a departed
// owner of blocks are left.
func (r *reconciler) gather(ctx context.Context) (facts *grants.Facts, waits bool, err error) {
	var sets hubv1alpha1.ClusterSetList
	if err := r.Hub().List(ctx, &sets, client.InNamespace(r.HubNamespace)); err != nil {
		return nil, false, err
	}
	var profiles inventoryv1alpha1.ClusterProfileList
	if err := r.Hub().List(ctx, &profiles, client.InNamespace(r.HubNamespace)); err != nil {
		return nil, false, err
	}
	if len(sets.Items) > 1 { // members go by none of them
		for i := range sets.Items {
			r.Events.Event(
				&sets.Items[i],
				kube.Warning,
				ReasonNotAlone,
				"There is more than one ClusterSet in this namespace. Members go on as they are and follow none "+
					"of them, nor does a member that falls silent expire: delete all but one.",
			)
		}
	}
	if len(sets.Items) != 1 || sets.Items[0].DeletionTimestamp != nil {
		return nil, false, nil
	}
	facts = &grants.Facts{Set: &sets.Items[0], Profiles: profiles.Items}
	departed := grants.Departed(facts.Set, facts.Profiles)
	if len(departed) == 0 {
		return facts, false, nil
	}
	facts.Gone, err = r.gone(ctx, departed)
	return facts, len(facts.Gone) < len(departed), err
}

// unsure is for how long nothing is granted: after a start until members are heard, and longer on a hub that was
// without them before, since it may be one that was restored and lacks blocks; and after blocks are gone that
// nobody released. A cache that lags has lost none.
func (r *reconciler) unsure(ctx context.Context, facts *grants.Facts) (left time.Duration, err error) {
	now, set := r.Now(), facts.Set
	switch {
	case r.began.IsZero():
		if err := r.listen(ctx, facts, now); err != nil {
			return 0, err
		}
	case grants.Forgotten(r.known, set, facts.Profiles):
		var there hubv1alpha1.ClusterSetList
		if err := r.HubNow().List(ctx, &there, client.InNamespace(set.Namespace)); err != nil {
			return 0, err
		}
		if len(there.Items) == 1 && grants.Forgotten(r.known, &there.Items[0], facts.Profiles) {
			r.sure, r.known = now.Add(telling), there.Items[0].Status.Blocks
		}
	default:
		r.known = set.Status.Blocks
	}
	if err := r.hear(ctx, now); err != nil {
		return 0, err
	}
	left = r.sure.Sub(now)
	if len(r.listening) > 0 {
		left = max(left, min(hearing, r.began.Add(telling).Sub(now)))
	}
	return left, nil
}

// listen begins. What was waited for before a restart is waited for again: what told of it may be over.
func (r *reconciler) listen(ctx context.Context, facts *grants.Facts, now time.Time) error {
	var leases coordinationv1.LeaseList
	if err := r.HubNow().List(ctx, &leases, client.InNamespace(r.HubNamespace)); err != nil {
		return err
	}
	if c := meta.FindStatusCondition(
		facts.Set.Status.Conditions,
		hubv1alpha1.ConditionBlocksGranted,
	); c != nil &&
		c.Reason == grants.ReasonWaiting {
		r.sure = now.Add(telling)
	}
	r.listening, r.began, r.known = grants.Listen(facts.Profiles, leases.Items), now, facts.Set.Status.Blocks
	return nil
}

// hear looks who has been heard since. Who is silent for longer than members need to tell anything is not waited
// for.
func (r *reconciler) hear(ctx context.Context, now time.Time) error {
	passed := now.Sub(r.began)
	if passed >= telling {
		r.listening = nil
	}
	if len(r.listening) == 0 || passed == 0 {
		return nil
	}
	var leases coordinationv1.LeaseList
	if err := r.HubNow().List(ctx, &leases, client.InNamespace(r.HubNamespace)); err != nil {
		return err
	}
	if r.listening.Hear(leases.Items, passed) {
		r.sure = now.Add(telling)
	}
	return nil
}

// gone are those of ids of whom nothing is left on the hub: ClusterProfile, Lease, records. It reads past the
// cache: a block that is
// somebody's again is not given away.
func (r *reconciler) gone(ctx context.Context, ids []string) (map[string]bool, error) {
	left := map[string]bool{}
	named := func(o *metav1.PartialObjectMetadata) string { return o.Name }
	err := r.each(ctx, inventoryv1alpha1.GroupVersion.WithKind("ClusterProfile"), named, left)
	if err == nil {
		err = r.each(ctx, coordinationv1.SchemeGroupVersion.WithKind("Lease"), named, left)
	}
	for _, kind := range clusterset.RecordKinds() {
		if err == nil {
			err = r.each(
				ctx,
				hubv1alpha1.GroupVersion.WithKind(kind),
				func(o *metav1.PartialObjectMetadata) string {
					return clusterset.RecordOwner(kind, o.Name)
				},
				left,
			)
		}
	}
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, id := range ids {
		if !left[id] {
			out[id] = true
		}
	}
	return out, nil
}

// each notes the owners of all objects of a kind. An answer holds at most page of their names.
func (r *reconciler) each(
	ctx context.Context,
	kind schema.GroupVersionKind,
	owner func(*metav1.PartialObjectMetadata) string,
	into map[string]bool,
) error {
	const page = 500
	list := &metav1.PartialObjectMetadataList{}
	for more := true; more; more = list.Continue != "" {
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := r.HubNow().
			List(ctx, list, client.InNamespace(r.HubNamespace), client.Limit(page),
				client.Continue(list.Continue)); err != nil {
			return err
		}
		for i := range list.Items {
			into[owner(&list.Items[i])] = true
		}
	}
	return nil
}

// conditions takes those that are told, and drops the others of ours.
func conditions(set *hubv1alpha1.ClusterSet, told []metav1.Condition, now metav1.Time) {
	there := map[string]bool{}
	for _, c := range told {
		there[c.Type] = true
		c.LastTransitionTime, c.ObservedGeneration = now, set.Generation
		meta.SetStatusCondition(&set.Status.Conditions, c)
	}
	for _, kind := range []string{hubv1alpha1.ConditionBlocksGranted, hubv1alpha1.ConditionPoolsValid} {
		if !there[kind] {
			meta.RemoveStatusCondition(&set.Status.Conditions, kind)
		}
	}
}
