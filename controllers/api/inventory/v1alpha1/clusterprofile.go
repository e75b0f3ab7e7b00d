// Package v1alpha1 holds ClusterProfile, JSON-compatible with the module sigs.k8s.io/cluster-inventory-api (K4322). Every field of
// upstream's is here, used or not, since what is read and written again must not lose one.
//
// +kubebuilder:object:generate=true
// +groupName=multicluster.x-k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "multicluster.x-k8s.io", Version: "v1alpha1"}

// AddToScheme registers the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ClusterProfile{}, &ClusterProfileList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// LabelClusterManager bears spec.clusterManager.name (P2).
const LabelClusterManager = "x-k8s.io/cluster-manager"

// The conditions (P3).
const (
	ConditionControlPlaneHealthy = "ControlPlaneHealthy"
	ConditionJoined              = "Joined"
)

// MaxPropertyValue is how many characters a property's value may have here; a ClusterProperty's may have more (ID5).
const MaxPropertyValue = 1024

// MaxProperties is how many properties a member may have here; a policy of the hub's sees to it. A ClusterProfile that is full could not be
// written any more, not even to evict its member.
const MaxProperties = 128

// ClusterProfile is one member in the inventory; its namespace is the clusterset (P1).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=multicluster
// +kubebuilder:printcolumn:name="Joined",type=string,JSONPath=`.status.conditions[?(@.type=="Joined")].status`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="ControlPlaneHealthy")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version.kubernetes`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ClusterProfileSpec `json:"spec"`
	// +optional
	Status ClusterProfileStatus `json:"status,omitzero"`
}

// ClusterProfileSpec says who manages the cluster, and how people call it.
type ClusterProfileSpec struct {
	// displayName is the consumers' own (P2).
	// +optional
	DisplayName string `json:"displayName,omitempty"`

	// +required
	ClusterManager ClusterManager `json:"clusterManager"`
}

// ClusterManager is who made the ClusterProfile and keeps its status.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ClusterManager is immutable"
type ClusterManager struct {
	// +required
	Name string `json:"name"`
}

// ClusterProfileStatus is what is known of the cluster.
type ClusterProfileStatus struct {
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// +optional
	Version ClusterVersion `json:"version,omitzero"`

	// properties are the cluster's ClusterProperties.
	// +optional
	Properties []Property `json:"properties,omitempty"`

	// credentialProviders is accessProviders' deprecated name.
	// +optional
	CredentialProviders []AccessProvider `json:"credentialProviders,omitempty"`

	// accessProviders say how to reach the cluster. They are its admin's (P4).
	// +optional
	AccessProviders []AccessProvider `json:"accessProviders,omitempty"`
}

// ClusterVersion is the version of the cluster.
type ClusterVersion struct {
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Property is one ClusterProperty of the cluster.
type Property struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`

	// +optional
	LastObservedTime metav1.Time `json:"lastObservedTime,omitzero"`
}

// AccessProvider is one way to reach the cluster: where it is, and by name who gives out credentials for it.
type AccessProvider struct {
	// +required
	Name string `json:"name"`
	// +optional
	Cluster clientcmdv1.Cluster `json:"cluster,omitzero"`
}

// +kubebuilder:object:root=true
type ClusterProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterProfile `json:"items"`
}
