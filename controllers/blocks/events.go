package blocks

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Reasons of Events. Events about conditions of the ClusterSet have the reason of the condition.
const (
	ReasonMultipleClusterSets = "MultipleClusterSets"
	ReasonBlockGranted        = "BlockGranted"
	ReasonBlockReleased       = "BlockReleased"
	ReasonBlockRefused        = "BlockRefused"
	ReasonBlockOverlaps       = "BlockOverlaps"
	ReasonPropertyInvalid     = "PropertyInvalid"
)

// warning identifies an Event that is sent once while it applies, and again after a restart.
type warning struct {
	profile         types.UID
	reason, message string
}

// report logs and reports what a pass changed, and each problem once. It sends one Event for each reason and object:
// Events of one reason about one object are aggregated, and only the first message would be visible.
func (r *reconciler) report(ctx context.Context, f *grants.Facts, set *hubv1alpha1.ClusterSet, plan *grants.Plan) {
	released := make([]string, 0, len(plan.Released))
	for _, b := range plan.Released {
		log.FromContext(ctx).Info("block released", "cluster", b.ClusterID, "block", b.CIDR)
		released = append(released, b.CIDR+" of "+b.ClusterID)
	}
	if len(released) > 0 {
		r.Events.Event(set, kube.Normal, ReasonBlockReleased,
			"Blocks of members that departed are free: "+grants.Summary(released)+".")
	}
	for _, c := range set.Status.Conditions {
		r.reportTransition(set, meta.FindStatusCondition(f.Set.Status.Conditions, c.Type), &c)
	}
	profiles := map[string]*inventoryv1alpha1.ClusterProfile{}
	for i := range f.Profiles {
		profiles[f.Profiles[i].Name] = &f.Profiles[i]
	}
	var granted []grants.Finding
	for _, b := range plan.Granted {
		log.FromContext(ctx).Info("block granted", "cluster", b.ClusterID, "block", b.CIDR)
		granted = append(granted, grants.Finding{Member: b.ClusterID, Message: b.CIDR})
	}
	for member, blocks := range byMember(granted) {
		r.Events.Event(profiles[member], kube.Normal, ReasonBlockGranted, "New blocks of this member: "+blocks+".")
	}
	r.reportWarnings(profiles, plan)
}

// reportWarnings reports warnings that the previous pass did not have. A member without a ClusterProfile gets none: the
// conditions of the ClusterSet name it.
func (r *reconciler) reportWarnings(profiles map[string]*inventoryv1alpha1.ClusterProfile, plan *grants.Plan) {
	before := r.reported
	r.reported = map[warning]bool{}
	var refused []grants.Finding
	for _, a := range plan.Refused {
		refused = append(refused, grants.Finding{Member: a.Member, Message: a.Err.Error()})
	}
	type finding struct {
		members        []grants.Finding
		reason, remedy string
	}
	for _, f := range []finding{
		{plan.Unreadable, ReasonPropertyInvalid, ""},
		{plan.Overlaps, ReasonBlockOverlaps, ". The block stays, because VIPs may be in use there: free that range, " +
			"or renumber it. To stop new VIPs until then, annotate the member's ServiceCIDRs of the block with " +
			ipam.AnnotationDrain + "=."},
		{refused, ReasonBlockRefused, ""},
	} {
		for member, message := range byMember(f.members) {
			p := profiles[member]
			if p == nil {
				continue
			}
			w := warning{p.UID, f.reason, message}
			r.reported[w] = true
			if !before[w] {
				r.Events.Event(p, kube.Warning, f.reason, message+f.remedy)
			}
		}
	}
}

// byMember joins the messages of each member.
func byMember(findings []grants.Finding) map[string]string {
	messages := map[string][]string{}
	for _, f := range findings {
		messages[f.Member] = append(messages[f.Member], f.Message)
	}
	joined := make(map[string]string, len(messages))
	for member, list := range messages {
		joined[member] = grants.Summary(slices.Compact(list))
	}
	return joined
}

// reportTransition reports a condition that became False, is False with another message, or became True again.
func (r *reconciler) reportTransition(set *hubv1alpha1.ClusterSet, before, after *metav1.Condition) {
	switch {
	case after.Status == metav1.ConditionFalse &&
		(before == nil || before.Status != after.Status || before.Message != after.Message):
		r.Events.Event(set, kube.Warning, after.Reason, after.Message)
	case after.Status == metav1.ConditionTrue && before != nil && before.Status != after.Status:
		r.Events.Event(set, kube.Normal, after.Reason, after.Message)
	}
}
