package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of every kind in this package (DESIGN §11).
var GroupVersion = schema.GroupVersion{Group: "hub.clusterset-dns.io", Version: "v1alpha1"}

// AddToScheme registers the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ClusterSet{}, &ClusterSetList{},
		&ServiceExportRecord{}, &ServiceExportRecordList{},
		&EndpointRecord{}, &EndpointRecordList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
