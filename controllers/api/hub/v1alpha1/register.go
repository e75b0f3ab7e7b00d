package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "hub.clusterset-dns.io", Version: "v1alpha1"}

func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ClusterSet{}, &ClusterSetList{},
		&ServiceExportRecord{}, &ServiceExportRecordList{},
		&EndpointPage{}, &EndpointPageList{},
		&Membership{}, &MembershipList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
