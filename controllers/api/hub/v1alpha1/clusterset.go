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
	// +kubebuilder:default={vips: {mode: shared, blocks: {ipv4Bits: 22, ipv6Bits: 112}}, lease: {renewSeconds: 10, durationSeconds: 40, graceSeconds: 10, onExpiry: Remove}}
	Spec ClusterSetSpec `json:"spec,omitzero"`
	// +optional
	Status ClusterSetStatus `json:"status,omitzero"`
}

// ClusterSetSpec holds what is the same in every member.
type ClusterSetSpec struct {
	// +optional
	// +kubebuilder:default={mode: shared, blocks: {ipv4Bits: 22, ipv6Bits: 112}}
	VIPs VIPs `json:"vips,omitzero"`

	// +optional
	// +kubebuilder:default={renewSeconds: 10, durationSeconds: 40, graceSeconds: 10, onExpiry: Remove}
	Lease LeaseSpec `json:"lease,omitzero"`

	// probe lets members look at each other's endpoints, and leave out those that a majority of the live members does not reach (F4). Where
	// it is absent nobody probes anything.
	// +optional
	Probe *ProbeSpec `json:"probe,omitempty"`
}

// ProbeSpec is how members look at each other's endpoints.
//
// +kubebuilder:validation:XValidation:rule="self.timeoutSeconds <= self.intervalSeconds",message="timeoutSeconds must be at most intervalSeconds"
type ProbeSpec struct {
	// default is for Services whose ServiceExports do not say by the annotation clusterset-dns.io/probe.
	// +optional
	// +kubebuilder:validation:Enum=none;tcp;grpc
	// +kubebuilder:default=none
	Default Probe `json:"default,omitempty"`
	// intervalSeconds is from one look of a member at an endpoint to its next. It is stretched so that no endpoint is looked at more than
	// once a second by all members together.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// ownView leaves out in each member, beside what the majority does not reach, what that member itself does not.
	// +optional
	OwnView bool `json:"ownView,omitempty"`
	// keepLast keeps endpoints that are not reached where a port of a Service has no others: votes alone take none to zero.
	// +optional
	// +kubebuilder:default=true
	KeepLast *bool `json:"keepLast,omitempty"`
}

// VIPMode says where the addresses of ClusterSetIP imports come from (DESIGN §5).
type VIPMode string

// The cluster's own service ranges; or the member's own block while it has free addresses, which ordinary Services may use too.
const (
	VIPModeShared    VIPMode = "shared"
	VIPModePreferred VIPMode = "preferred"
)

// VIPs is how members give out addresses.
type VIPs struct {
	// +optional
	// +kubebuilder:validation:Enum=shared;preferred
	// +kubebuilder:default=shared
	Mode VIPMode `json:"mode,omitempty"`
	// pools are the ranges (CIDRs, of either family) that the hub cuts members' blocks from, in the order in which they are used up. They
	// must not overlap each other or anything that a cluster uses. A block stays where it is when its pool is taken off this list.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR, such as 10.200.0.0/13 or fd00:c5::/48"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has bits set behind its prefix: write the first address of the range"
	Pools []string `json:"pools,omitempty"`
	// blocks says how large a member's block is. It applies to those that are granted from now on.
	// +optional
	// +kubebuilder:default={ipv4Bits: 22, ipv6Bits: 112}
	Blocks BlockSize `json:"blocks,omitzero"`
}

// BlockSize is the length of the prefix of a block of each family.
type BlockSize struct {
	// +optional
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=29
	IPv4Bits int32 `json:"ipv4Bits,omitempty"`
	// +optional
	// +kubebuilder:default=112
	// +kubebuilder:validation:Minimum=32
	// +kubebuilder:validation:Maximum=125
	IPv6Bits int32 `json:"ipv6Bits,omitempty"`
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
	// keepLast keeps the endpoints of dead members for ports that no living one serves: expiry alone takes none to zero.
	// +optional
	KeepLast bool `json:"keepLast,omitempty"`
	// mostSilent is what becomes of other members while more than half of them, and two at least, are silent together. Hold takes that for
	// the hub's fault, or its network's: nobody counts as dead by it. Expire takes it for so many deaths.
	// +optional
	// +kubebuilder:validation:Enum=Hold;Expire
	// +kubebuilder:default=Hold
	MostSilent MostSilent `json:"mostSilent,omitempty"`
}

// MostSilent says what becomes of members most of which are silent together.
type MostSilent string

// They are held, which an empty value means, too; they expire, each by itself.
const (
	MostSilentHold   MostSilent = "Hold"
	MostSilentExpire MostSilent = "Expire"
)

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

// MaxBlocks is how many blocks there can be: the status of a ClusterSet is one object.
const MaxBlocks = 4096

// The types of conditions of a ClusterSet. Where there is nothing to tell there is none: no pools, or mode shared.
const (
	ConditionBlocksGranted = "BlocksGranted" // every member has the blocks that it asks for
	ConditionPoolsValid    = "PoolsValid"    // pools and blocks meet nothing that a member is known to use
)

// ClusterSetStatus is the hub controller's.
type ClusterSetStatus struct {
	// conditions are BlocksGranted and PoolsValid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// departed are the members that left or were evicted. Absence alone is never deletion: by this, members that were away at the time
	// drop what they hold of them from before. It stays when one joins again.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=200
	Departed []Departure `json:"departed,omitempty"`

	// blocks are the ranges that members own, of which they make their VIPs. A block is never taken from a member, made smaller, or
	// given to another while its member's ClusterProfile or records are there (V2).
	// +optional
	// +listType=map
	// +listMapKey=cidr
	// +kubebuilder:validation:MaxItems=4096
	Blocks []Block `json:"blocks,omitempty"`
}

// Block is a range that one member owns.
type Block struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID"`
	// +required
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	CIDR string `json:"cidr"`
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
