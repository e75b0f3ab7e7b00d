package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
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
	if err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return o.Hub.Failed(err, "listing ClusterProfiles")
	}
	if role := cluster.RoleOf(ctx, o.Hub); len(all.Items) == 0 && !slices.Contains(role.HubOf, o.HubNamespace) {
		return o.noSet(ctx, "name the hub with --hub-context")
	}
	if err := evictable(all.Items, id); err != nil {
		return fmt.Errorf("%s, ClusterSet %s: %w", o.Hub.Name, o.HubNamespace, err)
	}
	if o.DryRun != nil {
		_, err := fmt.Fprintf(o.DryRun, onHub, o.Hub.Name, o.HubNamespace, id)
		return err
	}
	if err := o.Hub.Allowed(ctx, []cluster.Right{deleteClaims(o.HubNamespace)}); err != nil {
		return err
	}
	if err := o.giveUp(ctx, id, ""); err != nil {
		return err
	}
	o.Say("if that cluster still exists, its imports stay until: %s",
		o.Flags.OfHub().Here("kubectl clusterset leave --context MEMBER --hub-context=HUB"))
	return nil
}

// deleteClaims is the right to delete ClusterProfiles.
func deleteClaims(namespace string) cluster.Right {
	return cluster.Right{Verb: "delete", Group: inventoryv1alpha1.GroupVersion.Group, Resource: "clusterprofiles",
		Namespace: namespace}
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

// inUse returns why a claim of this cluster must stay, or "". Its agent does not run, so whoever renews its Lease is a
// clone, or the cluster that this one is a clone of. With Force, nobody waits to see that.
func (l *leave) inUse(ctx context.Context, id string) (why string, err error) {
	name := types.NamespacedName{Namespace: l.HubNamespace, Name: id}
	p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, l.Hub, name)
	switch {
	case err != nil:
		return "", l.Hub.Failed(err, "reading ClusterProfile %s", id)
	case p == nil || p.DeletionTimestamp != nil || p.Annotations[clusterset.AnnotationClusterUID] == "" ||
		p.Annotations[clusterset.AnnotationLeft] != "":
		return "", nil
	case l.Force:
		return "it is in use", nil
	}
	began, version := time.Now(), ""
	err = cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		lease, err := kube.Get[*coordinationv1.Lease](ctx, l.Hub, name)
		if err != nil || lease == nil {
			return err == nil, "", err
		}
		version = cmp.Or(version, lease.ResourceVersion)
		if version != lease.ResourceVersion {
			why = "another agent renews its Lease"
		}
		lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
		return why != "" || time.Since(began) > lasts, "its Lease has not expired yet", nil
	})
	return why, l.Hub.Failed(err, "waiting for the end of Lease %s", id)
}

// giveUp deletes a claim, unless its member has left, and waits until the hub's controller has cleaned up after it.
// With a uid, it leaves another cluster's claim alone.
func (o *Options) giveUp(ctx context.Context, id, uid string) error {
	name := types.NamespacedName{Namespace: o.HubNamespace, Name: id}
	var gone types.UID // of the claim that is deleted
	say := o.Say.Waiting("clusterset-controller hub", o.Timeout)
	err := cluster.Until(ctx, o.Timeout, func(ctx context.Context) (bool, string, error) {
		p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, o.Hub, name)
		switch {
		case err != nil && !meta.IsNoMatchError(err):
			return false, "", err
		case p == nil || uid != "" && !heldBy(p, uid) || gone != "" && p.UID != gone:
			return true, "", nil
		case p.DeletionTimestamp == nil && p.Annotations[clusterset.AnnotationLeft] == "" && gone == "":
			if err := kube.DeleteUnchanged(ctx, o.Hub.Client, p); err != nil {
				return false, "", err
			}
			o.Say("the hub: deleting ClusterProfile %s", id)
		}
		gone = p.UID
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
		return report.WithRemedy(err, o.Flags.AtHub(facts.Doctor))
	}
	o.Say("the hub: removed %s, with its credentials, records and Lease", id)
	return nil
}
