// Package v1alpha1 has the kind DNSEndpoint of external-dns, with the fields that the agent writes. It defines no CRD:
// external-dns brings its own.
//
// +kubebuilder:object:generate=true
// +groupName=externaldns.k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var GroupVersion = schema.GroupVersion{Group: "externaldns.k8s.io", Version: "v1alpha1"}

func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &DNSEndpoint{}, &DNSEndpointList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// The record types that the agent writes.
const (
	RecordA     = "A"
	RecordAAAA  = "AAAA"
	RecordCNAME = "CNAME"
)

// DNSEndpoint is a list of records that external-dns writes to a DNS provider.
//
// +kubebuilder:object:root=true
type DNSEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DNSEndpointSpec `json:"spec,omitzero"`
	// Status is external-dns's.
	Status DNSEndpointStatus `json:"status,omitzero"`
}

// DNSEndpointSpec has the records.
type DNSEndpointSpec struct {
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Endpoint is all records of one name and type.
type Endpoint struct {
	DNSName    string   `json:"dnsName,omitempty"`    // without a dot at its end
	RecordType string   `json:"recordType,omitempty"` // A, AAAA or CNAME
	RecordTTL  int64    `json:"recordTTL,omitempty"`  // seconds
	Targets    []string `json:"targets,omitempty"`
}

// DNSEndpointStatus says what external-dns has read.
type DNSEndpointStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// DNSEndpointList is a list of DNSEndpoints.
//
// +kubebuilder:object:root=true
type DNSEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DNSEndpoint `json:"items"`
}
