package publish

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
)

// telling is how long one account of a failure stays before another takes its place. What is written on the own record is an event of this
// controller's, and brings the next attempt before its time: texts that differ each time, by the port of a connection, say, would have it
// write here as fast as the hub fails.
const telling = time.Minute

// toldLately tells whether a failure of this record was told within that time, and takes note that it is told now if it was not.
func (r *reconciler) toldLately(record string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.told[record]; ok && r.Now().Sub(at) < telling {
		return true
	}
	r.told[record] = r.Now()
	return false
}

// mended forgets that a failure of this record was told.
func (r *reconciler) mended(record string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, record)
}

// report leaves on the own record how publishing went; serviceexport makes the condition Ready of it. A conflict of writes, or a stale
// cache, is no news to a user: the next pass mends it.
func (r *reconciler) report(ctx context.Context, own *hubv1alpha1.ServiceExportRecord, failed error) error {
	c := metav1.Condition{Type: hubv1alpha1.ConditionPublished, Status: metav1.ConditionTrue, Reason: "Published", Message: "The hub has this revision."}
	if failed != nil {
		if apierrors.IsConflict(failed) || apierrors.IsAlreadyExists(failed) || apierrors.IsNotFound(failed) {
			return nil
		}
		c.Status, c.Reason = metav1.ConditionFalse, "Failed"
		c.Message = fmt.Sprintf("The hub did not take it: %v. It is tried again until it does.", failed)
	}
	if own.Spec.Withdrawn && r.left(&own.Spec.Origin) <= 0 {
		r.mended(own.Name)
		return nil
	}
	out, changed := conditions.Set(own.Status.Conditions, []metav1.Condition{c}, own.Generation, metav1.NewTime(r.Now()))
	if failed == nil {
		r.mended(own.Name)
	}
	if !changed || failed != nil && r.toldLately(own.Name) && saysFailed(own) {
		return nil
	}
	rec := own.DeepCopy()
	rec.Status.Conditions = out
	err := r.Local.Status().Update(ctx, rec)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // it has changed, or is gone: another pass is on its way
		return nil
	}
	return err
}

// saysFailed tells whether the own record says that its generation was not taken.
func saysFailed(own *hubv1alpha1.ServiceExportRecord) bool {
	c := meta.FindStatusCondition(own.Status.Conditions, hubv1alpha1.ConditionPublished)
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == own.Generation
}
