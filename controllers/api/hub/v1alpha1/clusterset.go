package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterSet is the one object in a clusterset's namespace on the hub that its admin writes; it bears the clusterset's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=multicluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.vips.mode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a clusterset's name becomes a label value: at most 63 characters"
type ClusterSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={vips: {mode: shared}, lease: {renewSeconds: 10, durationSeconds: 40, graceSeconds: 10, onExpiry: Remove}}
	Spec ClusterSetSpec `json:"spec,omitzero"`
	// +optional
	Status ClusterSetStatus `json:"status,omitzero"`
}

// ClusterSetSpec holds what is the same in every member.
type ClusterSetSpec struct {
	// +optional
	// +kubebuilder:default={mode: shared}
	VIPs VIPs `json:"vips,omitzero"`

	// +optional
	// +kubebuilder:default={renewSeconds: 10, durationSeconds: 40, graceSeconds: 10, onExpiry: Remove}
	Lease LeaseSpec `json:"lease,omitzero"`
}

// VIPMode says where the addresses of ClusterSetIP imports come from (DESIGN §5).
type VIPMode string

// VIPModeShared takes them from the cluster's own service ranges.
const VIPModeShared VIPMode = "shared"

// VIPs is how members give out addresses.
type VIPs struct {
	// +optional
	// +kubebuilder:validation:Enum=shared
	// +kubebuilder:default=shared
	Mode VIPMode `json:"mode,omitempty"`
}

// LeaseSpec is the members' heartbeat (T1), in seconds.
//
// +kubebuilder:validation:XValidation:rule="self.renewSeconds * 2 <= self.durationSeconds",message="durationSeconds must be at least twice renewSeconds: one lost renewal is no death"
type LeaseSpec struct {
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	RenewSeconds int32 `json:"renewSeconds,omitempty"`
	// +optional
	// +kubebuilder:default=40
	// +kubebuilder:validation:Minimum=2
	DurationSeconds int32 `json:"durationSeconds,omitempty"`
	// graceSeconds after the duration, a member that is not seen to renew counts as dead.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	GraceSeconds int32 `json:"graceSeconds,omitempty"`
	// onExpiry is what becomes of a dead member's endpoints in the others. Its ServiceImports and their VIPs stay in any case.
	// +optional
	// +kubebuilder:validation:Enum=Remove;NotReady;Keep
	// +kubebuilder:default=Remove
	OnExpiry ExpiryPolicy `json:"onExpiry,omitempty"`
	// keepLast keeps the endpoints of dead members of a Service that has no others: expiry alone takes none to zero.
	// +optional
	KeepLast bool `json:"keepLast,omitempty"`
}

// ExpiryPolicy says what becomes of a dead member's endpoints.
type ExpiryPolicy string

// They are removed; they stay, as not ready; they stay as they are.
const (
	ExpiryRemove   ExpiryPolicy = "Remove"
	ExpiryNotReady ExpiryPolicy = "NotReady"
	ExpiryKeep     ExpiryPolicy = "Keep"
)

// MaxDeparted is how many departures are kept, the newest.
const MaxDeparted = 200

// ClusterSetStatus is the hub controller's.
type ClusterSetStatus struct {
	// departed are the members that left or were evicted. Absence alone is never deletion: by this, members that were away at the time
	// drop what they hold of them from before. It stays when one joins again.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=200
	Departed []Departure `json:"departed,omitempty"`
}

// Departure is the end of one membership.
type Departure struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID"`
	// +required
	At metav1.Time `json:"at"`
}

// +kubebuilder:object:root=true
type ClusterSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSet `json:"items"`
}
