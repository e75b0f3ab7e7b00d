package observe

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
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
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// count takes in what the members say. A verdict changes once per renewal at most, so that nobody who changes its mind all the time, by
// fault or on purpose, makes the others write more than that.
func (o *Observer) count(ctx context.Context) (reconcile.Result, error) {
	spec, found, err := kube.ProbeSpec(ctx, o.Hub(), o.HubNamespace)
	if err != nil || !found { // who was emptied says nothing of anything
		return reconcile.Result{}, err
	}
	if spec == nil {
		return reconcile.Result{}, o.stop(ctx)
	}
	if !o.Fresh() {
		return reconcile.Result{}, nil // the next renewal comes
	}
	lease, _, err := kube.LeaseSpec(ctx, o.Hub(), o.HubNamespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	ballot, err := o.gather(ctx, spec, liveness.Limits{
		Renew:  time.Duration(lease.RenewSeconds) * time.Second,
		Expiry: time.Duration(lease.DurationSeconds+lease.GraceSeconds) * time.Second,
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := o.start(ctx, spec, len(ballot.Live)); err != nil {
		return reconcile.Result{}, err
	}
	o.mu.Lock()
	same := reflect.DeepEqual(ballot, o.ballot) && floor(spec) == o.floor && !o.owing
	wait := time.Duration(0)
	if !o.changed.IsZero() {
		wait = time.Duration(lease.RenewSeconds)*time.Second - o.Now().Sub(o.changed)
	}
	if !same && wait <= 0 {
		o.ballot, o.floor, o.changed, o.owing = ballot, floor(spec), o.Now(), false
	}
	o.mu.Unlock()
	if same {
		return reconcile.Result{}, nil
	}
	if wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	copies, err := o.copies(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := o.judge(ctx, copies); err != nil {
		o.mu.Lock()
		o.ballot, o.changed = nil, time.Time{} // what was not written is due
		o.mu.Unlock()
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}

// gather reads who lives, by what the room sources has seen, and what they say on their Leases.
func (o *Observer) gather(ctx context.Context, spec *hubv1alpha1.ProbeSpec, l liveness.Limits) (*votes.Ballot, error) {
	var seen coordinationv1.LeaseList
	if err := o.Local.List(ctx, &seen, client.InNamespace(kube.SystemNamespace), client.HasLabels{liveness.LabelSource}); err != nil {
		return nil, err
	}
	b := &votes.Ballot{By: map[string]votes.Vote{}}
	if spec.OwnView {
		b.Own = o.Cluster
	}
	members, passed := []string{o.Cluster}, o.passed(l)
	for i := range seen.Items {
		if !liveness.StateOf(&seen.Items[i]).Expired {
			members = append(members, seen.Items[i].Labels[liveness.LabelSource])
		}
	}
	slices.Sort(members)
	for _, id := range slices.Compact(members) {
		lease, err := kube.Get[*coordinationv1.Lease](ctx, o.Hub(), types.NamespacedName{Namespace: o.HubNamespace, Name: id})
		if err != nil {
			return nil, err
		}
		if lease == nil {
			continue
		}
		b.Live = append(b.Live, id)
		v, silent := o.hear(id, lease, passed)
		// A vote is as fresh as its Lease, also of one that counts as alive because the hub is doubted (mostSilent: Hold).
		if len(v) > 0 && silent <= l.Expiry {
			b.By[id] = v
		}
	}
	return b, nil
}

// passed is how long the hub has been seen since the last call. A longer time than that between two own renewals was blindness.
func (o *Observer) passed(l liveness.Limits) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	was, now := o.seen, o.HubSeen()
	o.seen = now
	if passed := now.Sub(was); !was.IsZero() && passed > 0 && passed <= 2*l.Renew {
		return passed
	}
	return 0
}

// hear reads a vote, and how long its Lease has not been seen to be renewed. One that is nonsense is none, which is said once.
func (o *Observer) hear(id string, lease *coordinationv1.Lease, passed time.Duration) (votes.Vote, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h, known := o.heard[id]
	if renewed := liveness.RenewalOf(lease); renewed.After(h.renewed) {
		h.renewed, h.silent = renewed, 0
	} else {
		h.silent += passed
	}
	if text := votes.Said(lease); !known || h.text != text {
		h.text, h.vote = text, o.parse(id, text)
	}
	o.heard[id] = h
	return h.vote, h.silent
}

func (o *Observer) parse(id, text string) votes.Vote {
	v, err := votes.Parse(text)
	if err != nil {
		o.Events.Event(kube.System(), kube.Warning, "VoteRefused", fmt.Sprintf("What cluster %s says it does not reach (%s of its Lease on the hub) does not count: %v. Upgrade or look at that cluster.",
			id, votes.Annotation, err))
		return nil
	}
	return v
}

// start takes in the settings, and with the first of them what there is to look at.
func (o *Observer) start(ctx context.Context, spec *hubv1alpha1.ProbeSpec, live int) error {
	o.mu.Lock()
	resolved := o.known && o.spec.Default == spec.Default
	o.spec = *spec
	o.pace = votes.Pace{Interval: time.Duration(spec.IntervalSeconds) * time.Second, Timeout: time.Duration(spec.TimeoutSeconds) * time.Second}.For(live)
	if !o.known {
		o.seed = o.heard[o.Cluster].vote
	}
	o.mu.Unlock()
	if resolved && o.on.Load() {
		return nil
	}
	o.on.Store(true) // from now on, events ask for Services
	copies, err := o.copies(ctx)
	if err != nil {
		return err
	}
	done := map[types.NamespacedName]bool{}
	for i := range copies {
		name := kube.Exported(&copies[i])
		if done[name] {
			continue
		}
		done[name] = true
		if _, err := o.aim(ctx, name); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known, o.seed = true, nil
	return nil
}

// stop withholds nothing any more.
func (o *Observer) stop(ctx context.Context) error {
	o.mu.Lock()
	rests := o.known && !o.on.Load() && o.ballot == nil // else some are still to be written
	o.mu.Unlock()
	if rests {
		return nil
	}
	o.on.Store(false)
	o.mu.Lock()
	clear(o.targets)
	clear(o.looked)
	clear(o.beyond)
	clear(o.heard)
	o.ballot, o.changed = &votes.Ballot{}, time.Time{}
	o.mu.Unlock()
	copies, err := o.copies(ctx)
	if err != nil {
		return err
	}
	if err := o.judge(ctx, copies); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known, o.ballot = true, nil
	return nil
}

// copies are those of all records here. They are the cache's, and not to be changed.
func (o *Observer) copies(ctx context.Context) ([]hubv1alpha1.ServiceExportRecord, error) {
	var list hubv1alpha1.ServiceExportRecordList
	err := o.Local.List(ctx, &list, client.InNamespace(kube.SystemNamespace), client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// judge writes what the ballot says into the status of copies, where that differs. Those of which nothing was ever withheld bear nothing.
func (o *Observer) judge(ctx context.Context, copies []hubv1alpha1.ServiceExportRecord) error {
	o.judging.Lock()
	defer o.judging.Unlock()
	o.mu.Lock()
	ballot, keepLast := o.ballot, o.floor
	o.mu.Unlock()
	if ballot == nil {
		return nil
	}
	var errs []error
	for i := range copies {
		rec := &copies[i]
		if rec.Spec.ClusterID == o.Cluster {
			continue
		}
		addresses, by := ballot.Withheld(rec.Spec.ClusterID, rec.Name)
		if rec.Spec.Withdrawn {
			addresses, by = nil, nil // nor when it is back, before the members have looked
		} else if looked, known := o.looksAt(rec); !known && len(addresses) > 0 {
			continue // the hub shows none of its endpoints now: what is withheld of those that are held stays
		} else if !looked {
			addresses, by = nil, nil
		}
		before := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionReached)
		if len(addresses) == 0 && before == nil {
			continue
		}
		c := verdict(addresses, by, len(ballot.Live), keepLast)
		set, changed := conditions.Set(rec.Status.Conditions, []metav1.Condition{c}, rec.Generation, metav1.NewTime(o.Now()))
		if !changed && slices.Equal(addresses, rec.Status.Withheld) {
			continue
		}
		rec = rec.DeepCopy()
		rec.Status.Conditions, rec.Status.Withheld = set, addresses
		err := o.Local.Status().Update(ctx, rec)
		if flipped := before == nil || before.Status != c.Status; err == nil && flipped {
			log.FromContext(ctx).Info("what members reach", "record", rec.Name, "withheld", addresses, "by", by)
			if c.Status == metav1.ConditionFalse {
				o.Events.Event(rec, kube.Warning, "EndpointsWithheld", c.Message)
			}
		}
		errs = append(errs, kube.Gone(err))
	}
	return errors.Join(errs...)
}

// looksAt tells whether members look at the endpoints of a record: who votes on all of a cluster speaks of no others. known is false where
// the hub shows none.
func (o *Observer) looksAt(rec *hubv1alpha1.ServiceExportRecord) (looked, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	looked, known = o.looked[kube.Exported(rec)][rec.Name]
	return looked, known
}

// floor is keepLast, which is set unless it is said not to be.
func floor(spec *hubv1alpha1.ProbeSpec) bool { return spec.KeepLast == nil || *spec.KeepLast }

func verdict(addresses, by []string, live int, keepLast bool) metav1.Condition {
	if len(addresses) == 0 {
		return metav1.Condition{Type: hubv1alpha1.ConditionReached, Status: metav1.ConditionTrue, Reason: "Reached", Message: "Nothing of it is withheld."}
	}
	what := strings.Join(addresses[:min(len(addresses), 5)], ", ")
	switch n := len(addresses); {
	case addresses[0] == votes.All:
		what = "any of its endpoints"
	case n > 5:
		what += fmt.Sprintf(" and %d more", n-5)
	}
	unless := ""
	if keepLast {
		unless = ", unless a port of the Service has no others"
	}
	return metav1.Condition{Type: hubv1alpha1.ConditionReached, Status: metav1.ConditionFalse, Reason: endpoints.UnreachedReason(keepLast),
		Message: fmt.Sprintf("Of %d live members, these do not reach %s: %s. By the ClusterSet's spec.probe they are not ready here%s.", live, what, strings.Join(by, ", "), unless)}
}
