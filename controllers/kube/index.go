package kube

import (
	"cmp"
	"context"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
)

// The fields that caches index. A value is the namespace/name of a Service or ServiceImport, a
// namespace, or a cluster ID.
const (
	ByService   = "service"   // records: the exported Service; EndpointSlices that are not imported: their Service
	ByImport    = "import"    // imported EndpointSlices and their projections: the ServiceImport
	ByDerived   = "derived"   // a member's copies of records: the derived Service of their import
	ByExternal  = "external"  // EndpointSlices for clients outside: the ServiceImport
	ByNamespace = "namespace" // a member's copies of records: the exported Service's namespace
	ByCluster   = "cluster"   // records and pages: the member that published it
	ByTombstone = "tombstone" // withdrawn records: their Version, and AllTombstones
)

// AllTombstones is a value of ByTombstone that every withdrawn record has.
const AllTombstones = ""

// Indexes returns the indexes that the caches of an agent must have.
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
		{Local, &hubv1alpha1.ServiceExportRecord{}, ByDerived, func(o client.Object) []string {
			of := Exported(o)
			of.Name = derived.Name(of.Namespace, of.Name)
			return indexKeys(of)
		}},
		{Local, &discoveryv1.EndpointSlice{}, ByService, func(o client.Object) []string {
			return indexKeys(SourceOf(o))
		}},
		{Local, &discoveryv1.EndpointSlice{}, ByImport, func(o client.Object) []string {
			return indexKeys(ImportOf(o))
		}},
		{Local, &discoveryv1.EndpointSlice{}, ByExternal, func(o client.Object) []string {
			return indexKeys(ExternalOf(o))
		}},
		{Hub, &hubv1alpha1.ServiceExportRecord{}, ByTombstone, func(o client.Object) []string {
			if !o.(*hubv1alpha1.ServiceExportRecord).Spec.Withdrawn {
				return nil
			}
			return []string{AllTombstones, Version(o)}
		}},
		{Hub, &hubv1alpha1.ServiceExportRecord{}, ByService, recordService},
		{Hub, &hubv1alpha1.ServiceExportRecord{}, ByCluster, recordCluster},
		{Hub, &hubv1alpha1.EndpointPage{}, ByService, recordService},
		{Hub, &hubv1alpha1.EndpointPage{}, ByCluster, recordCluster},
	}
}

// Key returns the value to look up in ByService, ByImport, ByDerived and ByExternal.
func Key(n types.NamespacedName) string { return n.Namespace + "/" + n.Name }

func indexKeys(n types.NamespacedName) []string {
	if n.Name == "" {
		return nil
	}
	return []string{Key(n)}
}

// SourceOf returns the Service of an EndpointSlice, or an empty name for one with endpoints of another cluster, which
// must not be exported again: the agent imported it, or another program such as Cilium's Cluster Mesh synchronised it.
// A slice with the name of an imported one, but without its labels, belongs to the derived Service in its name.
func SourceOf(o client.Object) types.NamespacedName {
	l := o.GetLabels()
	if service := endpoints.ServiceOf(o.GetName()); service != "" && ImportOf(o).Name == "" {
		return types.NamespacedName{Namespace: o.GetNamespace(), Name: service}
	}
	manager := l[discoveryv1.LabelManagedBy]
	// Kubernetes copies the labels of a Service to its slices, also those of the MCS API.
	synchronised := cmp.Or(l[mcsv1beta1.LabelServiceName], l[mcsv1beta1.LabelSourceCluster]) != "" &&
		!strings.HasSuffix(manager, "-controller.k8s.io")
	if l[discoveryv1.LabelServiceName] == "" || synchronised || manager == Manager {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: l[discoveryv1.LabelServiceName]}
}

// ImportOf returns the ServiceImport of a slice that the agent created, a projection included, or an empty name.
func ImportOf(o client.Object) types.NamespacedName {
	l := o.GetLabels()
	name := cmp.Or(l[mcsv1beta1.LabelServiceName], l[endpoints.LabelImport])
	if name == "" || l[discoveryv1.LabelManagedBy] != Manager {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: name}
}

// ExternalOf returns the ServiceImport in the name of an EndpointSlice for clients outside the clusters (SPEC F5), or
// an empty name. Users edit labels, but not names.
func ExternalOf(o client.Object) (n types.NamespacedName) {
	if n.Name = external.ServiceOf(o.GetName()); n.Name != "" {
		n.Namespace = o.GetNamespace()
	}
	return n
}

// Origin returns the origin of a ServiceExportRecord or EndpointPage. It is empty for another kind.
func Origin(o client.Object) *hubv1alpha1.Origin {
	switch r := o.(type) {
	case *hubv1alpha1.ServiceExportRecord:
		return &r.Spec.Origin
	case *hubv1alpha1.EndpointPage:
		return &r.Spec.Origin
	}
	return &hubv1alpha1.Origin{}
}

// Exported returns the Service that a record is about.
func Exported(o client.Object) types.NamespacedName {
	origin := Origin(o)
	return types.NamespacedName{Namespace: origin.ServiceNamespace, Name: origin.ServiceName}
}

func recordService(o client.Object) []string { return indexKeys(Exported(o)) }
func recordCluster(o client.Object) []string { return []string{Origin(o).ClusterID} }

// Named returns a Watch.Requests function that requests the returned name, or nothing if that is empty.
func Named(name func(client.Object) types.NamespacedName) func(context.Context, client.Object) []reconcile.Request {
	return func(_ context.Context, o client.Object) []reconcile.Request { return Request(name(o)) }
}

// Request returns a request for a name, or nothing if it is empty.
func Request(name types.NamespacedName) []reconcile.Request {
	if name.Name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

// Requests returns a request for the name of each object of a cache. name must not change its object.
func Requests(
	ctx context.Context, from client.Reader, list client.ObjectList,
	name func(client.Object) types.NamespacedName, opts ...client.ListOption,
) (out []reconcile.Request) {
	if from.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...) != nil {
		return nil // a cache fails only when the agent stops
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		out = append(out, Request(name(o.(client.Object)))...)
		return nil
	})
	return out
}

// NameOnly returns the name of an object, without its namespace.
func NameOnly(o client.Object) types.NamespacedName { return types.NamespacedName{Name: o.GetName()} }
