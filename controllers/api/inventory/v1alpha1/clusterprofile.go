// Package v1alpha1 has the kind ClusterProfile, compatible with the module sigs.k8s.io/cluster-inventory-api
// (K4322). It has every field of that module, so that an object that is read and written keeps all of them.
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

var GroupVersion = schema.GroupVersion{Group: "multicluster.x-k8s.io", Version: "v1alpha1"}

func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ClusterProfile{}, &ClusterProfileList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// LabelClusterManager is a label whose value is spec.clusterManager.name.
const LabelClusterManager = "x-k8s.io/cluster-manager"

// The conditions of a ClusterProfile.
const (
	ConditionControlPlaneHealthy = "ControlPlaneHealthy"
	ConditionJoined              = "Joined"
	ConditionMemberReady         = "MemberReady" // what the member itself reports: its Membership's condition Ready
)

// MaxPropertyValue is how many characters the value of a Property may have. A ClusterProperty may have more.
const MaxPropertyValue = 1024

// MaxProperties is how many properties a member may have; a policy on the hub enforces it. A ClusterProfile at the size
// limit of the API server could not be updated any more, not even to evict its member.
const MaxProperties = 128

// ClusterProfile describes one member. Its namespace belongs to the clusterset, and its name is the cluster ID.
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

// ClusterProfileSpec says who manages the cluster, and has its display name.
type ClusterProfileSpec struct {
	// displayName is a name for people; any consumer of the inventory may set it.
	// +optional
	DisplayName string `json:"displayName,omitempty"`

	// clusterManager says who created this object.
	// +required
	ClusterManager ClusterManager `json:"clusterManager"`
}

// ClusterManager is the program that created the ClusterProfile and updates its status.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ClusterManager is immutable"
type ClusterManager struct {
	// name of the program.
	// +required
	Name string `json:"name"`
}

// ClusterProfileStatus is what is known about the cluster.
type ClusterProfileStatus struct {
	// conditions are Joined, ControlPlaneHealthy and MemberReady.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// version has the versions of the cluster.
	// +optional
	Version ClusterVersion `json:"version,omitzero"`

	// properties are the cluster's ClusterProperties.
	// +optional
	Properties []Property `json:"properties,omitempty"`

	// credentialProviders is the deprecated name of accessProviders.
	// +optional
	CredentialProviders []AccessProvider `json:"credentialProviders,omitempty"`

	// accessProviders say how to reach the cluster. An admin may set them.
	// +optional
	AccessProviders []AccessProvider `json:"accessProviders,omitempty"`
}

// ClusterVersion has the versions of the cluster.
type ClusterVersion struct {
	// kubernetes is the version of the API server.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Property is one ClusterProperty of the cluster.
type Property struct {
	// name of the ClusterProperty.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// value of the ClusterProperty.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`

	// lastObservedTime is when the value was last observed.
	// +optional
	LastObservedTime metav1.Time `json:"lastObservedTime,omitzero"`
}

// AccessProvider is one way to reach the cluster.
type AccessProvider struct {
	// name of the provider of credentials.
	// +required
	Name string `json:"name"`
	// cluster has the address of the API server.
	// +optional
	Cluster clientcmdv1.Cluster `json:"cluster,omitzero"`
}

// ClusterProfileList is a list of ClusterProfiles.
//
// +kubebuilder:object:root=true
type ClusterProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterProfile `json:"items"`
}
