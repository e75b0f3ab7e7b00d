// Package v1alpha1 exists for the CRD, which also serves this version. No program uses it.
//
// +groupName=about.k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
)

// ClusterProperty is one property of a cluster.
//
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.spec.value`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterProperty struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec v1beta1.ClusterPropertySpec `json:"spec"`
}
