// Package conflict resolves what the clusters of a clusterset say about one namespaced name (DESIGN §4, SPEC C1–C9, K1645
// "Constraints and Conflict Resolution"). In: every valid Export of the name. Out: one Merged, and the Conflicts. Pure and the same in
// every cluster; what the own cluster supports is applied afterwards, by others.
package conflict

import (
	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// These are ours: K1645 knows no preference (T2), and no probe (F4).
const (
	ReasonPreference mcsv1beta1.ServiceExportConditionReason = "PreferenceConflict"
	ReasonProbe      mcsv1beta1.ServiceExportConditionReason = "ProbeConflict"
)

// Merged is what the clusterset exports under one name.
type Merged struct {
	Clusters []string // ids of all exporters, sorted bytewise
	Type     mcsv1beta1.ServiceImportType
	Ports    []clusterset.Port // the union, in order of precedence

	SessionAffinity       corev1.ServiceAffinity
	SessionAffinityConfig *corev1.SessionAffinityConfig
	InternalTrafficPolicy corev1.ServiceInternalTrafficPolicy
	TrafficDistribution   string
	Preference            hubv1alpha1.Preference
	Probe                 hubv1alpha1.Probe // "": as the ClusterSet says
	Families              []corev1.IPFamily // never empty: the oldest's at least
	Labels, Annotations   map[string]string

	// Names tells, per cluster and name of its own Service's port, the name of the port in Ports that its endpoints serve. A port that
	// lost is not in it: that cluster gets no traffic for it (C4).
	Names map[string]map[string]string
}

// Conflict is one property on which the clusters disagree.
type Conflict struct {
	Reason  mcsv1beta1.ServiceExportConditionReason
	Message string // which property, whose value won, how many clusters disagree
}
