package serviceexport

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Given is what an export is decided from. Shown is the cluster's record on the hub; nil if there is none.
type Given struct {
	Cluster clusterset.Place // that exports
	Export  *mcsv1beta1.ServiceExport
	Service *corev1.Service              // nil if there is none
	Slices  []*discoveryv1.EndpointSlice // of the Service
	Shown   *hubv1alpha1.ServiceExportRecord
	Rules   hubv1alpha1.ClusterSetSpec
}

// Preview returns the record that an agent would have on the hub at now, by the hub's clock, with all endpoints in it,
// and the condition Valid. The record is nil if the export would end, or not begin.
func Preview(g *Given, now time.Time) (*hubv1alpha1.ServiceExportRecord, metav1.Condition) {
	d := decide(&state{
		cluster: g.Cluster, export: g.Export, service: g.Service, slices: g.Slices, own: g.Shown, shown: g.Shown,
		excluded: !clusterset.MayUse(g.Rules.Namespaces, g.Export.Namespace), external: g.Rules.ExternalNames,
	}, now)
	if !d.exports {
		return nil, d.valid
	}
	rec := &hubv1alpha1.ServiceExportRecord{Spec: d.record}
	rec.Name = clusterset.RecordName(d.record.ServiceName, d.record.ServiceNamespace, d.record.ClusterID)
	if rec.CreationTimestamp.Time = now; g.Shown != nil && !isReplaced(g.Shown, &d.record) {
		rec.CreationTimestamp = g.Shown.CreationTimestamp
	}
	rec.Spec.Endpoints = d.groups
	return rec, d.valid
}
