package publish

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// reportEvery is how long the message of one failure stays before another replaces it. A write to the own record
// triggers the next pass, so messages that always differ (by a port number, say) would make passes follow each other
// without a pause.
const reportEvery = time.Minute

// report sets the condition Published of the own record; serviceexport derives Ready from it. Conflicts of writes and
// stale caches are not reported, because the next pass repairs them.
func (r *reconciler) report(ctx context.Context, s *state, failed error) error {
	own := s.own
	if apierrors.IsConflict(failed) || apierrors.IsAlreadyExists(failed) ||
		apierrors.IsNotFound(failed) && !lacksNamespace(failed) {
		return nil
	}
	wanted := []metav1.Condition{published(own, s.leftOut, failed)}
	out, changed := conditions.Set(own.Status.Conditions, wanted, own.Generation, metav1.NewTime(r.Now()))
	recently := r.failedRecently(own.Name, failed != nil, r.Now())
	if !changed || recently && reportsFailure(own) {
		return nil
	}
	rec := own.DeepCopy()
	rec.Status.Conditions = out
	err := r.Local.Status().Patch(ctx, rec, kube.Changes(own))
	if apierrors.IsConflict(err) {
		return nil // the change triggers another pass
	}
	return client.IgnoreNotFound(err)
}

// lacksNamespace returns whether an error says that the clusterset's namespace on the hub does not exist.
func lacksNamespace(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

func published(own *hubv1alpha1.ServiceExportRecord, leftOut []error, failed error) metav1.Condition {
	c := metav1.Condition{Type: hubv1alpha1.ConditionPublished, Status: metav1.ConditionTrue}
	switch {
	case failed != nil:
		c.Status, c.Reason = metav1.ConditionFalse, hubv1alpha1.ReasonFailed
		c.Message = "Publishing failed, and is retried: " + strings.ReplaceAll(failed.Error(), "\n", "; ")
	case own.Spec.Withdrawn:
		c.Reason, c.Message = hubv1alpha1.ReasonWithdrawn, "The hub has the withdrawal."
	case len(leftOut) > 0:
		c.Reason, c.Message = hubv1alpha1.ReasonPublishedInPart, errors.Join(leftOut...).Error()
	default:
		c.Reason, c.Message = hubv1alpha1.ReasonPublished, "The hub has this revision."
	}
	return c
}

// failedRecently returns whether a failure of this record was reported within reportEvery, and remembers this one if
// not; a success ends that time.
func (m *memory) failedRecently(record string, failed bool, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.of(record)
	if !failed {
		h.failed = time.Time{}
		return false
	}
	if !h.failed.IsZero() && now.Sub(h.failed) < reportEvery {
		return true
	}
	h.failed = now
	return false
}

// reportsFailure returns whether the own record already says that its generation was not published.
func reportsFailure(own *hubv1alpha1.ServiceExportRecord) bool {
	c := meta.FindStatusCondition(own.Status.Conditions, hubv1alpha1.ConditionPublished)
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == own.Generation
}
