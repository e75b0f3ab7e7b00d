package facts

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
)

// NotImported returns a finding for each name that a cluster does not import because an object of it belongs to another
// program (kind Imported), or without some endpoints (EndpointsImported). records are the cluster's copies.
func NotImported(records []hubv1alpha1.ServiceExportRecord, kind string) (out []report.Finding) {
	for i := range records {
		c := meta.FindStatusCondition(records[i].Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionFalse || records[i].Spec.Withdrawn {
			continue
		}
		what, remedy, _ := strings.Cut(c.Message, "; ")
		if kind == hubv1alpha1.ConditionImported {
			remedy += "; " + report.DocsMigrate
		}
		f := report.Errorf(remedy, "%s (%s)", what, c.Reason).On(
			records[i].Spec.ServiceName + "." + records[i].Spec.ServiceNamespace)
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// LeftOut finds that a part of a ServiceExport is invalid, by its condition Valid.
func LeftOut(e *mcsv1beta1.ServiceExport) []report.Finding {
	valid := meta.FindStatusCondition(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
	if valid == nil || conditions.LeftOut(valid) == "" {
		return nil
	}
	return []report.Finding{report.Warningf(fmt.Sprintf("kubectl -n %s edit serviceexport %s", e.Namespace, e.Name),
		"a part of this cluster's export is invalid and has no effect; an earlier preference or export-to stays: %s",
		conditions.LeftOut(valid))}
}
