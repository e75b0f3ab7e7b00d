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
	"k8s.io/utils/ptr"
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

// count counts the votes. The result changes once per renewal interval at most, so that a flapping or malicious
// member causes no more writes.
func (o *Observer) count(ctx context.Context) (reconcile.Result, error) {
	spec, found, err := kube.ProbeSpec(ctx, o.Hub(), o.HubNamespace)
	if err != nil || !found { // an emptied hub says nothing
		return reconcile.Result{}, err
	}
	if spec == nil {
		return reconcile.Result{}, o.stop(ctx)
	}
	if !o.Fresh() {
		return reconcile.Result{}, nil // the next renewal requests a count
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
	same := reflect.DeepEqual(ballot, o.ballot) && keepLast(spec) == o.keepLast && !o.pending
	wait := time.Duration(0)
	if !o.changed.IsZero() {
		wait = time.Duration(lease.RenewSeconds)*time.Second - o.Now().Sub(o.changed)
	}
	if !same && wait <= 0 {
		o.ballot, o.keepLast, o.changed, o.pending = ballot, keepLast(spec), o.Now(), false
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
	if err := o.writeStatus(ctx, copies); err != nil {
		o.mu.Lock()
		o.ballot, o.changed = nil, time.Time{} // write again
		o.mu.Unlock()
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}

// gather reads which members are live, as the package sources decided, and their votes.
func (o *Observer) gather(ctx context.Context, spec *hubv1alpha1.ProbeSpec, l liveness.Limits) (*votes.Ballot, error) {
	var seen coordinationv1.LeaseList
	if err := o.Local.List(
		ctx, &seen, client.InNamespace(kube.SystemNamespace), client.HasLabels{liveness.LabelSource},
	); err != nil {
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
		lease, err := kube.Get[*coordinationv1.Lease](
			ctx, o.Hub(), types.NamespacedName{Namespace: o.HubNamespace, Name: id},
		)
		if err != nil {
			return nil, err
		}
		if lease == nil {
			continue
		}
		b.Live = append(b.Live, id)
		v, silent := o.read(id, lease, passed)
		// The vote of a silent member does not count, even if it is held as live (mostSilent: Hold).
		if len(v) > 0 && silent <= l.Expiry {
			b.By[id] = v
		}
	}
	return b, nil
}

// passed returns how long the hub has been seen since the last call, or zero after a gap.
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

// read returns the vote of a member and for how long its Lease was not renewed. An invalid vote counts as none and is
// reported once.
func (o *Observer) read(id string, lease *coordinationv1.Lease, passed time.Duration) (votes.Vote, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h, known := o.votes[id]
	if renewed := liveness.RenewalOf(lease); renewed.After(h.renewed) {
		h.renewed, h.silent = renewed, 0
	} else {
		h.silent += passed
	}
	if text := votes.Read(lease); !known || h.text != text {
		h.text, h.vote = text, o.parse(id, text)
	}
	o.votes[id] = h
	return h.vote, h.silent
}

func (o *Observer) parse(id, text string) votes.Vote {
	v, err := votes.Parse(text)
	if err != nil {
		o.Events.Event(
			kube.System(),
			kube.Warning,
			"VoteRefused",
			fmt.Sprintf(
				"The vote of cluster %s (annotation %s of its Lease) does not count: %v. Upgrade that cluster.",
				id,
				votes.Annotation,
				err,
			),
		)
		return nil
	}
	return v
}

// start stores the settings and, when they change, updates the targets of all Services.
func (o *Observer) start(ctx context.Context, spec *hubv1alpha1.ProbeSpec, live int) error {
	o.mu.Lock()
	upToDate := o.known && o.spec.Default == spec.Default
	o.spec = *spec
	o.pace = votes.Pace{
		Interval: time.Duration(spec.IntervalSeconds) * time.Second,
		Timeout:  time.Duration(spec.TimeoutSeconds) * time.Second,
	}.For(live)
	if !o.known {
		o.seed = o.votes[o.Cluster].vote
	}
	o.mu.Unlock()
	if upToDate && o.on.Load() {
		return nil
	}
	o.on.Store(true) // from now on, events request Services
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
		if _, err := o.updateTargets(ctx, name); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known, o.seed = true, nil
	return nil
}

// stop forgets everything and clears the conditions.
func (o *Observer) stop(ctx context.Context) error {
	o.mu.Lock()
	stopped := o.known && !o.on.Load() && o.ballot == nil
	o.mu.Unlock()
	if stopped {
		return nil
	}
	o.on.Store(false)
	o.mu.Lock()
	clear(o.targets)
	clear(o.probed)
	clear(o.notProbed)
	clear(o.votes)
	o.ballot, o.changed = &votes.Ballot{}, time.Time{}
	o.mu.Unlock()
	copies, err := o.copies(ctx)
	if err != nil {
		return err
	}
	if err := o.writeStatus(ctx, copies); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known, o.ballot = true, nil
	return nil
}

// copies returns all records in this cluster. They belong to the cache.
func (o *Observer) copies(ctx context.Context) ([]hubv1alpha1.ServiceExportRecord, error) {
	var list hubv1alpha1.ServiceExportRecordList
	err := o.Local.List(ctx, &list, client.InNamespace(kube.SystemNamespace), client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// writeStatus writes what is withheld into the status of copies that differ. A copy without withheld endpoints so far
// has no condition.
func (o *Observer) writeStatus(ctx context.Context, copies []hubv1alpha1.ServiceExportRecord) error {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.mu.Lock()
	ballot, keepLast := o.ballot, o.keepLast
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
			addresses, by = nil, nil
		} else if probed, known := o.isProbed(rec); !known && len(addresses) > 0 {
			continue // the endpoints are held: what is withheld of them stays
		} else if !probed {
			addresses, by = nil, nil
		}
		before := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionReached)
		if len(addresses) == 0 && before == nil {
			continue
		}
		c := reached(addresses, by, len(ballot.Live), keepLast)
		set, changed := conditions.Set(
			rec.Status.Conditions, []metav1.Condition{c}, rec.Generation, metav1.NewTime(o.Now()),
		)
		if !changed && slices.Equal(addresses, rec.Status.Withheld) {
			continue
		}
		rec = rec.DeepCopy()
		rec.Status.Conditions, rec.Status.Withheld = set, addresses
		err := o.Local.Status().Update(ctx, rec)
		if flipped := before == nil || before.Status != c.Status; err == nil && flipped {
			log.FromContext(ctx).Info("withheld endpoints changed", "record", rec.Name, "withheld", addresses, "by", by)
			if c.Status == metav1.ConditionFalse {
				o.Events.Event(rec, kube.Warning, "EndpointsWithheld", c.Message)
			}
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}

// isProbed reports whether members probe the endpoints of a record: a vote about a whole cluster means these only.
// known is false if the hub shows no endpoints.
func (o *Observer) isProbed(rec *hubv1alpha1.ServiceExportRecord) (probed, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	probed, known = o.probed[kube.Exported(rec)][rec.Name]
	return probed, known
}

// keepLast returns spec.probe.keepLast, which is true by default.
func keepLast(spec *hubv1alpha1.ProbeSpec) bool { return ptr.Deref(spec.KeepLast, true) }

// reached returns the condition Reached.
func reached(addresses, by []string, live int, keepLast bool) metav1.Condition {
	if len(addresses) == 0 {
		return metav1.Condition{
			Type:    hubv1alpha1.ConditionReached,
			Status:  metav1.ConditionTrue,
			Reason:  "Reached",
			Message: "No endpoint is withheld.",
		}
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
	return metav1.Condition{
		Type:   hubv1alpha1.ConditionReached,
		Status: metav1.ConditionFalse,
		Reason: endpoints.UnreachedReason(keepLast),
		Message: fmt.Sprintf(
			"Of %d live members, these do not reach %s: %s. They are not ready here%s (ClusterSet spec.probe).",
			live,
			what,
			strings.Join(by, ", "),
			unless,
		),
	}
}
