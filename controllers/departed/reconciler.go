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
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The reasons of Events.
const (
	ReasonLeft        = "Left"        // a member says that it has left
	ReasonStillMay    = "StillMay"    // a member that departed may write records still
	ReasonCleanedUp   = "CleanedUp"   // nothing of a member that departed is left on the hub
	ReasonNotRecorded = "NotRecorded" // there is no ClusterSet that could tell the members of the departure
)

// Controller is this room's entry in the list of controllers. Requests are the names of ClusterProfiles.
func Controller(env *kube.Env) kube.Controller {
	return kube.Controller{
		Name:     "departed",
		NeedsHub: true,
		Watches: []kube.Watch{{Side: kube.Hub, Object: &inventoryv1alpha1.ClusterProfile{}, Requests: kube.Named(func(o client.Object) types.NamespacedName {
			return types.NamespacedName{Name: o.GetName()}
		})}},
		Reconciler: &reconciler{env},
	}
}

type reconciler struct{ *kube.Env }

// Reconcile takes one step after a member's departure, each of which may be taken again.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, r.Hub(), types.NamespacedName{Namespace: r.HubNamespace, Name: req.Name})
	if err != nil || profile == nil || profile.Spec.ClusterManager.Name != clusterset.ClusterManager {
		return reconcile.Result{}, err
	}
	switch {
	case profile.DeletionTimestamp != nil && slices.Contains(profile.Finalizers, clusterset.FinalizerRecords):
		return r.cleanUp(ctx, profile)
	case profile.DeletionTimestamp != nil: // somebody else's finalizer holds it
		return reconcile.Result{}, nil
	case profile.Annotations[clusterset.AnnotationLeft] != "":
		r.Events.Event(profile, kube.Normal, ReasonLeft, "The cluster has left.")
		return reconcile.Result{}, kube.Gone(r.Hub().Delete(ctx, profile, client.Preconditions{UID: &profile.UID, ResourceVersion: &profile.ResourceVersion}))
	}
	return reconcile.Result{}, nil
}

// cleanUp ends a membership. What takes rights away comes before what they were for.
func (r *reconciler) cleanUp(ctx context.Context, profile *inventoryv1alpha1.ClusterProfile) (reconcile.Result, error) {
	id := profile.Name
	// A cache may show it after its end, when the id is another's already: what is revoked by name would be the newcomer's. While it is there,
	// nobody else can be of that name.
	var there inventoryv1alpha1.ClusterProfileList
	if err := r.HubNow().List(ctx, &there, client.InNamespace(r.HubNamespace), client.MatchingFields{"metadata.name": id}); err != nil {
		return reconcile.Result{}, err
	}
	if !slices.ContainsFunc(there.Items, func(p inventoryv1alpha1.ClusterProfile) bool { return p.UID == profile.UID }) {
		return reconcile.Result{}, nil
	}
	known, err := r.note(ctx, id, *profile.DeletionTimestamp)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !known { // as when the whole namespace is deleted
		r.Events.Event(profile, kube.Warning, ReasonNotRecorded,
			"There is no ClusterSet in this namespace to note the departure in: members that are away now will hold this cluster's records.")
	}
	if err := r.revoke(ctx, id); err != nil {
		return reconcile.Result{}, err
	}
	may, err := r.may(ctx, id)
	if err != nil {
		return reconcile.Result{}, err
	}
	if may {
		if r.Now().Sub(profile.DeletionTimestamp.Time) < patience {
			return reconcile.Result{RequeueAfter: patience / 100}, nil
		}
		r.Events.Event(profile, kube.Warning, ReasonStillMay, fmt.Sprintf(
			"ServiceAccount %s%s may still write records by some other RoleBinding or ClusterRoleBinding: delete that; the clean-up goes on then.", clusterset.AccountPrefix, id))
		return reconcile.Result{RequeueAfter: patience}, nil
	}
	records, err := r.records(ctx, id)
	if err != nil {
		return reconcile.Result{}, err
	}
	if last := newest(records); !last.IsZero() { // until here it may have created some, which are its past, too
		if _, err := r.note(ctx, id, metav1.NewTime(last.Add(time.Second))); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := r.sweep(ctx, id, records); err != nil {
		return reconcile.Result{}, err
	}
	released := profile.DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers, func(f string) bool { return f == clusterset.FinalizerRecords })
	if err := kube.Gone(r.Hub().Patch(ctx, released, kube.Changes(profile))); err != nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).Info("cleaned up", "cluster", id, "records", len(records))
	r.Events.Event(profile, kube.Normal, ReasonCleanedUp, fmt.Sprintf("Its credentials, its Lease and %d records are deleted: the id may be used again.", len(records)))
	return reconcile.Result{}, nil
}

// patience is how long the API server may take to notice that RoleBindings are gone: far longer than it does.
const patience = 10 * time.Second

// note writes the departure into the ClusterSet's status; known is false where there is none. A cache would not show yet what this pass wrote.
func (r *reconciler) note(ctx context.Context, id string, at metav1.Time) (known bool, err error) {
	var sets hubv1alpha1.ClusterSetList
	if err := r.HubNow().List(ctx, &sets, client.InNamespace(r.HubNamespace)); err != nil {
		return false, err
	}
	for i := range sets.Items {
		if set := &sets.Items[i]; depart(&set.Status, id, at) {
			if err := r.Hub().Status().Update(ctx, set); err != nil {
				return false, err
			}
		}
	}
	return len(sets.Items) > 0, nil
}

// revoke deletes what deploy/hub/member gave.
func (r *reconciler) revoke(ctx context.Context, id string) error {
	in := func(suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: r.HubNamespace, Name: clusterset.AccountPrefix + id + suffix}
	}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: in("")}, // its tokens are none from now on
		&rbacv1.RoleBinding{ObjectMeta: in("")},
		&rbacv1.RoleBinding{ObjectMeta: in(":token")},
		&rbacv1.Role{ObjectMeta: in(":token")},
	} {
		if err := kube.Gone(r.Hub().Delete(ctx, o)); err != nil {
			return err
		}
	}
	return nil
}

// may tells whether the API server would let the member write a record still: it learns of deleted RoleBindings by a watch of its own,
// and remembers for some seconds whose a token is. A record that is written behind the sweep would stay for ever.
func (r *reconciler) may(ctx context.Context, id string) (bool, error) {
	accounts := "system:serviceaccounts"
	review := &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.HubNamespace},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + r.HubNamespace + ":" + clusterset.AccountPrefix + id,
			Groups: []string{accounts, accounts + ":" + r.HubNamespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.HubNamespace, Verb: "create", Group: hubv1alpha1.GroupVersion.Group, Resource: "serviceexportrecords",
			},
		},
	}
	err := r.Hub().Create(ctx, review)
	return review.Status.Allowed, err
}

// page bounds what one answer holds; of records, their names only.
const page = 500

// records are a member's, their names and when they were created alone. It reads past every cache: nothing may be left.
func (r *reconciler) records(ctx context.Context, id string) (out []metav1.PartialObjectMetadata, err error) {
	for _, kind := range clusterset.RecordKinds() {
		list := &metav1.PartialObjectMetadataList{}
		for more := true; more; more = list.Continue != "" {
			list.SetGroupVersionKind(hubv1alpha1.GroupVersion.WithKind(kind + "List"))
			if err := r.HubNow().List(ctx, list, client.InNamespace(r.HubNamespace), client.Limit(page), client.Continue(list.Continue)); err != nil {
				return nil, err
			}
			for i := range list.Items {
				o := &list.Items[i]
				if clusterset.RecordOwner(kind, o.Name) != id {
					continue
				}
				record := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, CreationTimestamp: o.CreationTimestamp}}
				record.SetGroupVersionKind(hubv1alpha1.GroupVersion.WithKind(kind))
				out = append(out, record)
			}
		}
	}
	return out, nil
}

// sweep deletes a member's records and its Lease.
func (r *reconciler) sweep(ctx context.Context, id string, records []metav1.PartialObjectMetadata) error {
	for i := range records {
		if err := kube.Gone(r.Hub().Delete(ctx, &records[i])); err != nil {
			return err
		}
	}
	return kube.Gone(r.Hub().Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.HubNamespace, Name: id}}))
}
