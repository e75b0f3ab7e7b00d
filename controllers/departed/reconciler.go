package departed

import (
	"context"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The reasons of Events.
const (
	ReasonLeft                 = "Left"                 // the member says that it has left
	ReasonRightsNotRevoked     = "RightsNotRevoked"     // a departed member may still write records
	ReasonCleanedUp            = "CleanedUp"            // the hub has nothing of a departed member any more
	ReasonDepartureNotRecorded = "DepartureNotRecorded" // there is no ClusterSet to record the departure in
)

// Config is what New needs.
type Config = kube.HubEnv

// New returns the controller. Its requests are the names of ClusterProfiles.
func New(c Config) kube.Controller {
	named := kube.Named(kube.NameOnly)
	return kube.Controller{
		Name:       "departed",
		NeedsHub:   true,
		Watches:    []kube.Watch{{Side: kube.Hub, Object: &inventoryv1alpha1.ClusterProfile{}, Requests: named}},
		Reconciler: &reconciler{c},
	}
}

type reconciler struct{ Config }

// Reconcile deletes the ClusterProfile of a member that says it has left, and cleans up once it is being deleted.
// Every step can be repeated.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := types.NamespacedName{Namespace: r.Namespace, Name: req.Name}
	profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, r.Hub, name)
	if err != nil || profile == nil || profile.Spec.ClusterManager.Name != clusterset.ClusterManager {
		return reconcile.Result{}, err
	}
	switch {
	case profile.DeletionTimestamp != nil && slices.Contains(profile.Finalizers, clusterset.FinalizerRecords):
		return r.cleanUp(ctx, profile)
	case profile.DeletionTimestamp != nil: // it is waiting for another controller's finalizer
		return reconcile.Result{}, nil
	case profile.Annotations[clusterset.AnnotationLeft] != "":
		r.Events.Event(profile, kube.Normal, ReasonLeft, "The cluster has left.")
		return reconcile.Result{}, kube.DeleteUnchanged(ctx, r.Hub, profile)
	}
	return reconcile.Result{}, nil
}

// cleanUp ends a membership. It revokes rights before it deletes what they were for.
func (r *reconciler) cleanUp(ctx context.Context, profile *inventoryv1alpha1.ClusterProfile) (reconcile.Result, error) {
	id := profile.Name
	// The cache may show a profile that is gone, while another cluster already has the ID and its rights.
	var live inventoryv1alpha1.ClusterProfileList
	named := client.MatchingFields{"metadata.name": id} // the role may list ClusterProfiles, but not get them
	if err := r.Live.List(ctx, &live, client.InNamespace(r.Namespace), named); err != nil {
		return reconcile.Result{}, err
	}
	if len(live.Items) == 0 || live.Items[0].UID != profile.UID {
		return reconcile.Result{}, nil
	}
	recorded, err := r.record(ctx, id, *profile.DeletionTimestamp)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !recorded { // for example because the whole namespace is being deleted
		r.Events.Event(profile, kube.Warning, ReasonDepartureNotRecorded,
			"This namespace has no ClusterSet to record the departure in: "+
				"members that are offline now keep this cluster's records.")
	}
	if err := r.revoke(ctx, id); err != nil {
		return reconcile.Result{}, err
	}
	if allowed, err := r.mayWrite(ctx, id); err != nil {
		return reconcile.Result{}, err
	} else if allowed {
		return r.waitForRevocation(profile), nil
	}
	records, err := r.listRecords(ctx, id)
	if err != nil {
		return reconcile.Result{}, err
	}
	if last := newest(records); !last.IsZero() { // the member may have created records until now
		if _, err := r.record(ctx, id, metav1.NewTime(last.Add(time.Second))); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := r.deleteRecords(ctx, id, records); err != nil {
		return reconcile.Result{}, err
	}
	released := profile.DeepCopy()
	controllerutil.RemoveFinalizer(released, clusterset.FinalizerRecords)
	if err := client.IgnoreNotFound(r.Hub.Patch(ctx, released, kube.Changes(profile))); err != nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).Info("cleaned up", "cluster", id)
	r.Events.Event(profile, kube.Normal, ReasonCleanedUp,
		"Its credentials, its Lease and its records are deleted: the ID is free.")
	return reconcile.Result{}, nil
}

// revocationTime is how long the API server may take to notice deleted RoleBindings. It usually takes far less.
const revocationTime = 10 * time.Second

// waitForRevocation returns when to look again, and sends an Event if the rights must come from another binding.
func (r *reconciler) waitForRevocation(profile *inventoryv1alpha1.ClusterProfile) reconcile.Result {
	if r.Now().Sub(profile.DeletionTimestamp.Time) < revocationTime {
		return reconcile.Result{RequeueAfter: revocationTime / 100} // so that the ID is free soon
	}
	r.Events.Event(profile, kube.Warning, ReasonRightsNotRevoked, fmt.Sprintf(
		"Another RoleBinding or ClusterRoleBinding lets ServiceAccount %s%s write records: "+
			"delete that; the clean-up then continues.",
		clusterset.AccountPrefix, profile.Name))
	return reconcile.Result{RequeueAfter: revocationTime}
}

// record writes the departure into the status of the ClusterSet; recorded is false if there is none. It does not
// read the cache, which may not show yet what this pass has written.
func (r *reconciler) record(ctx context.Context, id string, at metav1.Time) (recorded bool, err error) {
	var sets hubv1alpha1.ClusterSetList
	if err := r.Live.List(ctx, &sets, client.InNamespace(r.Namespace)); err != nil {
		return false, err
	}
	for i := range sets.Items {
		set := sets.Items[i].DeepCopy()
		if !recordDeparture(&set.Status, id, at) {
			continue
		}
		if err := r.Hub.Status().Patch(ctx, set, kube.Changes(&sets.Items[i])); err != nil {
			return false, err
		}
	}
	return len(sets.Items) > 0, nil
}

// revoke deletes the account and the rights that deploy/hub/member creates.
func (r *reconciler) revoke(ctx context.Context, id string) error {
	named := func(suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: r.Namespace, Name: clusterset.AccountPrefix + id + suffix}
	}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: named("")}, // this invalidates its tokens
		&rbacv1.RoleBinding{ObjectMeta: named("")},
		&rbacv1.RoleBinding{ObjectMeta: named(":token")},
		&rbacv1.Role{ObjectMeta: named(":token")},
	} {
		if err := kube.DeleteNamed(ctx, r.Live, r.Hub, o); err != nil {
			return err
		}
	}
	return nil
}

// mayWrite returns whether the API server would still let the member write a record. It learns of deleted RoleBindings
// through a watch. A record that is written after the clean-up would stay for ever.
func (r *reconciler) mayWrite(ctx context.Context, id string) (bool, error) {
	accounts := "system:serviceaccounts"
	review := &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + r.Namespace + ":" + clusterset.AccountPrefix + id,
			Groups: []string{accounts, accounts + ":" + r.Namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.Namespace, Verb: "create",
				Group: hubv1alpha1.GroupVersion.Group, Resource: "serviceexportrecords",
			},
		},
	}
	err := r.Hub.Create(ctx, review)
	return review.Status.Allowed, err
}

// listRecords returns name, UID and creation time of a member's records. It does not read the cache, because none may
// be missed.
func (r *reconciler) listRecords(ctx context.Context, id string) (out []metav1.PartialObjectMetadata, err error) {
	for _, kind := range clusterset.RecordKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(hubv1alpha1.GroupVersion.WithKind(kind + "List"))
		err := kube.ForEach(ctx, r.Live, list, func(o client.Object) error {
			if clusterset.RecordOwner(kind, o.GetName()) == id {
				record := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(),
					Name: o.GetName(), UID: o.GetUID(), CreationTimestamp: o.GetCreationTimestamp()}}
				record.SetGroupVersionKind(hubv1alpha1.GroupVersion.WithKind(kind))
				out = append(out, record)
			}
			return nil
		}, client.InNamespace(r.Namespace))
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// deleteRecords deletes a member's records and its Lease.
func (r *reconciler) deleteRecords(ctx context.Context, id string, records []metav1.PartialObjectMetadata) error {
	for i := range records {
		if err := kube.Delete(ctx, r.Hub, &records[i]); err != nil {
			return err
		}
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: id}}
	return kube.DeleteNamed(ctx, r.Live, r.Hub, lease)
}
