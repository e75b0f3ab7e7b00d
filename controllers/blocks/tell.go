package blocks

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The reasons of Events; the ClusterSet gets those of its conditions besides.
const (
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

// tell reports what was done, and once each what is wrong.
func (r *reconciler) tell(ctx context.Context, f *grants.Facts, set *hubv1alpha1.ClusterSet, plan *grants.Plan) {
	for _, b := range plan.Released {
		log.FromContext(ctx).Info("block released", "cluster", b.ClusterID, "block", b.CIDR)
		r.Events.Event(set, kube.Normal, ReasonBlockReleased, fmt.Sprintf("Block %s of %s, which departed, is free.", b.CIDR, b.ClusterID))
	}
	for _, c := range set.Status.Conditions {
		r.turned(meta.FindStatusCondition(f.Set.Status.Conditions, c.Type), &c, set)
	}
	profiles := map[string]*inventoryv1alpha1.ClusterProfile{}
	for i := range f.Profiles {
		profiles[f.Profiles[i].Name] = &f.Profiles[i]
	}
	for _, b := range plan.Granted {
		log.FromContext(ctx).Info("block granted", "cluster", b.ClusterID, "block", b.CIDR)
		r.Events.Event(profiles[b.ClusterID], kube.Normal, ReasonBlockGranted, fmt.Sprintf("It owns block %s.", b.CIDR))
	}
	r.complain(profiles, plan)
}

func (r *reconciler) complain(profiles map[string]*inventoryv1alpha1.ClusterProfile, plan *grants.Plan) {
	before := r.said
	r.said = map[complaint]bool{}
	first := func(member, reason, message string) *inventoryv1alpha1.ClusterProfile {
		p := profiles[member]
		if p == nil {
			return nil // the block of one that is gone is the ClusterSet's condition
		}
		c := complaint{p.UID, reason, message}
		if before[c] || r.said[c] {
			p = nil
		}
		r.said[c] = true
		return p
	}
	for _, s := range plan.Unreadable {
		if p := first(s.Member, ReasonPropertyInvalid, s.Message); p != nil {
			r.Events.Event(p, kube.Warning, ReasonPropertyInvalid, s.Message)
		}
	}
	for _, s := range plan.Overlaps {
		if p := first(s.Member, ReasonBlockOverlaps, s.Message); p != nil {
			r.Events.Event(p, kube.Warning, ReasonBlockOverlaps, s.Message+". It stays, since VIPs may be in use there: free that range, or renumber it.")
		}
	}
	for _, s := range plan.Refused {
		if p := first(s.Member, ReasonBlockRefused, s.Err.Error()); p != nil {
			r.Events.Event(p, kube.Warning, ReasonBlockRefused, s.Err.Error())
		}
	}
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
