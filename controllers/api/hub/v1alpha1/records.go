package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// ServiceExportRecord says that one member exports one Service. Its name is <service>.<namespace>.<cluster id>, which is
// unambiguous since neither a Service's nor a namespace's name holds a dot. Only that member writes it; the API server sees to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=multicluster,shortName=ser
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.serviceNamespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.serviceName`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Withdrawn",type=boolean,JSONPath=`.spec.withdrawn`
// +kubebuilder:printcolumn:name="Held",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Held")].reason`
// +kubebuilder:printcolumn:name="Exported",type=date,JSONPath=`.spec.exportedAt`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.serviceName + '.' + self.spec.serviceNamespace + '.' + self.spec.clusterID",message="metadata.name must be <serviceName>.<serviceNamespace>.<clusterID>"
type ServiceExportRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ServiceExportRecordSpec `json:"spec"`
	// +optional
	Status ServiceExportRecordStatus `json:"status,omitzero"`
}

// Origin says whose record it is and how it stands in that member's sequence of changes.
type Origin struct {
	// clusterID of the member that speaks: one DNS label, or two joined by a dot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID is immutable"
	ClusterID string `json:"clusterID"`

	// serviceNamespace of the exported Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="serviceNamespace is immutable"
	ServiceNamespace string `json:"serviceNamespace"`

	// serviceName of the exported Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="serviceName is immutable"
	ServiceName string `json:"serviceName"`

	// revision grows with every change that the member makes to this record, and never falls: a reader that has seen a higher one
	// looks at a restored backup and waits until the member has published again.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9007199254740992
	Revision int64 `json:"revision"`

	// withdrawn says that this is over. A record that is merely gone is held instead: absence is not deletion.
	// +optional
	Withdrawn bool `json:"withdrawn,omitempty"`

	// withdrawnAt is when; the member removes the record a day later.
	// +optional
	WithdrawnAt *metav1.Time `json:"withdrawnAt,omitempty"`
}

// ServiceExportRecordSpec is the part of a Service and its ServiceExport that other clusters need.
//
// +kubebuilder:validation:XValidation:rule="(has(self.withdrawn) && self.withdrawn) || (has(self.type) && has(self.exportedAt) && has(self.ipFamilies))",message="type, exportedAt and ipFamilies are required unless the record is withdrawn"
type ServiceExportRecordSpec struct {
	Origin `json:",inline"`

	// exportedAt is the ServiceExport's creationTimestamp: the oldest export wins a conflict.
	// +optional
	ExportedAt *metav1.Time `json:"exportedAt,omitempty"`

	// +optional
	// +kubebuilder:validation:Enum=ClusterSetIP;Headless
	Type mcsv1beta1.ServiceImportType `json:"type,omitempty"`

	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Ports []ServicePort `json:"ports,omitempty"`

	// +optional
	// +kubebuilder:validation:Enum=None;ClientIP
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`

	// +optional
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`

	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`

	// +optional
	// +kubebuilder:validation:MaxLength=63
	TrafficDistribution *string `json:"trafficDistribution,omitempty"`

	// preference says whose endpoints carry the traffic of a cluster that has some of its own; "" and none: all.
	// +optional
	// +kubebuilder:validation:Enum="";none;prefer-local;local-only
	Preference Preference `json:"preference,omitempty"`

	// probe says how other members may look at the endpoints, where the ClusterSet lets them; "": as the ClusterSet says.
	// +optional
	// +kubebuilder:validation:Enum="";none;tcp;grpc
	Probe Probe `json:"probe,omitempty"`

	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`

	// exportedLabels of the ServiceExport.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	ExportedLabels map[string]string `json:"exportedLabels,omitempty"`

	// exportedAnnotations of the ServiceExport.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	ExportedAnnotations map[string]string `json:"exportedAnnotations,omitempty"`
}

// Preference is what the annotation clusterset-dns.io/preference of a ServiceExport asks for (T2).
type Preference string

// The preferences.
const (
	PreferNone  Preference = "none"         // every cluster's endpoints
	PreferLocal Preference = "prefer-local" // the own cluster's while any of them is ready, else every other's
	LocalOnly   Preference = "local-only"   // the own cluster's
)

// Probe is what the annotation clusterset-dns.io/probe of a ServiceExport asks for (F4).
type Probe string

// The probes.
const (
	ProbeNone Probe = "none"
	ProbeTCP  Probe = "tcp"  // a connection to the first TCP port
	ProbeGRPC Probe = "grpc" // grpc.health.v1.Health/Check, without TLS, of the first port whose appProtocol is gRPC, else of the first TCP port
)

// ServicePort is one port of the exported Service.
type ServicePort struct {
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// +required
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol"`

	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// +optional
	// +kubebuilder:validation:MaxLength=317
	AppProtocol *string `json:"appProtocol,omitempty"`
}

// ServiceExportRecordStatus is written on a member's own copies only, never on the hub.
type ServiceExportRecordStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// withheld are the addresses of a peer's endpoints that are not ready here because too few members reach them (F4); * for all.
	// +optional
	// +listType=atomic
	Withheld []string `json:"withheld,omitempty"`
}

// The conditions of a member's copies.
const (
	// ConditionPublished on the copy of an own record: whether the hub has this revision.
	ConditionPublished = "Published"
	// ConditionHeld on the copy of a peer's record: the hub no longer shows it as it is held here, and its owner did not say so.
	ConditionHeld = "Held"
	// ConditionReached on the copy of a peer's record: False while endpoints of it are withheld (status.withheld).
	ConditionReached = "Reached"
)

// The reasons of ConditionPublished.
const (
	ReasonPublished = "Published" // the hub has this revision
	ReasonWithdrawn = "Withdrawn" // the hub has the withdrawal
	ReasonFailed    = "Failed"    // the hub refused it, or did not answer
)

// +kubebuilder:object:root=true
type ServiceExportRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServiceExportRecord `json:"items"`
}

// EndpointRecord is one EndpointSlice of an exported Service, slim. Its name is <slice UID>.<cluster id>.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=multicluster,shortName=epr
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.serviceNamespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.serviceName`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.addressType`
// +kubebuilder:printcolumn:name="Withdrawn",type=boolean,JSONPath=`.spec.withdrawn`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.contains('.') && self.metadata.name.substring(self.metadata.name.indexOf('.') + 1) == self.spec.clusterID",message="metadata.name must be <slice UID>.<clusterID>, and the UID holds no dot"
type EndpointRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec EndpointRecordSpec `json:"spec"`
}

// EndpointRecordSpec holds what a peer needs of an EndpointSlice: nodeName, targetRef and uid stay at home.
//
// +kubebuilder:validation:XValidation:rule="(has(self.withdrawn) && self.withdrawn) || has(self.addressType)",message="addressType is required unless the record is withdrawn"
type EndpointRecordSpec struct {
	Origin `json:",inline"`

	// +optional
	// +kubebuilder:validation:Enum=IPv4;IPv6
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="addressType is immutable"
	AddressType discoveryv1.AddressType `json:"addressType,omitempty"`

	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Ports []EndpointPort `json:"ports,omitempty"`

	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// EndpointPort is one port of the slice: name is the Service port's, port is where the endpoints listen.
type EndpointPort struct {
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// +required
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol"`

	// port is absent where the slice's is: then any port is meant.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// +optional
	// +kubebuilder:validation:MaxLength=317
	AppProtocol *string `json:"appProtocol,omitempty"`
}

// Endpoint is one backend.
type Endpoint struct {
	// address is the first of the slice's endpoint; the API defines no meaning for further ones.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`

	// +optional
	Ready *bool `json:"ready,omitempty"`
	// +optional
	Serving *bool `json:"serving,omitempty"`
	// +optional
	Terminating *bool `json:"terminating,omitempty"`

	// +optional
	// +kubebuilder:validation:MaxLength=63
	Hostname string `json:"hostname,omitempty"`

	// podName is the targetRef's name where that is a Pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName,omitempty"`

	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
}

// +kubebuilder:object:root=true
type EndpointRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EndpointRecord `json:"items"`
}
