package serviceexport

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The reasons of Valid that no other project defines.
const (
	reasonInvalidExport     = "InvalidExport"     // other members would refuse the whole export
	reasonExcludedNamespace = "ExcludedNamespace" // by the ClusterSet (S5)
)

// decision is what this cluster exports under a name.
type decision struct {
	exports bool                                // false: the export ends
	record  hubv1alpha1.ServiceExportRecordSpec // without revision and endpoints; a withdrawal if it ends
	export  clusterset.Export                   // the record as other members parse it
	groups  []hubv1alpha1.EndpointGroup         // one of each slice
	valid   metav1.Condition
}

// decide returns what this cluster exports. An optional part that other members would refuse is left out, so that a
// typing error in a label does not end an export that carries traffic.
func decide(s *state, now time.Time) (d decision) {
	var leftOut []error
	d.record, leftOut, d.valid = s.exported()
	if d.exports = d.valid.Type == ""; d.exports {
		export, err := parse(d.record, s.own)
		if err != nil {
			d.exports = false
			d.valid = conditions.Invalid(reasonInvalidExport, fmt.Sprintf(
				"Other clusters would refuse this export: %v. Correct the Service or the ServiceExport.", err))
		}
		d.export = export
	}
	if !d.exports {
		d.record = s.withdrawal(now)
		return d
	}
	if d.record.External != nil && s.external == hubv1alpha1.ExternalNamesForbid {
		d.record.External = nil
		leftOut = append(
			leftOut,
			fmt.Errorf("annotation %s: the ClusterSet forbids external names (spec.externalNames)",
				clusterset.AnnotationExternal),
		)
	}
	for _, slice := range s.slices {
		group, without, ok := clusterset.GroupOf(d.record.Ports, s.portsAtHub(slice.AddressType), slice)
		if leftOut = append(leftOut, without...); ok {
			d.groups = append(d.groups, group)
		}
	}
	d.valid = conditions.Valid()
	if err := errors.Join(leftOut...); err != nil {
		d.valid = conditions.ValidWithout(err)
	}
	return d
}

// portsAtHub returns the ports of all groups of a family that the hub shows.
func (s *state) portsAtHub(family discoveryv1.AddressType) (out []hubv1alpha1.EndpointPort) {
	for _, group := range s.groups() {
		if group.AddressType == family {
			out = append(out, group.Ports...)
		}
	}
	return out
}

// exported returns the record of the export, and what it leaves out. If there is no export, invalid is the condition
// Valid with the reason, which it lacks if there is no ServiceExport.
func (s *state) exported() (record hubv1alpha1.ServiceExportRecordSpec, leftOut []error, invalid metav1.Condition) {
	switch {
	case s.export == nil:
		return record, nil, metav1.Condition{Type: string(mcsv1beta1.ServiceExportConditionValid)} // not written
	case s.excluded:
		return record, nil, conditions.Invalid(reasonExcludedNamespace, fmt.Sprintf(
			"The ClusterSet excludes namespace %s. Export from another one, or ask the hub's admin to change the "+
				"ClusterSet's spec.namespaces.", s.export.Namespace))
	case s.service == nil:
		return record, nil, conditions.Invalid(mcsv1beta1.ServiceExportReasonNoService, fmt.Sprintf(
			"There is no Service %s/%s; the export begins once it exists.", s.export.Namespace, s.export.Name))
	case s.service.Spec.Type == corev1.ServiceTypeExternalName:
		return record, nil, conditions.Invalid(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"A Service of type ExternalName cannot be exported; create it in each cluster instead.")
	case kube.Owned(s.service) && derived.Named(s.service.Name):
		return record, nil, conditions.Invalid(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"This is the derived Service of an import; export the Service that it comes from.")
	}
	record, leftOut = clusterset.RecordOf(s.cluster, s.last(), s.export, s.service)
	record.ExportedAt = exportedAt(s.export.CreationTimestamp, s.latest())
	if w := s.shown; w != nil && w.Spec.Withdrawn && record.ExportedAt.Equal(w.Spec.ExportedAt) {
		// The copy with the withdrawal is lost. Members that missed the withdrawal must see another export.
		record.ExportedAt = new(metav1.NewTime(record.ExportedAt.Add(time.Second)))
	}
	return record, leftOut, metav1.Condition{}
}

// latest returns the record that states this cluster's latest export: its copy, or the hub's if this cluster has lost
// its copy, or has an earlier one, from a backup; nil if there is neither.
func (s *state) latest() *hubv1alpha1.ServiceExportRecord {
	if s.own == nil || s.shown != nil && s.own.Spec.ExportedAt.Before(s.shown.Spec.ExportedAt) {
		return s.shown
	}
	return s.own
}

// withdrawal returns the record that ends the export. Until the hub shows it, a new one replaces it after half of the
// retention, so that other members have time to see it.
func (s *state) withdrawal(now time.Time) hubv1alpha1.ServiceExportRecordSpec {
	was := s.latest()
	switch {
	case was == nil: // pages without a record
		return hubv1alpha1.ServiceExportRecordSpec{Withdrawn: true}
	case was.Spec.Withdrawn && (s.isWithdrawn(&was.Spec) || age(was, now) < withdrawal.MaxRetention/2):
		return was.Spec
	}
	out := clusterset.Withdrawn(was.Spec.Origin, now)
	out.ExportedAt = was.Spec.ExportedAt
	return out
}

// isWithdrawn returns whether the hub shows this withdrawal. A restored hub may show an earlier one of the same record,
// but members that have seen the export since then ignore that.
func (s *state) isWithdrawn(record *hubv1alpha1.ServiceExportRecordSpec) bool {
	return s.shown != nil && s.shown.Spec.Withdrawn && s.shown.Spec.WithdrawnAt.Equal(record.WithdrawnAt)
}

// last returns the last exported record, whose values stay where new ones are invalid. An export without one goes to no
// other cluster.
func (s *state) last() *hubv1alpha1.ServiceExportRecordSpec {
	was := s.latest()
	unseen := s.own != nil && !s.own.Spec.Withdrawn && s.own.Annotations[clusterset.AnnotationPublished] == ""
	if unseen && s.shown != nil { // the copy was lost, and created again before the hub was seen
		was = s.shown
	}
	if was != nil && !was.Spec.Withdrawn {
		return &was.Spec
	}
	return &hubv1alpha1.ServiceExportRecordSpec{ExportTo: "cluster=" + s.cluster.Cluster}
}

// exportedAt returns since when the export counts: since its ServiceExport was created, or since it began again after
// a withdrawal, such as the deletion of its Service. It is never earlier than in the latest record. So records with the
// same exportedAt are the same export (clusterset.SetPublished).
func exportedAt(created metav1.Time, latest *hubv1alpha1.ServiceExportRecord) *metav1.Time {
	if latest == nil {
		return &created
	}
	at, before := created, latest.Spec.ExportedAt
	if latest.Spec.Withdrawn {
		if before != nil {
			before = new(metav1.NewTime(before.Add(time.Second)))
		}
		if w := latest.Spec.WithdrawnAt; w != nil && at.Before(w) {
			at = metav1.NewTime(w.Truncate(time.Second))
		}
	}
	if at.Before(before) {
		at = *before
	}
	return &at
}

// parse returns what other members will make of a record with this spec. own is this cluster's copy, or nil.
func parse(spec hubv1alpha1.ServiceExportRecordSpec, own *hubv1alpha1.ServiceExportRecord) (clusterset.Export, error) {
	rec := &hubv1alpha1.ServiceExportRecord{Spec: spec}
	rec.Name = clusterset.RecordName(spec.ServiceName, spec.ServiceNamespace, spec.ClusterID)
	if own != nil && own.Spec.ExportedAt.Equal(spec.ExportedAt) {
		rec.Annotations = own.Annotations
	}
	return clusterset.ParseExport(rec)
}
