package serviceexport

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The reasons of Valid that no other project defines.
const (
	reasonInvalidExport     = "InvalidExport"     // other members would refuse the whole export
	reasonExcludedNamespace = "ExcludedNamespace" // by the ClusterSet (S5)
)

// decide returns what this cluster exports, nil for nothing; the same as other members parse it; and the condition
// Valid. An optional part that other members would refuse is left out, so that a typing error in a label does not end
// an export that carries traffic.
func decide(s state) (record *hubv1alpha1.ServiceExportRecordSpec, export clusterset.Export, valid metav1.Condition) {
	switch {
	case s.export == nil:
		return nil, export, metav1.Condition{}
	case s.excluded:
		return nil, export, conditions.Invalid(reasonExcludedNamespace, fmt.Sprintf(
			"The ClusterSet excludes namespace %s. Export from another one, or ask the hub's admin to change the "+
				"ClusterSet's spec.namespaces.", s.export.Namespace))
	case s.service == nil:
		return nil, export, conditions.Invalid(mcsv1beta1.ServiceExportReasonNoService, fmt.Sprintf(
			"There is no Service %s/%s; the export begins once it exists.", s.export.Namespace, s.export.Name))
	case s.service.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, export, conditions.Invalid(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"A Service of type ExternalName cannot be exported; create it in each cluster instead.")
	case kube.Owned(s.service) && derived.Named(s.service.Name):
		return nil, export, conditions.Invalid(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"This is the derived Service of an import; export the Service that it comes from.")
	}
	spec, leftOut := clusterset.RecordOf(s.cluster, s.last(), s.export, s.service)
	spec.ExportedAt = exportedAt(s.export.CreationTimestamp, s.own)
	export, err := parse(spec, s.own)
	if err != nil {
		return nil, export, conditions.Invalid(reasonInvalidExport, fmt.Sprintf(
			"Other clusters would refuse this export: %v. Correct the Service or the ServiceExport.", err))
	}
	if spec.External != nil && s.external == hubv1alpha1.ExternalNamesForbid {
		spec.External = nil
		leftOut = append(
			leftOut,
			fmt.Errorf("annotation %s: the ClusterSet forbids external names (spec.externalNames)",
				clusterset.AnnotationExternal),
		)
	}
	if c := published(s.own); c != nil && c.Reason == hubv1alpha1.ReasonPublishedInPart {
		leftOut = append(leftOut, errors.New(c.Message))
	}
	if err = errors.Join(leftOut...); err != nil {
		return &spec, export, conditions.ValidWithout(err)
	}
	return &spec, export, conditions.Valid()
}

// last returns what was exported last. A Service that was not exported goes to no other cluster.
func (s *state) last() *hubv1alpha1.ServiceExportRecordSpec {
	if s.own == nil || s.own.Spec.Withdrawn {
		return &hubv1alpha1.ServiceExportRecordSpec{ExportTo: "cluster=" + s.cluster.Cluster}
	}
	return &s.own.Spec
}

// exportedAt returns since when the export counts: since its ServiceExport was created, or since it began again after
// a withdrawal, such as the deletion of its Service. It is never earlier than own says. So a record with the same
// exportedAt is the same export (clusterset.SetPublished).
func exportedAt(created metav1.Time, own *hubv1alpha1.ServiceExportRecord) *metav1.Time {
	if own == nil {
		return &created
	}
	at, before := created, own.Spec.ExportedAt
	if own.Spec.Withdrawn {
		if before != nil {
			before = new(metav1.NewTime(before.Add(time.Second)))
		}
		if w := own.Spec.WithdrawnAt; w != nil && at.Before(w) {
			at = metav1.NewTime(w.Truncate(time.Second))
		}
	}
	if at.Before(before) {
		at = *before
	}
	return &at
}

// parse returns what other members will make of a record with this spec. own is the record that has it, or nil.
func parse(spec hubv1alpha1.ServiceExportRecordSpec, own *hubv1alpha1.ServiceExportRecord) (clusterset.Export, error) {
	rec := &hubv1alpha1.ServiceExportRecord{Spec: spec}
	rec.Name = clusterset.RecordName(spec.ServiceName, spec.ServiceNamespace, spec.ClusterID)
	if own != nil && own.Spec.ExportedAt.Equal(spec.ExportedAt) {
		rec.Annotations = own.Annotations
	}
	return clusterset.ParseExport(rec)
}

// ready returns the condition Ready, from the condition Published that publish keeps on the own record. While a
// change of the Service is on its way to the hub, other clusters still import what was published before.
func ready(
	own *hubv1alpha1.ServiceExportRecord, spec *hubv1alpha1.ServiceExportRecordSpec, refused string,
) metav1.Condition {
	if spec == nil {
		return conditions.Ready(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonPending,
			"The Service is not exported: see condition Valid.")
	}
	if refused != "" {
		return conditions.Ready(metav1.ConditionUnknown, mcsv1beta1.ServiceExportReasonPending, refused)
	}
	c := published(own)
	switch {
	case c == nil || c.Reason == hubv1alpha1.ReasonWithdrawn:
		return conditions.Ready(metav1.ConditionUnknown, mcsv1beta1.ServiceExportReasonPending,
			"The export is not on the hub yet. If this lasts, see the agent's log.")
	case c.Status == metav1.ConditionFalse:
		return conditions.Ready(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonFailed, c.Message)
	case c.ObservedGeneration != own.Generation:
		return conditions.Ready(metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported,
			"Other clusters can import this Service. A change is on its way to the hub.")
	}
	return conditions.Ready(metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported,
		"Other clusters can import this Service.")
}

// published returns the condition that publish keeps on the own record, nil if there is none.
func published(own *hubv1alpha1.ServiceExportRecord) *metav1.Condition {
	if own == nil {
		return nil
	}
	return meta.FindStatusCondition(own.Status.Conditions, hubv1alpha1.ConditionPublished)
}
