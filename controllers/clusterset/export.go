// Package clusterset has the values that the decisions work on, and the names that are shared with other programs.
// It validates records of other clusters: a record becomes an Export here, or an error. It uses no client, clock or
// log.
package clusterset

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// Export is one cluster's export of one namespaced name, validated and with defaults (affinity None,
// internalTrafficPolicy Cluster).
type Export struct {
	Cluster         string // cluster ID
	Namespace, Name string
	Created         time.Time // since when the cluster states that it exports, whole seconds
	Published       time.Time // when the hub created the record, whole seconds; zero means before all others (C1)
	Type            mcsv1beta1.ServiceImportType
	Ports           []Port // unique by name, unique by protocol and number

	SessionAffinity       corev1.ServiceAffinity
	SessionAffinityConfig *corev1.SessionAffinityConfig // nil if none is set
	InternalTrafficPolicy corev1.ServiceInternalTrafficPolicy
	TrafficDistribution   string                 // "" if none is set
	Preference            hubv1alpha1.Preference // as ParsePreference returns it
	MinReady              MinReady               // of the tiers of Preference
	Properties            map[string]string      // ClusterProperties of the cluster that others may select it by
	ExportTo              string                 // as ParseExportTo returns it (GoesTo)

	Families    []corev1.IPFamily // one or two, in the exporter's order
	Labels      map[string]string
	Annotations map[string]string
}

// PortKey is what clients of a Service connect to: no two ports of a Service have the same.
type PortKey struct {
	Protocol corev1.Protocol
	Number   int32
}

func (p Port) Key() PortKey { return PortKey{p.Protocol, p.Number} }

// Port is one port of an exported Service.
type Port struct {
	Name        string // "" for the only port of its Service
	Protocol    corev1.Protocol
	Number      int32
	AppProtocol string // "" if none is set
}
