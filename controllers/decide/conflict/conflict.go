// Package conflict merges the exports of one namespaced name (K1645, "Constraints and Conflict Resolution"). It
// takes every valid Export of the name, and returns one Merged and the Conflicts. It is pure, and gives the same
// result in every cluster; it does not consider what a cluster supports.
package conflict

import (
	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// ReasonPreference is not in K1645, which has no preferences.
const ReasonPreference mcsv1beta1.ServiceExportConditionReason = "PreferenceConflict"

// Merged is the merged export of a clusterset.
type Merged struct {
	Clusters []string // cluster IDs of all exporters, sorted bytewise
	Type     mcsv1beta1.ServiceImportType
	Ports    []clusterset.Port // the union, in order of precedence

	SessionAffinity       corev1.ServiceAffinity
	SessionAffinityConfig *corev1.SessionAffinityConfig
	InternalTrafficPolicy corev1.ServiceInternalTrafficPolicy
	TrafficDistribution   string
	Preference            hubv1alpha1.Preference
	MinReady              clusterset.MinReady
	Families              []corev1.IPFamily // never empty
	Labels, Annotations   map[string]string

	// Properties has the ClusterProperties that each cluster states, by cluster.
	Properties map[string]map[string]string

	// Names has, by cluster and by the port of its own Service, the name of that port in Ports. A port that lost a
	// conflict is missing: its cluster gets no traffic for it.
	Names map[string]map[clusterset.PortKey]string
}

// Conflict is one property that the clusters disagree about.
type Conflict struct {
	Reason  mcsv1beta1.ServiceExportConditionReason
	Message string // which property, whose value won, how many clusters disagree
}
