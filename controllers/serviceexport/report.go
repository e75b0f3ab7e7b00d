package serviceexport

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// report writes the conditions, and an Event for each one that changes for the worse. It writes nothing while another
// program owns the import of the name: that program then reports in the same conditions.
func (r *reconciler) report(
	ctx context.Context, s state, spec *hubv1alpha1.ServiceExportRecordSpec, export clusterset.Export,
	valid metav1.Condition,
) error {
	if s.foreign {
		return nil
	}
	var found []conflict.Conflict
	if spec != nil {
		_, found = conflict.Merge(append(s.others, export))
	}
	readiness := ready(s.own, spec, s.refused)
	if s.failed != nil {
		readiness = conditions.Ready(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonFailed,
			"Writing the record of the export in this cluster failed: "+s.failed.Error())
	}
	wanted := []metav1.Condition{valid, readiness, conditions.Conflict(found)}
	out, changed := conditions.Set(s.export.Status.Conditions, wanted, s.export.Generation, metav1.NewTime(r.Now()))
	if !changed {
		return nil
	}
	updated := s.export.DeepCopy()
	updated.Status.Conditions = out
	if err := r.Local.Status().Patch(ctx, updated, kube.StatusChanges(s.export)); err != nil {
		return err
	}
	for _, c := range wanted {
		was := meta.FindStatusCondition(s.export.Status.Conditions, c.Type)
		if was != nil && was.Status == c.Status && was.Reason == c.Reason {
			continue
		}
		if bad(c) {
			r.Events.Event(updated, kube.Warning, kube.EventReason(c), c.Message)
		} else if was != nil && c.Type == string(mcsv1beta1.ServiceExportConditionConflict) {
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
