package blocks

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Reasons of Events. Events about conditions of the ClusterSet have the reason of the condition.
const (
	ReasonMultipleClusterSets = "MultipleClusterSets"
	ReasonPropertyInvalid     = "PropertyInvalid"
)

// report logs what a pass changed, and reports changed conditions and properties that are unreadable. The conditions
// name who gets no block, and which ranges overlap.
func (r *reconciler) report(ctx context.Context, f *grants.Facts, set *hubv1alpha1.ClusterSet, plan *grants.Plan) {
	for _, b := range plan.Released {
		log.FromContext(ctx).Info("block released", "cluster", b.ClusterID, "block", b.CIDR)
	}
	for _, b := range plan.Granted {
		log.FromContext(ctx).Info("block granted", "cluster", b.ClusterID, "block", b.CIDR)
	}
	for _, c := range set.Status.Conditions {
		r.reportTransition(set, meta.FindStatusCondition(f.Set.Status.Conditions, c.Type), &c)
	}
	for _, u := range plan.Unreadable {
		// The plan names only members that f has.
		i := slices.IndexFunc(f.Profiles, func(p inventoryv1alpha1.ClusterProfile) bool { return p.Name == u.Member })
		r.Events.Event(&f.Profiles[i], kube.Warning, ReasonPropertyInvalid, u.Message)
	}
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
