package serviceexport

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// outcome is what became of a decision.
type outcome struct {
	published bool  // the hub has the record
	waits     bool  // the hub does not show yet what it took
	here      error // of writing the copy
	there     error // of writing to the hub
}

// report writes the conditions, and an Event for each one that changes for the worse. It writes nothing while another
// program owns the import of the name: that program then reports in the same conditions.
func (r *reconciler) report(ctx context.Context, s *state, d *decision, o outcome) error {
	if s.foreign {
		return nil
	}
	var found []conflict.Conflict
	if d.exports {
		_, found = conflict.Merge(append(s.others, d.export))
	}
	was := s.export.Status.Conditions
	readiness := ready(s, d, o, meta.FindStatusCondition(was, string(mcsv1beta1.ServiceExportConditionReady)))
	if r.reported.Repeats(r.recordName(s), readiness.Reason == string(mcsv1beta1.ServiceExportReasonFailed), r.Now()) {
		if before := meta.FindStatusCondition(was, readiness.Type); before != nil && before.Reason == readiness.Reason {
			readiness.Message = before.Message
		}
	}
	wanted := []metav1.Condition{d.valid, readiness, conditions.Conflict(found)}
	out, changed := conditions.Set(was, wanted, s.export.Generation, metav1.NewTime(r.Now()))
	if !changed {
		return nil
	}
	updated := s.export.DeepCopy()
	updated.Status.Conditions = out
	if err := r.Local.Status().Patch(ctx, updated, kube.StatusChanges(s.export)); err != nil {
		return err
	}
	for _, c := range wanted {
		before := meta.FindStatusCondition(was, c.Type)
		if before != nil && before.Status == c.Status && before.Reason == c.Reason {
			continue
		}
		if bad(c) {
			r.Events.Event(updated, kube.Warning, kube.EventReason(c), c.Message)
		} else if before != nil && c.Type == string(mcsv1beta1.ServiceExportConditionConflict) {
			r.Events.Event(updated, kube.Normal, "ConflictResolved", c.Message)
		}
	}
	return nil
}

// bad returns whether a condition needs its user's attention.
func bad(c metav1.Condition) bool {
	switch mcsv1beta1.ServiceExportConditionType(c.Type) {
	case mcsv1beta1.ServiceExportConditionValid:
		return c.Status == metav1.ConditionFalse
	case mcsv1beta1.ServiceExportConditionConflict:
		return c.Status == metav1.ConditionTrue
	}
	return c.Reason == string(mcsv1beta1.ServiceExportReasonFailed)
}

// ready returns the condition Ready. While this agent cannot publish, other clusters still import what was published
// before, and the condition stays as it was. Conflicts of writes and stale caches are not reported, because the next
// pass repairs them.
func ready(s *state, d *decision, o outcome, was *metav1.Condition) metav1.Condition {
	failed := func(what string, err error) metav1.Condition {
		return conditions.Ready(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonFailed,
			what+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	switch {
	case !d.exports:
		return conditions.Ready(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonPending,
			"The Service is not exported: see condition Valid.")
	case s.refused != "":
		return conditions.Ready(metav1.ConditionUnknown, mcsv1beta1.ServiceExportReasonPending, s.refused)
	case o.here != nil:
		return failed("Writing the record of the export in this cluster failed: ", o.here)
	case o.there != nil && !isStale(o.there):
		return failed("Publishing failed, and is retried: ", o.there)
	case o.published:
		return conditions.Ready(metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported,
			"Other clusters can import this Service.")
	case was != nil && (was.Status == metav1.ConditionTrue || o.there != nil ||
		o.waits && was.Reason == string(mcsv1beta1.ServiceExportReasonFailed)): // the hub may have refused a part
		return conditions.Ready(was.Status, mcsv1beta1.ServiceExportConditionReason(was.Reason), was.Message)
	}
	return conditions.Ready(metav1.ConditionUnknown, mcsv1beta1.ServiceExportReasonPending,
		"The export is not on the hub yet. If this lasts, see the agent's log.")
}

// isStale returns whether the next pass repairs what failed.
func isStale(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsNotFound(err) && !lacksNamespace(err)
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
