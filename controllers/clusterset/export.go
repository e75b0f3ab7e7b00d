// Package clusterset holds the values that the decisions work on, and the only way in for foreign data: a record becomes an Export
// or a Source here, or an error that says what is wrong with it. It reaches no client, clock or log.
package clusterset

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// Export is one cluster's export of one namespaced name, checked and normal: defaults filled in (protocol TCP, affinity None,
// internalTrafficPolicy Cluster), no empty but non-nil maps or lists.
type Export struct {
	Cluster         string // cluster id
	Namespace, Name string
	Created         time.Time // the ServiceExport's creationTimestamp, whole seconds
	Type            mcsv1beta1.ServiceImportType
	Ports           []Port // unique by name, unique by protocol and number

	SessionAffinity       corev1.ServiceAffinity
	SessionAffinityConfig *corev1.SessionAffinityConfig // nil where none is set
	InternalTrafficPolicy corev1.ServiceInternalTrafficPolicy
	TrafficDistribution   string                 // "" where none is asked for
	Preference            hubv1alpha1.Preference // none where nothing is asked for
	Probe                 hubv1alpha1.Probe      // "" where nothing is asked for

	Families    []corev1.IPFamily // one or two, in the exporter's order
	Labels      map[string]string
	Annotations map[string]string
}

// Port is one port of an exported Service.
type Port struct {
	Name        string // "" for the only port of its Service
	Protocol    corev1.Protocol
	Number      int32
	AppProtocol string // "" where none is set
}
