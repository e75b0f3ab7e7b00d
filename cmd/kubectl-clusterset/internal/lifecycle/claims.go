package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// claimable sets mine if the claim is this cluster's already, and fails if it cannot be claimed.
func (j *join) claimable(ctx context.Context) (err error) {
	name := types.NamespacedName{Namespace: j.HubNamespace, Name: j.ClusterID}
	p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, j.Hub, name)
	if err != nil {
		return j.Hub.Failed(err, "reading ClusterProfile %s", name)
	}
	if j.lease, err = kube.Get[*coordinationv1.Lease](ctx, j.Hub, name); err != nil {
		return j.Hub.Failed(err, "reading Lease %s", name)
	}
	all, err := j.held(ctx, j.uid)
	if err != nil {
		return err
	}
	for i := range all { // a claim in use may be a clone's, and so may any other of a member
		if id := all[i].Name; id != j.ClusterID && j.setProperty == nil &&
			all[i].Annotations[clusterset.AnnotationClusterUID] == "" {
			return report.WithRemedy(fmt.Errorf("%s has an unfinished join as %s", j.Member.Name, id),
				"join with --cluster-id "+id+", or undo it: "+j.Flags.Here(facts.Leave))
		}
	}
	if j.mine = p != nil; j.mine {
		return j.taken(p)
	}
	if j.Renew {
		return report.WithRemedy(fmt.Errorf("%s has no ClusterProfile %s: this cluster was evicted, or the hub was "+
			"restored from an earlier backup, or this is another hub", j.Hub.Name, j.ClusterID), "to be a member "+
			"again with its cluster ID and VIPs: "+j.Flags.Here(facts.Join)+"; to remove what is left here: "+
			j.Flags.Here(facts.Leave))
	}
	return nil
}

// taken is the error if a claim is not for this cluster.
func (j *join) taken(p *inventoryv1alpha1.ClusterProfile) error {
	holder := cmp.Or(p.Annotations[clusterset.AnnotationClusterUID], p.Annotations[clusterset.AnnotationJoiningUID])
	switch {
	case p.DeletionTimestamp != nil || p.Annotations[clusterset.AnnotationLeft] != "":
		return report.WithRemedy(fmt.Errorf("cluster ID %s is not free yet on %s: its records are being deleted",
			p.Name, j.Hub.Name), "wait, or check that clusterset-controller hub runs, and run the command again")
	case holder == "":
		return report.WithRemedy(fmt.Errorf(
			"cluster ID %s is taken on %s, by a ClusterProfile with no recorded owner",
			p.Name,
			j.Hub.Name,
		), "choose another with --cluster-id; if it was created for this cluster: "+j.Flags.AtHub("kubectl -n "+
			p.Namespace+" annotate clusterprofile "+p.Name+" "+clusterset.AnnotationJoiningUID+"="+j.uid))
	case holder != j.uid:
		return report.WithRemedy(fmt.Errorf("cluster ID %s is taken on %s, by the cluster whose kube-system has the "+
			"UID %s", p.Name, j.Hub.Name, holder), "choose another with --cluster-id, or, if that cluster is lost: "+
			j.evict(p.Name))
	}
	return nil
}

// claim creates the ClusterProfile. If two clusters try at once, one succeeds.
func (j *join) claim(ctx context.Context) error {
	if j.mine {
		j.Say("the hub: this cluster already holds cluster ID %s", j.ClusterID)
		return nil
	}
	err := j.Hub.Create(ctx, firstOf(j.hubSide, "ClusterProfile").DeepCopy(), client.FieldOwner(manifest.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		return j.claimable(ctx)
	}
	if err != nil {
		return j.Hub.Failed(err, "claiming cluster ID %s", j.ClusterID)
	}
	j.Say("the hub: claimed cluster ID %s", j.ClusterID)
	return nil
}

// held returns the claims of a cluster with this UID.
func (o *Options) held(ctx context.Context, uid string) (out []inventoryv1alpha1.ClusterProfile, err error) {
	if o.Hub == nil {
		return nil, nil
	}
	var all inventoryv1alpha1.ClusterProfileList
	if err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return nil, o.Hub.Failed(err, "listing ClusterProfiles")
	}
	return slices.DeleteFunc(all.Items, func(p inventoryv1alpha1.ClusterProfile) bool { return !heldBy(&p, uid) }), nil
}

// heldBy reports whether the cluster with this UID holds a claim, or is about to.
func heldBy(p *inventoryv1alpha1.ClusterProfile, uid string) bool {
	holder := p.Annotations[clusterset.AnnotationClusterUID]
	return holder == uid || holder == "" && p.Annotations[clusterset.AnnotationJoiningUID] == uid
}
