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

// The reasons of Events; the ClusterSet also gets those of its conditions.
const (
	ReasonNotAlone        = "NotAlone"
	ReasonBlockGranted    = "BlockGranted"
	ReasonBlockReleased   = "BlockReleased"
	ReasonBlockRefused    = "BlockRefused"
	ReasonBlockOverlaps   = "BlockOverlaps"
	ReasonPropertyInvalid = "PropertyInvalid"
)

// complaint is an Event that is not to come twice. It may after a restart.
type complaint struct {
	about           types.UID
	reason, message string
}

// tell reports what was done, and once each what is wrong. Events of one reason about one object are one: of
// several at a time only the
// first would be seen.
func (r *reconciler) tell(ctx context.Context, f *grants.Facts, set *hubv1alpha1.ClusterSet, plan *grants.Plan) {
	released := make([]string, 0, len(plan.Released))
	for _, b := range plan.Released {
		log.FromContext(ctx).Info("block released", "cluster", b.ClusterID, "block", b.CIDR)
		released = append(released, b.CIDR+" of "+b.ClusterID)
	}
	if len(released) > 0 {
		r.Events.Event(
			set,
			kube.Normal,
			ReasonBlockReleased,
			"Blocks of members that departed are free: "+grants.Few(released)+".",
		)
	}
	for _, c := range set.Status.Conditions {
		r.turned(meta.FindStatusCondition(f.Set.Status.Conditions, c.Type), &c, set)
	}
	profiles := map[string]*inventoryv1alpha1.ClusterProfile{}
	for i := range f.Profiles {
		profiles[f.Profiles[i].Name] = &f.Profiles[i]
	}
	var granted []grants.Said
	for _, b := range plan.Granted {
		log.FromContext(ctx).Info("block granted", "cluster", b.ClusterID, "block", b.CIDR)
		granted = append(granted, grants.Said{Member: b.ClusterID, Message: b.CIDR})
	}
	for member, blocks := range byMember(granted) {
		r.Events.Event(profiles[member], kube.Normal, ReasonBlockGranted, "It owns from now on: "+blocks+".")
	}
	r.complain(profiles, plan)
}

// complain leaves out what was said before. The block of somebody who has no ClusterProfile is the ClusterSet's
// condition only.
func (r *reconciler) complain(profiles map[string]*inventoryv1alpha1.ClusterProfile, plan *grants.Plan) {
	before := r.said
	r.said = map[complaint]bool{}
	first := func(member, reason, message string) bool {
		p := profiles[member]
		if p == nil {
			return false
		}
		c := complaint{p.UID, reason, message}
		r.said[c] = true
		return !before[c]
	}
	for member, message := range byMember(plan.Unreadable) {
		if first(member, ReasonPropertyInvalid, message) {
			r.Events.Event(profiles[member], kube.Warning, ReasonPropertyInvalid, message)
		}
	}
	for member, message := range byMember(plan.Overlaps) {
		if first(member, ReasonBlockOverlaps, message) {
			r.Events.Event(
				profiles[member],
				kube.Warning,
				ReasonBlockOverlaps,
				message+". It stays, since VIPs may be in use there: free that range, or renumber it. Until then "+
					"the member's ServiceCIDRs of the block give out no new VIP if they are annotated "+
					""+ipam.AnnotationDrain+"=.",
			)
		}
	}
	var refused []grants.Said
	for _, a := range plan.Refused {
		refused = append(refused, grants.Said{Member: a.Member, Message: a.Err.Error()})
	}
	for member, message := range byMember(refused) {
		if first(member, ReasonBlockRefused, message) {
			r.Events.Event(profiles[member], kube.Warning, ReasonBlockRefused, message)
		}
	}
}

// byMember puts together what is said about each.
func byMember(said []grants.Said) map[string]string {
	lists := map[string][]string{}
	for _, s := range said {
		lists[s.Member] = append(lists[s.Member], s.Message)
	}
	out := make(map[string]string, len(lists))
	for member, list := range lists {
		out[member] = grants.Few(slices.Compact(list))
	}
	return out
}

// turned reports a condition that turned bad, bad in another way, or good again.
func (r *reconciler) turned(was, is *metav1.Condition, set *hubv1alpha1.ClusterSet) {
	switch {
	case is.Status == metav1.ConditionFalse && (was == nil || was.Status != is.Status || was.Message != is.Message):
		r.Events.Event(set, kube.Warning, is.Reason, is.Message)
	case is.Status == metav1.ConditionTrue && was != nil && was.Status != is.Status:
		r.Events.Event(set, kube.Normal, is.Reason, is.Message)
	}
}
