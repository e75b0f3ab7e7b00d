package kube

import (
	"context"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
)

// The fields that caches index. Values are namespace/name of the Service, or a cluster id.
const (
	ByService   = "service"   // records: the exported Service; EndpointSlices: the Service they are of, if they are not imported
	ByImport    = "import"    // EndpointSlices: the ServiceImport they belong to
	ByNamespace = "namespace" // a member's copies of records: the exported Service's namespace
	ByCluster   = "cluster"   // records: the member that speaks; imported EndpointSlices: the source cluster
)

// Indexes are those that the caches of an agent must hold.
func Indexes() []Index {
	return []Index{
		{Local, &hubv1alpha1.ServiceExportRecord{}, ByService, recordService},
		{Local, &hubv1alpha1.ServiceExportRecord{}, ByCluster, recordCluster},
		{
			Local,
			&hubv1alpha1.ServiceExportRecord{},
			ByNamespace,
			func(o client.Object) []string { return []string{Origin(o).ServiceNamespace} },
		},
		{Local, &discoveryv1.EndpointSlice{}, ByService, func(o client.Object) []string { return keyOf(SourceOf(o)) }},
		{Local, &discoveryv1.EndpointSlice{}, ByImport, func(o client.Object) []string { return keyOf(ImportOf(o)) }},
		{Local, &discoveryv1.EndpointSlice{}, ByCluster, func(o client.Object) []string {
			if ImportOf(o).Name == "" {
				return nil
			}
			return []string{o.GetLabels()[mcsv1beta1.LabelSourceCluster]}
		}},
		{Hub, &hubv1alpha1.ServiceExportRecord{}, ByCluster, recordCluster},
		{Hub, &hubv1alpha1.EndpointRecord{}, ByService, recordService},
		{Hub, &hubv1alpha1.EndpointRecord{}, ByCluster, recordCluster},
	}
}

// Key is the value of ByService and ByImport.
func Key(n types.NamespacedName) string { return n.Namespace + "/" + n.Name }

func keyOf(n types.NamespacedName) []string {
	if n.Name == "" {
		return nil
	}
	return []string{Key(n)}
}

// SourceOf names the Service of a slice that somebody else made; imported slices have none, and are never exported
// again. One that the agent made and that lost labels is the derived Service's, by its name: no label tells where it
// belongs.
func SourceOf(o client.Object) types.NamespacedName {
	l := o.GetLabels()
	if of := madeFor(o); of != "" && ImportOf(o).Name == "" {
		return types.NamespacedName{Namespace: o.GetNamespace(), Name: of}
	}
	if l[discoveryv1.LabelServiceName] == "" || l[mcsv1beta1.LabelServiceName] != "" ||
		l[discoveryv1.LabelManagedBy] == Manager {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: l[discoveryv1.LabelServiceName]}
}

// madeFor is the derived Service in the name of a slice that remembers a record; "" where the slice has another
// manager, or another name.
func madeFor(o client.Object) string {
	by, name := o.GetLabels()[discoveryv1.LabelManagedBy], o.GetName()
	at := strings.LastIndexByte(name, '-')
	if by != "" && by != Manager || o.GetAnnotations()[endpoints.AnnotationRecord] == "" ||
		!strings.HasPrefix(name, "derived-") ||
		at < len("derived-") {
		return ""
	}
	return name[:at]
}

// ImportOf names the ServiceImport of a slice that the agent made.
func ImportOf(o client.Object) types.NamespacedName {
	l := o.GetLabels()
	if l[mcsv1beta1.LabelServiceName] == "" || l[discoveryv1.LabelManagedBy] != Manager {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: l[mcsv1beta1.LabelServiceName]}
}

// Origin is what a record, of either kind, says about itself.
func Origin(o client.Object) *hubv1alpha1.Origin {
	switch r := o.(type) {
	case *hubv1alpha1.ServiceExportRecord:
		return &r.Spec.Origin
	case *hubv1alpha1.EndpointRecord:
		return &r.Spec.Origin
	}
	return &hubv1alpha1.Origin{}
}

// Exported names the Service that a record is about.
func Exported(o client.Object) types.NamespacedName {
	r := Origin(o)
	return types.NamespacedName{Namespace: r.ServiceNamespace, Name: r.ServiceName}
}

func recordService(o client.Object) []string { return keyOf(Exported(o)) }
func recordCluster(o client.Object) []string { return []string{Origin(o).ClusterID} }

// Named makes requests by a function from object to name; an object without one asks for nothing.
func Named(name func(client.Object) types.NamespacedName) func(context.Context, client.Object) []reconcile.Request {
	return func(_ context.Context, o client.Object) []reconcile.Request {
		n := name(o)
		if n.Name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: n}}
	}
}

// Itself is the name of the object.
func Itself(o client.Object) types.NamespacedName { return client.ObjectKeyFromObject(o) }
