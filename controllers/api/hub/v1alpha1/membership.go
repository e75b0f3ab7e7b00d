package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MembershipName is the name of the only Membership of a cluster.
const MembershipName = "clusterset"

// The conditions of a Membership, in the order of cause and effect. Ready is False if one of the others is, except
// PeersReachable: that another member fails makes this one no less ready.
const (
	ConditionHubReachable     = "HubReachable"     // the hub answers this agent
	ConditionCredentialsValid = "CredentialsValid" // the hub accepts the agent's token, and renews it
	ConditionAdmitted         = "Admitted"         // the hub has this cluster's claim, and no other cluster uses it
	ConditionPermitted        = "Permitted"        // the agent has its rights in this cluster and on the hub
	ConditionRangesDisjoint   = "RangesDisjoint"   // no other member has this cluster's Pod or Service addresses
	ConditionDNSAnswers       = "DNSAnswers"       // clusterset.local is answered where this cluster's Pods ask
	ConditionPeersReachable   = "PeersReachable"   // the agents and endpoints of other members answer here
	ConditionMembershipReady  = "Ready"
)

// Membership is what the agent of a cluster knows of its membership. There is one per cluster, and only the agent
// writes it. It is current while the leading agent renews the Lease clusterset-controller in clusterset-system: see
// reportedAt.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=multicluster,shortName=mship
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Set",type=string,JSONPath=`.status.clusterSet`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.status.clusterID`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Hub",type=string,JSONPath=`.status.conditions[?(@.type=="HubReachable")].status`
// +kubebuilder:printcolumn:name="DNS",type=string,JSONPath=`.status.conditions[?(@.type=="DNSAnswers")].status`
// +kubebuilder:printcolumn:name="Reported",type=date,JSONPath=`.status.reportedAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'clusterset'",message="the only Membership of a cluster has the name clusterset"
type Membership struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Status MembershipStatus `json:"status,omitzero"`
}

// MembershipStatus is what the agent knows.
type MembershipStatus struct {
	// clusterSet is the clusterset that this cluster is a member of; empty if it is none.
	// +optional
	ClusterSet string `json:"clusterSet,omitempty"`
	// clusterID is this cluster's ID.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// hub is the URL of the hub that the agent uses.
	// +optional
	Hub string `json:"hub,omitempty"`
	// hubNamespace is the clusterset's namespace on the hub.
	// +optional
	HubNamespace string `json:"hubNamespace,omitempty"`
	// reportedAt is when the agent last wrote this status: on each change, and at least every five minutes. If it is
	// older, no agent works, and the conditions are what the last one knew.
	// +optional
	ReportedAt metav1.Time `json:"reportedAt,omitzero"`
	// conditions are HubReachable, CredentialsValid, Admitted, Permitted, RangesDisjoint, DNSAnswers, PeersReachable
	// and Ready. A message is one sentence, and the URL of what to do. Unknown means that the agent cannot know, mostly
	// because of an earlier condition.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MembershipList is a list of Memberships.
//
// +kubebuilder:object:root=true
type MembershipList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Membership `json:"items"`
}
