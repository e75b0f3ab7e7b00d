package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Evict removes a member from the hub's side.
func Evict(ctx context.Context, o *Options, id string) error {
	if _, err := checkServer(ctx, o.Hub, o.Say); err != nil {
		return err
	}
	var all inventoryv1alpha1.ClusterProfileList
	switch err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); {
	case err != nil && !meta.IsNoMatchError(err):
		return o.Hub.Failed(err, "listing ClusterProfiles")
	case len(all.Items) == 0:
		var sets hubv1alpha1.ClusterSetList
		if err := o.Hub.List(ctx, &sets, client.InNamespace(o.HubNamespace)); err == nil && len(sets.Items) > 0 {
			break // without members
		}
		return o.noSet(ctx, "name the hub with --hub-context")
	}
	if err := evictable(all.Items, id); err != nil {
		return fmt.Errorf("%s, ClusterSet %s: %w", o.Hub.Name, o.HubNamespace, err)
	}
	if o.DryRun != nil {
		_, err := fmt.Fprintf(o.DryRun, onHub+"ClusterProfile %s/%s\n", o.Hub.Name, "", o.HubNamespace, id)
		return err
	}
	if err := o.Hub.Allowed(ctx, []cluster.Right{deleteClaim(o.HubNamespace, id)}); err != nil {
		return err
	}
	if err := giveUp(ctx, o, id, 0, "", false); err != nil {
		return err
	}
	o.Say("if that cluster still exists, its imports stay until: kubectl clusterset leave --context MEMBER " +
		"--hub-context HUB")
	return nil
}

// deleteClaim is the right to delete a member's ClusterProfile.
func deleteClaim(namespace, id string) cluster.Right {
	return cluster.Right{Verb: "delete", Group: inventoryv1alpha1.GroupVersion.Group, Resource: "clusterprofiles",
		Namespace: namespace, Name: id}
}

// evictable is the error if id is no member: another cluster manager's ClusterProfile is not ours to delete.
func evictable(all []inventoryv1alpha1.ClusterProfile, id string) error {
	var ids []string
	for i := range all {
		manager := all[i].Spec.ClusterManager.Name
		switch {
		case manager == clusterset.ClusterManager && all[i].Name == id:
			return nil
		case manager == clusterset.ClusterManager:
			ids = append(ids, all[i].Name)
		case all[i].Name == id:
			return fmt.Errorf("ClusterProfile %s belongs to the cluster manager %s, and is no member", id, manager)
		}
	}
	return fmt.Errorf("there is no member %s; members are: %s", id, cmp.Or(strings.Join(ids, ", "), "none"))
}

// giveUp waits until a ClusterProfile is gone, and deletes it if it still exists after patience. With a uid, it deletes
// only that cluster's claim. It leaves one in use until its Lease has expired, or for good if force: a clone has the
// same UID.
func giveUp(ctx context.Context, o *Options, id string, patience time.Duration, uid string, force bool) error {
	name := types.NamespacedName{Namespace: o.HubNamespace, Name: id}
	deadline := time.Now().Add(patience)
	var deleted types.UID // of the claim that was deleted
	say := o.Say.Waiting("clusterset-controller hub", o.Timeout)
	taken, renewed := false, false // another cluster holds the claim; another agent renewed the Lease
	spared := false                // force leaves the claim
	began, firstVersion := time.Now(), ""
	err := cluster.Until(ctx, o.Timeout, func(ctx context.Context) (bool, string, error) {
		p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, o.Hub, name)
		if err != nil && !meta.IsNoMatchError(err) {
			return false, "", err
		}
		if p == nil || uid != "" && !heldBy(p, uid) || deleted != "" && p.UID != deleted {
			taken = p != nil && deleted == ""
			return true, "", nil
		}
		if uid != "" && claimInUse(p) {
			if spared = force; spared {
				return true, "", nil
			}
			now, err := kube.Get[*coordinationv1.Lease](ctx, o.Hub, name)
			if err != nil {
				return false, "", err
			}
			if now != nil {
				firstVersion = cmp.Or(firstVersion, kube.Version(now))
				renewed = kube.Version(now) != firstVersion
				expires := began.Add(time.Duration(ptr.Deref(now.Spec.LeaseDurationSeconds, 0)) * time.Second)
				if renewed || time.Now().Before(expires) {
					return renewed, "its Lease on the hub has not expired yet", nil
				}
			}
		}
		if p.DeletionTimestamp != nil {
			deleted = p.UID // by another run
		}
		if deleted == "" && time.Now().After(deadline) {
			if err := kube.DeleteUnchanged(ctx, o.Hub.Client, p); err != nil {
				return false, "", err
			}
			deleted = p.UID
			o.Say("the hub: deleting ClusterProfile %s", id)
		}
		why := "ClusterProfile " + id + " still exists"
		if pods := hubPodsWait(ctx, o); pods != "" {
			why += "; clusterset-controller hub: " + pods
		}
		say(why)
		return false, why, nil
	})
	if err != nil {
		err = o.Hub.Failed(err, "waiting for clusterset-controller hub to clean up after %s", id)
		if apierrors.IsForbidden(err) { // it is not the Deployment's fault
			return err
		}
		return report.WithRemedy(err, facts.StartHub(manifest.HubDeployment(o.HubNamespace)))
	}
	if spared {
		o.Say("the hub: %s stays: it is in use, and --force deletes no claim in use; if this cluster is no clone: %s",
			id, o.evict(id))
		return nil
	}
	if renewed {
		o.Say("the hub: %s stays: another agent renews its Lease, so this cluster is a clone of that member", id)
		return nil
	}
	if taken {
		o.Say("the hub: the claim on %s is gone, and there is another", id)
		return nil
	}
	o.Say("the hub: removed %s, with its credentials, records and Lease", id)
	return nil
}
