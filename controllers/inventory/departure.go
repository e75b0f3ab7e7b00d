package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The reasons of Events about a member that departs.
const (
	ReasonLeft                 = "Left"                 // the member says that it has left
	ReasonRightsNotRevoked     = "RightsNotRevoked"     // a departed member may still write records
	ReasonCleanedUp            = "CleanedUp"            // the hub has nothing of a departed member any more
	ReasonDepartureNotRecorded = "DepartureNotRecorded" // there is no ClusterSet to record the departure in
)

// cleanUp ends a membership whose ClusterProfile is being deleted: the member has left or was evicted. It records the
// departure in the ClusterSet, so that members that are offline now drop the records later. Then it revokes the
// member's rights, deletes what they were for, and releases the ClusterProfile, which makes the ID free again. Every
// step can be repeated.
//
// A missing ClusterProfile does not mean that its member departed, since an emptied or restored hub has none either.
// Nothing is deleted for it.
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
	allowed, at, err := r.mayWrite(ctx, id)
	if err != nil {
		return reconcile.Result{}, err
	}
	if allowed {
		return r.waitForRevocation(profile), nil
	}
	records, err := r.listRecords(ctx, id)
	if err != nil {
		return reconcile.Result{}, err
	}
	// The member may have created records until now, and may have deleted some of them. Another API server of the hub,
	// with another clock, may have dated those that are left.
	ended := at.Add(margin)
	for i := range records {
		if after := records[i].CreationTimestamp.Add(time.Second); after.After(ended) {
			ended = after
		}
	}
	if _, err := r.record(ctx, id, metav1.NewTime(ended)); err != nil {
		return reconcile.Result{}, err
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
	m, now := r.member(profile), r.Now()
	if m.revoked.IsZero() { // not the deletionTimestamp: the deletion may be found late
		m.revoked = now
	}
	if now.Sub(m.revoked) < revocationTime {
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

// margin is from the time that mayWrite returns to the departure: the API server decides a moment later, and times are
// whole seconds.
const margin = 2 * time.Second

// mayWrite returns whether the API server would still let the member write a record, and when it was asked, by its
// clock. It learns of deleted RoleBindings through a watch. A record that is written after the clean-up would stay for
// ever.
func (r *reconciler) mayWrite(ctx context.Context, id string) (allowed bool, at metav1.Time, err error) {
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
	err = r.Hub.Create(ctx, review)
	for _, f := range review.ManagedFields {
		at = ptr.Deref(f.Time, at)
	}
	return review.Status.Allowed, at, err
}

// listRecords returns name, UID and creation of a member's records. It does not read the cache, because none may be
// missed.
func (r *reconciler) listRecords(ctx context.Context, id string) (out []metav1.PartialObjectMetadata, err error) {
	for _, kind := range clusterset.RecordKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(hubv1alpha1.GroupVersion.WithKind(kind + "List"))
		err := kube.ForEach(ctx, r.Live, list, func(o client.Object) error {
			if clusterset.RecordOwner(kind, o.GetName()) == id {
				record := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
					Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
					CreationTimestamp: o.GetCreationTimestamp()}}
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

// deleteRecords deletes a member's records and its Lease. It returns the first error. The other records go all the
// same, while the API server answers fast: other members wait for this.
func (r *reconciler) deleteRecords(ctx context.Context, id string, records []metav1.PartialObjectMetadata) error {
	var first error
	brief, cancel := context.WithTimeout(ctx, revocationTime)
	defer cancel()
	for i := range records {
		if first != nil && brief.Err() != nil {
			break
		}
		first = cmp.Or(first, kube.Delete(ctx, r.Hub, &records[i]))
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: id}}
	return cmp.Or(first, kube.DeleteNamed(ctx, r.Live, r.Hub, lease))
}

// recordDeparture adds a departure to the status, or sets a later time in the existing one, and returns whether it
// changed anything. Members drop every record that the departed member created before that time. Above MaxDeparted,
// the oldest departures are dropped.
func recordDeparture(s *hubv1alpha1.ClusterSetStatus, id string, at metav1.Time) bool {
	same := func(d hubv1alpha1.Departure) bool { return d.ClusterID == id }
	if i := slices.IndexFunc(s.Departed, same); i >= 0 {
		if !s.Departed[i].At.Before(&at) {
			return false
		}
		s.Departed = slices.Delete(s.Departed, i, i+1)
	}
	s.Departed = append(s.Departed, hubv1alpha1.Departure{ClusterID: id, At: at})
	slices.SortStableFunc(s.Departed, func(a, b hubv1alpha1.Departure) int { return a.At.Compare(b.At.Time) })
	if surplus := len(s.Departed) - hubv1alpha1.MaxDeparted; surplus > 0 {
		s.Departed = slices.Delete(s.Departed, 0, surplus)
	}
	return true
}
