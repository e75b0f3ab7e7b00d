package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterSet has the settings of a clusterset. There is exactly one in the clusterset's namespace on the hub. It
// has the clusterset's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=multicluster,shortName=cset
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.vips.mode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a clusterset's name becomes a label value: at most 63 characters"
type ClusterSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={vips: {mode: shared, blocks: {ipv4Bits: 22, ipv6Bits: 112}}, lease: {renewSeconds: 10, durationSeconds: 40, graceSeconds: 10, onExpiry: Remove}, namespaces: {deny: {"kube-*", "clusterset-*"}}}
	Spec ClusterSetSpec `json:"spec,omitzero"`
	// +optional
	Status ClusterSetStatus `json:"status,omitzero"`
}

// ClusterSetSpec has the settings that are the same in every member.
type ClusterSetSpec struct {
	// vips says which addresses the imports get.
	// +optional
	// +kubebuilder:default={mode: shared, blocks: {ipv4Bits: 22, ipv6Bits: 112}}
	VIPs VIPs `json:"vips,omitzero"`

	// lease says how members find out that another one is down, and what they do then.
	// +optional
	// +kubebuilder:default={renewSeconds: 10, durationSeconds: 40, graceSeconds: 10, onExpiry: Remove}
	Lease LeaseSpec `json:"lease,omitzero"`

	// namespaces says which namespaces members may export and import.
	// +optional
	// +kubebuilder:default={deny: {"kube-*", "clusterset-*"}}
	Namespaces NamespaceRules `json:"namespaces,omitzero"`

	// externalNames says whether members may publish load balancers for clients outside the clusters.
	// +optional
	// +kubebuilder:validation:Enum=Allow;Forbid
	// +kubebuilder:default=Allow
	ExternalNames ExternalNames `json:"externalNames,omitempty"`

	// declaredImports says what agents do with ServiceImports that other programs created without IPs. Fill: they write
	// the IPs and the status. Ignore, the default: they leave them alone. A namespace can say otherwise by the
	// annotation clusterset-dns.io/declared-imports.
	// +optional
	// +kubebuilder:validation:Enum=Ignore;Fill
	DeclaredImports DeclaredImports `json:"declaredImports,omitempty"`
}

// DeclaredImports says what agents do with ServiceImports that other programs created without IPs.
type DeclaredImports string

// The values of DeclaredImports; an empty value means Ignore.
const (
	DeclaredImportsIgnore DeclaredImports = "Ignore"
	DeclaredImportsFill   DeclaredImports = "Fill"
)

// ExternalNames says whether members may publish load balancers for clients outside the clusters.
type ExternalNames string

// The values of ExternalNames; an empty value means Allow.
const (
	ExternalNamesAllow  ExternalNames = "Allow"
	ExternalNamesForbid ExternalNames = "Forbid"
)

// NamespaceRules says which namespaces members may export and import. A * at the end or at the beginning of a name
// stands for any characters.
type NamespaceRules struct {
	// allow lists the namespaces that may be used. If it is empty, all may.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^(\*[-a-z0-9]*|[-a-z0-9]+\*?)$`
	Allow []string `json:"allow,omitempty"`
	// deny lists the namespaces that must not be used, even if they are allowed. [] denies none.
	// +optional
	// +listType=set
	// +kubebuilder:default={"kube-*", "clusterset-*"}
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^(\*[-a-z0-9]*|[-a-z0-9]+\*?)$`
	Deny []string `json:"deny,omitzero"`
	// missing says what a member does about an export whose namespace it lacks. Create: it creates the namespace, and
	// never deletes one. Ignore, the default: it does not import the name.
	// +optional
	// +kubebuilder:validation:Enum=Ignore;Create
	Missing MissingNamespaces `json:"missing,omitempty"`
}

// MissingNamespaces says what a member does about an export whose namespace it lacks.
type MissingNamespaces string

// The values of MissingNamespaces; an empty value means Ignore.
const (
	MissingNamespacesIgnore MissingNamespaces = "Ignore"
	MissingNamespacesCreate MissingNamespaces = "Create"
)

// VIPMode says where the addresses of ClusterSetIP imports come from.
type VIPMode string

const (
	VIPModeShared    VIPMode = "shared"    // from the cluster's own Service ranges
	VIPModePreferred VIPMode = "preferred" // from the member's own block while it has free addresses
)

// VIPs says which addresses the imports get.
type VIPs struct {
	// mode says where the addresses come from. shared: the cluster's own Service ranges. preferred: the member's own
	// block while it has free addresses; ordinary Services may use the block too.
	// +optional
	// +kubebuilder:validation:Enum=shared;preferred
	// +kubebuilder:default=shared
	Mode VIPMode `json:"mode,omitempty"`
	// pools are the CIDRs, of either family, from which the hub grants blocks to members, in this order. They must not
	// overlap each other or any range that a cluster uses. A granted block stays if its pool is removed from the list.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR, such as 10.200.0.0/13 or fd00:c5::/48"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has bits set after its prefix: write the first address of the range"
	Pools []string `json:"pools,omitempty"`
	// blocks says how large a new block is. Granted blocks keep their size.
	// +optional
	// +kubebuilder:default={ipv4Bits: 22, ipv6Bits: 112}
	Blocks BlockSize `json:"blocks,omitzero"`
}

// BlockSize is the prefix length of a block, by family.
type BlockSize struct {
	// ipv4Bits is the prefix length of an IPv4 block: 22 gives 1024 addresses.
	// +optional
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=29
	IPv4Bits int32 `json:"ipv4Bits,omitempty"`
	// ipv6Bits is the prefix length of an IPv6 block.
	// +optional
	// +kubebuilder:default=112
	// +kubebuilder:validation:Minimum=32
	// +kubebuilder:validation:Maximum=125
	IPv6Bits int32 `json:"ipv6Bits,omitempty"`
}

// LeaseSpec has the times of the members' heartbeat, and what happens when it stops.
//
// +kubebuilder:validation:XValidation:rule="self.renewSeconds * 2 <= self.durationSeconds",message="durationSeconds must be at least twice renewSeconds, so that one lost renewal does not expire a member"
type LeaseSpec struct {
	// renewSeconds is how often a member renews its Lease on the hub.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	RenewSeconds int32 `json:"renewSeconds,omitempty"`
	// durationSeconds is how long a Lease lasts after a renewal.
	// +optional
	// +kubebuilder:default=40
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=86400
	DurationSeconds int32 `json:"durationSeconds,omitempty"`
	// graceSeconds after the end of its Lease, a member is expired.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	GraceSeconds int32 `json:"graceSeconds,omitempty"`
	// onExpiry says what the other members do with an expired member's endpoints. ServiceImports and VIPs always stay.
	// +optional
	// +kubebuilder:validation:Enum=Remove;NotReady;Keep
	// +kubebuilder:default=Remove
	OnExpiry ExpiryPolicy `json:"onExpiry,omitempty"`
	// mostSilent says what happens while more than half of the other members that have not expired, and at least two,
	// do not renew their Leases. Hold assumes a fault of the hub or its network, and expires none of them by its Lease;
	// one that does not answer others either is unreachable all the same. Expire expires each of them.
	// +optional
	// +kubebuilder:validation:Enum=Hold;Expire
	// +kubebuilder:default=Hold
	MostSilent MostSilent `json:"mostSilent,omitempty"`
}

// MostSilent says what happens while most members do not renew their Leases.
type MostSilent string

// The values of MostSilent; an empty value means Hold.
const (
	MostSilentHold   MostSilent = "Hold"
	MostSilentExpire MostSilent = "Expire"
)

// ExpiryPolicy says what other members do with an expired member's endpoints.
type ExpiryPolicy string

// The endpoints are removed, or stay and are not ready, or stay as they are.
const (
	ExpiryRemove   ExpiryPolicy = "Remove"
	ExpiryNotReady ExpiryPolicy = "NotReady"
	ExpiryKeep     ExpiryPolicy = "Keep"
)

// MaxDeparted is how many departures are kept: the newest ones.
const MaxDeparted = 200

// MaxBlocks is how many blocks the status of a ClusterSet can have.
const MaxBlocks = 4096

// The conditions of a ClusterSet. It has none in mode shared, or without pools.
const (
	ConditionBlocksGranted = "BlocksGranted" // every member has the blocks that it wants
	ConditionPoolsValid    = "PoolsValid"    // pools and blocks overlap no range that a member is known to use
)

// ClusterSetStatus is what the hub controller reports.
type ClusterSetStatus struct {
	// conditions are BlocksGranted and PoolsValid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// departed lists the members that left or were evicted. A member that was offline at the time drops their older
	// records because of this list. An entry stays when its member joins again.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=200
	Departed []Departure `json:"departed,omitempty"`

	// blocks lists the ranges that members own, and allocate VIPs from. A block is never resized, and goes to another
	// member only after the ClusterProfile and the records of its owner are gone.
	// +optional
	// +listType=map
	// +listMapKey=cidr
	// +kubebuilder:validation:MaxItems=4096
	Blocks []Block `json:"blocks,omitempty"`
}

// Block is a range that one member owns.
type Block struct {
	// clusterID is the member that owns the block.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID"`
	// cidr is the range.
	// +required
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	CIDR string `json:"cidr"`
}

// Departure is the end of a membership.
type Departure struct {
	// clusterID is the member that departed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID"`
	// at ends the membership: records that the member created before are dropped.
	// +required
	At metav1.Time `json:"at"`
}

// ClusterSetList is a list of ClusterSets.
//
// +kubebuilder:object:root=true
type ClusterSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSet `json:"items"`
}
