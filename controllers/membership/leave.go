package membership

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// orForce is the way out without a hub.
const orForce = "; if the hub is gone for good: kubectl annotate clusterproperty " + clusterset.PropertySet + " " + clusterset.AnnotationLeaving + "=" + clusterset.LeavingForced + " --overwrite"

// refusedLeaving says what it means that the hub does not take the credentials of a member that is leaving.
func refusedLeaving(err error) error {
	if refuses(err) {
		return fmt.Errorf("the hub does not take this member's credentials: either they ran out (kubectl clusterset join --renew, with which it goes on leaving), or it was evicted (kubectl clusterset leave, with --hub-context): %w", err)
	}
	return err
}

// leave takes this cluster out of its clusterset: its records on the hub are withdrawn, so that nobody sends traffic here; what the agent
// made here is deleted; the hub is told; and clusterset.k8s.io goes last, so that every step can be taken again after a crash. It runs
// without any controller beside it. On the hub nothing is touched while another cluster may speak for this member.
func (g *Gate) leave(ctx context.Context, set *aboutv1beta1.ClusterProperty) error {
	progress := set.Annotations[clusterset.AnnotationLeaving]
	alone := progress == clusterset.LeavingWithdrawn
	if progress == clusterset.LeavingForced {
		asking, cancel := context.WithTimeout(ctx, 3*time.Second)
		rival, err := g.rival(asking)
		cancel()
		alone = rival == "" && err == nil
	} else if !alone {
		rival, err := g.rival(ctx)
		if rival != "" {
			return fmt.Errorf("leaving: %s", rival)
		}
		if err == nil {
			err = g.withdraw(ctx)
		}
		if err != nil {
			return fmt.Errorf("leaving: this cluster's records on the hub must be withdrawn first: %w%s", refusedLeaving(err), orForce)
		}
		set = set.DeepCopy()
		set.Annotations[clusterset.AnnotationLeaving] = clusterset.LeavingWithdrawn
		if err := g.Local.Update(ctx, set); err != nil {
			return err
		}
		alone = true
	}
	if err := g.clean(ctx); err != nil {
		return fmt.Errorf("leaving: %w", err)
	}
	var err error
	if alone {
		telling, cancel := context.WithTimeout(ctx, 3*time.Second)
		err = g.tell(telling)
		cancel()
	}
	if progress == clusterset.LeavingForced {
		// The hub may hold the claim on, and this cluster must not come back by itself: it knows no token any more.
		if err := g.forget(ctx); err != nil {
			return fmt.Errorf("leaving: %w", err)
		}
		g.forced = true // from when it is no member here
	} else if err != nil {
		return fmt.Errorf("leaving: its records are withdrawn, and the hub must be told: %w%s", err, orForce)
	}
	if err := g.renounce(ctx); err != nil {
		return fmt.Errorf("leaving: %w", err)
	}
	log.FromContext(ctx).Info("left", "clusterset", set.Spec.Value)
	return kube.Gone(g.Local.Delete(ctx, set))
}

// withdraw takes back every record of this member.
func (g *Gate) withdraw(ctx context.Context) error {
	hub, err := g.Hub()
	if err != nil {
		return err
	}
	for _, list := range []client.ObjectList{&hubv1alpha1.ServiceExportRecordList{}, &hubv1alpha1.EndpointRecordList{}} {
		err := g.each(ctx, hub, list, func(o client.Object) error {
			origin := kube.Origin(o)
			if origin.ClusterID != g.Cluster || origin.Withdrawn {
				return nil
			}
			gone := clusterset.Withdrawn(*origin, g.Now())
			switch rec := o.(type) {
			case *hubv1alpha1.ServiceExportRecord:
				rec.Spec = hubv1alpha1.ServiceExportRecordSpec{Origin: gone}
			case *hubv1alpha1.EndpointRecord:
				rec.Spec = hubv1alpha1.EndpointRecordSpec{Origin: gone}
			}
			return kube.Gone(hub.Update(ctx, o))
		}, client.InNamespace(g.HubNamespace))
		if err != nil {
			return err
		}
	}
	return nil
}

// Clean deletes what the agent made in this cluster, and what it said of users' ServiceExports. Users' objects stay.
func (g *Gate) Clean(ctx context.Context) error {
	if err := g.clean(ctx); err != nil {
		return err
	}
	return g.renounce(ctx)
}

// renounce deletes what tells that this cluster's renewal on the hub is the last one. As long as the hub is to be told of a leave, however
// many attempts that takes, nothing else shows that this is no clone (rival).
func (g *Gate) renounce(ctx context.Context) error {
	return kube.Gone(g.Local.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed}}))
}

// clean is Clean but for what renounce deletes.
func (g *Gate) clean(ctx context.Context) error {
	ours := client.MatchingLabels{derived.LabelManagedBy: kube.Manager}
	slices := client.MatchingLabels{discoveryv1.LabelManagedBy: kube.Manager}
	system := &client.ListOptions{Namespace: kube.SystemNamespace, LabelSelector: labels.SelectorFromSet(labels.Set(ours))}
	remove := func(o client.Object) error { return kube.Gone(g.Local.Delete(ctx, o)) }
	for _, of := range []struct {
		list client.ObjectList
		on   client.ListOption
		do   func(client.Object) error
	}{
		{&mcsv1beta1.ServiceImportList{}, ours, remove},
		{&discoveryv1.EndpointSliceList{}, slices, remove},
		{&corev1.ServiceList{}, ours, func(o client.Object) error {
			svc := o.(*corev1.Service)
			if name := derived.Import(svc.Annotations); derived.Name(svc.Namespace, name.Name) != svc.Name {
				return nil // a user's copy
			}
			return remove(svc)
		}},
		{&aboutv1beta1.ClusterPropertyList{}, ours, remove},
		{&hubv1alpha1.ServiceExportRecordList{}, client.InNamespace(kube.SystemNamespace), remove},
		{&coordinationv1.LeaseList{}, system, func(o client.Object) error {
			if o.GetName() == clusterset.LeaseRenewed {
				return nil
			}
			return remove(o)
		}},
		{&mcsv1beta1.ServiceExportList{}, client.InNamespace(metav1.NamespaceAll), g.unsay(ctx)},
	} {
		if err := g.each(ctx, g.Local, of.list, of.do, of.on); err != nil {
			return err
		}
	}
	return g.cleanRanges(ctx)
}

// cleanRanges lets go of users' ranges, and deletes those that the agent made before their fences: one that is being deleted gives out
// nothing, and stays as long as ordinary Services are in it.
func (g *Gate) cleanRanges(ctx context.Context) error {
	release := func(o client.Object) error {
		if controllerutil.RemoveFinalizer(o, clusterset.FinalizerVIPs) {
			if err := g.Local.Update(ctx, o); err != nil {
				return kube.Gone(err)
			}
		}
		if o.GetLabels()[derived.LabelManagedBy] != kube.Manager {
			return nil
		}
		return kube.Gone(g.Local.Delete(ctx, o))
	}
	fence := client.MatchingLabels{networkingv1.LabelManagedBy: kube.Manager}
	err := g.each(ctx, g.Local, &networkingv1.ServiceCIDRList{}, release, &client.ListOptions{})
	if err == nil {
		err = g.each(ctx, g.Local, &networkingv1.IPAddressList{}, func(o client.Object) error { return kube.Gone(g.Local.Delete(ctx, o)) }, fence)
	}
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil // this cluster has none, and had none that the agent could have made (V7)
	}
	return err
}

// unsay removes the agent's conditions from a ServiceExport.
func (g *Gate) unsay(ctx context.Context) func(client.Object) error {
	return func(o client.Object) error {
		export := o.(*mcsv1beta1.ServiceExport)
		said := len(export.Status.Conditions)
		for _, c := range []mcsv1beta1.ServiceExportConditionType{
			mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady, mcsv1beta1.ServiceExportConditionConflict,
		} {
			meta.RemoveStatusCondition(&export.Status.Conditions, string(c))
		}
		if len(export.Status.Conditions) == said {
			return nil
		}
		return kube.Gone(g.Local.Status().Update(ctx, export))
	}
}

// tell marks this member's ClusterProfile as left, by which the hub takes its credentials away and cleans up. Once its records are
// withdrawn, a hub that does not know this member any more has done so already; but one that says so of a token that has run out may not have,
// and holds the id (ID4).
func (g *Gate) tell(ctx context.Context) error {
	token, err := g.Token() // before it is used, since another may take its place
	if err != nil {
		return err
	}
	hub, err := g.Hub()
	if err != nil {
		return err
	}
	profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, hub, types.NamespacedName{Namespace: g.HubNamespace, Name: g.Cluster})
	if apierrors.IsUnauthorized(err) && ranOut(token, g.Now()) {
		return refusedLeaving(err)
	}
	if refuses(err) {
		return nil
	}
	if err != nil || profile == nil || profile.Annotations[clusterset.AnnotationLeft] != "" {
		return err
	}
	left := profile.DeepCopy()
	metav1.SetMetaDataAnnotation(&left.ObjectMeta, clusterset.AnnotationLeft, "true")
	return kube.Gone(hub.Patch(ctx, left, kube.Changes(profile)))
}

// ranOut tells whether a token says of itself that it has run out, as far as two clocks agree. What is no such token does not.
func ranOut(token string, now time.Time) bool {
	t, err := clusterset.ParseToken(token)
	return err == nil && now.Add(time.Minute).Unix() >= t.Expires
}

// forget empties the token for the hub; join brings another.
func (g *Gate) forget(ctx context.Context) error {
	secret, err := kube.Get[*corev1.Secret](ctx, g.Local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.SecretHub})
	if err != nil || secret == nil || len(secret.Data["token"]) == 0 {
		return err
	}
	secret.Data["token"] = nil
	return g.Local.Update(ctx, secret)
}

// page bounds what one answer holds: leaving a large clusterset is no reason to hold all of it in memory.
const page = 500

// each calls do with every object of a kind.
func (g *Gate) each(ctx context.Context, api client.Client, list client.ObjectList, do func(client.Object) error, on client.ListOption) error {
	for {
		if err := api.List(ctx, list, on, client.Limit(page), client.Continue(list.GetContinue())); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error { return do(o.(client.Object)) })
		if err != nil || list.GetContinue() == "" {
			return err
		}
	}
}
