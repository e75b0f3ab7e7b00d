package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// ServiceExportRecord says that one member exports one Service, and with which endpoints. Its name is
// <service>.<namespace>.<cluster ID>. Only that member may write it. Each member keeps a copy without endpoints in its
// namespace clusterset-system.
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

// Origin says which member wrote a record or page, for which Service, and when in the order of its changes.
type Origin struct {
	// clusterID is the member that writes this object: one DNS label, or two joined by a dot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID is immutable"
	ClusterID string `json:"clusterID"`

	// serviceNamespace is the namespace of the exported Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="serviceNamespace is immutable"
	ServiceNamespace string `json:"serviceNamespace"`

	// serviceName is the name of the exported Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="serviceName is immutable"
	ServiceName string `json:"serviceName"`

	// revision grows with every change that the member makes to this object. A reader that has seen a higher one knows
	// that the hub was restored, and waits until the member has published again. A change of endpoints alone does not
	// change the revision of a copy.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9007199254740992
	Revision int64 `json:"revision"`
}

// ServiceExportRecordSpec has the parts of a Service and its ServiceExport that other clusters need.
//
// +kubebuilder:validation:XValidation:rule="(has(self.withdrawn) && self.withdrawn) || (has(self.type) && has(self.exportedAt) && has(self.ipFamilies))",message="type, exportedAt and ipFamilies are required unless the record is withdrawn"
type ServiceExportRecordSpec struct {
	Origin `json:",inline"`

	// withdrawn ends the export. If a record is only missing, other members keep using their copy.
	// +optional
	Withdrawn bool `json:"withdrawn,omitempty"`

	// withdrawnAt is when the record was withdrawn. The member deletes it once all others have acknowledged that, or
	// 30 days later.
	// +optional
	WithdrawnAt *metav1.Time `json:"withdrawnAt,omitempty"`

	// endpoints are the backends. Agents write at most 100 in all. If there are more, or too many groups, they are in
	// pages.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Endpoints []EndpointGroup `json:"endpoints,omitempty"`

	// pages is the number of this export's EndpointPages, whose numbers begin at 0. Without pages, endpoints has all
	// backends. Endpoints of a page that is missing on the hub stay in use. Pages from this number on do not count. The
	// hub's policy refuses records without this field: they are of older builds, which put no endpoints into records.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Pages int32 `json:"pages"`

	// incomplete is true while the hub refuses some of the endpoints.
	// +optional
	Incomplete bool `json:"incomplete,omitempty"`

	// exportedAt is the creationTimestamp of the ServiceExport, or when the export began again after a withdrawal. In a
	// conflict, the oldest export wins among those whose record was created within 10 minutes of the name's first one.
	// +optional
	ExportedAt *metav1.Time `json:"exportedAt,omitempty"`

	// type is the type of the ServiceImports: ClusterSetIP, or Headless for a headless Service.
	// +optional
	// +kubebuilder:validation:Enum=ClusterSetIP;Headless
	Type mcsv1beta1.ServiceImportType `json:"type,omitempty"`

	// ports are the ports of the Service.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Ports []ServicePort `json:"ports,omitempty"`

	// sessionAffinity of the Service. A reader takes a value that it does not know for None.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=63
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`

	// sessionAffinityConfig of the Service.
	// +optional
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`

	// internalTrafficPolicy of the Service. A reader takes a value that it does not know for Cluster.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=63
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`

	// trafficDistribution of the Service.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TrafficDistribution *string `json:"trafficDistribution,omitempty"`

	// preference lists, separated by commas, which clusters carry the traffic: the first entry with enough ready
	// endpoints does. An entry is local, any, cluster=ID, PROPERTY=VALUE or same:PROPERTY, where PROPERTY is the name
	// of a ClusterProperty. none stands for any, prefer-local for local,any and local-only for local. An empty value
	// means none.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Preference Preference `json:"preference,omitempty"`

	// minReady is how many ready endpoints an entry of preference needs to be used: a number, or a percentage of all
	// its endpoints. An empty value means 1.
	// +optional
	// +kubebuilder:validation:MaxLength=8
	MinReady string `json:"minReady,omitempty"`

	// exportTo lists, separated by commas, which clusters may import the Service, beside its own: cluster=ID or
	// PROPERTY=VALUE. An empty value means all.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ExportTo string `json:"exportTo,omitempty"`

	// properties are ClusterProperties of the cluster, by which entries of preference select it.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Properties map[string]string `json:"properties,omitempty"`

	// external is the load balancer of the Service, for clients outside the clusters. It is absent unless the
	// ServiceExport asks for it.
	// +optional
	External *ExternalAddresses `json:"external,omitempty"`

	// ipFamilies of the Service.
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

// ExternalAddresses is where clients outside the clusters reach a Service in one cluster.
type ExternalAddresses struct {
	// ips are the addresses of the load balancer, of both families.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=45
	IPs []string `json:"ips,omitempty"`

	// hostnames are the DNS names of the load balancer.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Hostnames []string `json:"hostnames,omitempty"`

	// weight is the share of clients that this cluster gets, relative to the others. 0: only if there is no other.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=100
	Weight *int32 `json:"weight,omitempty"`
}

// Preference is a value of the annotation clusterset-dns.io/preference of a ServiceExport.
type Preference string

// The preferences that have a name.
const (
	PreferNone  Preference = "none"         // use the endpoints of every cluster
	PreferLocal Preference = "prefer-local" // use the local endpoints while one is ready, else all others
	LocalOnly   Preference = "local-only"   // use the local endpoints
)

// ServicePort is one port of the exported Service.
type ServicePort struct {
	// name of the port; empty only if the Service has no other port.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// protocol of the port: TCP, UDP or SCTP. A reader leaves out a port with another one.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Protocol corev1.Protocol `json:"protocol"`

	// port is the number that clients use.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// appProtocol of the port.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	AppProtocol *string `json:"appProtocol,omitempty"`
}

// ServiceExportRecordStatus is what a member reports about its copy of a record. On the hub, it is empty.
type ServiceExportRecordStatus struct {
	// conditions are Held (of another member's record), EndpointsImported and Imported.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The conditions of a member's copies of records.
const (
	// ConditionHeld of another member's record says that the hub no longer has it as it is here, though its owner has
	// not withdrawn it.
	ConditionHeld = "Held"
	// ConditionImported of any record is absent if all is well, False while this cluster does not import the name, and
	// True while it imports the name but cannot change the import. It is also set on the ServiceExport.
	ConditionImported = "Imported"
	// ConditionEndpointsImported of any record is False while some of its endpoints are not imported.
	ConditionEndpointsImported = "EndpointsImported"
)

// The reasons of ConditionEndpointsImported (SPEC S4).
const (
	ReasonEndpointsRefused = "EndpointsRefused" // the agent refuses them
	ReasonSliceRefused     = "SliceRefused"     // this cluster's API server does
	ReasonEndpointsMissing = "EndpointsMissing" // the hub does not show them, or older ones
	ReasonRefusedByHub     = "RefusedByHub"     // the exporter could not publish them
)

// The reasons of ConditionImported.
const (
	ReasonNotOwned      = "NotOwned"      // an object that the import needs belongs to another program (SPEC I10)
	ReasonImportRefused = "ImportRefused" // this cluster's API server refuses the import or its namespace (SPEC U6)
	ReasonChangeRefused = "ChangeRefused" // it refuses to change an import, which stays as it is
)

// ServiceExportRecordList is a list of ServiceExportRecords.
//
// +kubebuilder:object:root=true
type ServiceExportRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServiceExportRecord `json:"items"`
}

// EndpointPage has a part of an export's endpoints, if these are too many for its ServiceExportRecord. Its name is
// <number>.<service>.<namespace>.<cluster ID>. Only that member may write it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=multicluster,shortName=epp
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.serviceNamespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.serviceName`
// +kubebuilder:printcolumn:name="Number",type=integer,JSONPath=`.spec.number`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.addressType`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.split('.')[0] == string(self.spec.number) && self.metadata.name.substring(self.metadata.name.indexOf('.') + 1) == self.spec.serviceName + '.' + self.spec.serviceNamespace + '.' + self.spec.clusterID",message="metadata.name must be <number>.<serviceName>.<serviceNamespace>.<clusterID>"
type EndpointPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec EndpointPageSpec `json:"spec"`
}

// EndpointPageSpec is one group of endpoints.
type EndpointPageSpec struct {
	Origin `json:",inline"`

	// number of the page.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9999
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="number is immutable"
	Number int32 `json:"number"`

	EndpointGroup `json:",inline"`
}

// EndpointGroup has endpoints of one address family that listen at the same ports.
type EndpointGroup struct {
	// addressType is the family of all addresses.
	// +required
	// +kubebuilder:validation:Enum=IPv4;IPv6
	AddressType discoveryv1.AddressType `json:"addressType"`

	// ports are the ports at which the endpoints listen.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Ports []EndpointPort `json:"ports,omitempty"`

	// endpoints are the backends.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Endpoints []Endpoint `json:"endpoints,omitempty"`

	// lastChangeTriggerTime is the annotation endpoints.kubernetes.io/last-change-trigger-time of the newest of its
	// EndpointSlices. A change of it alone is not published.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LastChangeTriggerTime string `json:"lastChangeTriggerTime,omitempty"`
}

// EndpointPort is where the endpoints of a group listen for one port of the Service.
type EndpointPort struct {
	// protocol of the Service's port. A reader leaves out a port with one that it does not know.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Protocol corev1.Protocol `json:"protocol"`

	// port is the number of the Service's port.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// target is the number at which the endpoints listen. If it is absent, any port is meant.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Target *int32 `json:"target,omitempty"`

	// appProtocol of the port.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	AppProtocol *string `json:"appProtocol,omitempty"`
}

// Endpoint is one backend.
type Endpoint struct {
	// address is the first address of the endpoint. The API gives no meaning to others.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`

	// ready of the endpoint; absent means true.
	// +optional
	Ready *bool `json:"ready,omitempty"`
	// serving of the endpoint; absent means as ready.
	// +optional
	Serving *bool `json:"serving,omitempty"`
	// terminating of the endpoint; absent means false.
	// +optional
	Terminating *bool `json:"terminating,omitempty"`

	// hostname of the endpoint.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Hostname string `json:"hostname,omitempty"`

	// podName is the name of the Pod, if the endpoint is one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName,omitempty"`

	// zone of the endpoint.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
}

// EndpointPageList is a list of EndpointPages.
//
// +kubebuilder:object:root=true
type EndpointPageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EndpointPage `json:"items"`
}
