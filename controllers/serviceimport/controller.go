package serviceimport

import (
	"context"
	"net/netip"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

type Config struct {
	kube.Member
	// Addresses picks the cluster IPs of derived Services (controllers/clustersetips).
	Addresses Addresses
	Gateways  func() bool // whether Envoy Gateway is in this cluster: gateway slices are written
}

// New returns the controller. Its requests are namespace/name of a Service.
func New(c Config) kube.Controller {
	r := newReconciler(c)
	others := kube.Named(func(o client.Object) types.NamespacedName {
		if kube.Origin(o).ClusterID == c.Cluster {
			return types.NamespacedName{}
		}
		return kube.Exported(o)
	})
	return kube.Controller{
		Name: "serviceimport",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(kube.Exported)},
			{Side: kube.Local, Object: &mcsv1beta1.ServiceImport{}, Requests: kube.Named(client.ObjectKeyFromObject)},
			{Side: kube.Local, Object: &corev1.Service{}, Requests: r.requestsForDerived},
			{Side: kube.Local, Object: &corev1.Namespace{}, Requests: r.requestsForNamespace},
			{
				Side: kube.Local, Object: &aboutv1beta1.ClusterProperty{}, Alike: kube.SameProperty,
				Requests: func(ctx context.Context, _ client.Object) []reconcile.Request {
					return r.requestsForRecords(ctx, &client.ListOptions{})
				},
			},
			{
				Side: kube.Local, Object: &discoveryv1.EndpointSlice{}, Requests: r.requestsForSlice,
				Alike: r.isOwnWrite,
			},
			{Side: kube.Hub, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: others, Ahead: r.changed},
			{Side: kube.Hub, Object: &hubv1alpha1.EndpointPage{}, Requests: others, Ahead: r.changed},
			{
				Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: r.requestsForAll,
				Alike: kube.SameRulesAndDepartures,
			},
			{Side: kube.Local, Object: &coordinationv1.Lease{}, Requests: r.requestsForSource, Alike: kube.SameState},
		},
		Reconciler: r,
	}
}

// changed reports whether an imported slice is older than the record or page that it is of. Only such records of the
// initial list are urgent.
func (r *reconciler) changed(ctx context.Context, o client.Object) bool {
	origin := kube.Origin(o)
	source, family, revision := endpoints.SourceName(0, origin.ClusterID), discoveryv1.AddressType(""), origin.Revision
	switch is := o.(type) {
	case *hubv1alpha1.ServiceExportRecord:
		if len(is.Spec.Endpoints) == 0 {
			return false
		}
		family = is.Spec.Endpoints[0].AddressType
	case *hubv1alpha1.EndpointPage:
		source, family = endpoints.SourceName(int(is.Spec.Number), origin.ClusterID), is.Spec.AddressType
	}
	service := kube.Exported(o)
	name := types.NamespacedName{
		Namespace: service.Namespace,
		Name:      endpoints.SliceName(derived.Name(service.Namespace, service.Name), source, family),
	}
	slice, err := kube.Get[*discoveryv1.EndpointSlice](ctx, r.Local, name)
	created := o.GetCreationTimestamp()
	return err == nil && slice != nil &&
		slice.Annotations[endpoints.AnnotationRevision] != endpoints.Revision(created.Unix(), revision)
}

// requestsForAll returns every name that somebody exports: rules of the ClusterSet have changed, or a member has
// departed.
func (r *reconciler) requestsForAll(ctx context.Context, _ client.Object) []reconcile.Request {
	out := r.requestsForRecords(ctx, &client.ListOptions{})
	if hub := r.Hub(); hub != nil {
		out = append(out, kube.Requests(ctx, hub, &hubv1alpha1.ServiceExportRecordList{}, kube.Exported,
			client.InNamespace(r.HubNamespace))...)
	}
	return out
}

// requestsForDerived returns the import that a derived Service names, and what is exported under the name that its own
// name is made of: a user may have edited the annotation, or own a Service with such a name.
func (r *reconciler) requestsForDerived(ctx context.Context, svc client.Object) []reconcile.Request {
	out := kube.Request(derived.Import(svc.GetAnnotations()))
	return append(out, r.requestsForExported(ctx, client.ObjectKeyFromObject(svc))...)
}

// requestsForExported returns what is exported to the import of a derived Service; nothing for another Service.
func (r *reconciler) requestsForExported(ctx context.Context, service types.NamespacedName) []reconcile.Request {
	return r.requestsForRecords(ctx, client.MatchingFields{kube.ByDerived: kube.Key(service)})
}

// requestsForSlice returns the import of an imported slice, or else its Service, and the import if that is a derived
// Service.
func (r *reconciler) requestsForSlice(ctx context.Context, slice client.Object) []reconcile.Request {
	if imp := kube.ImportOf(slice); imp.Name != "" {
		return kube.Request(imp)
	}
	service := kube.SourceOf(slice)
	return append(kube.Request(service), r.requestsForExported(ctx, service)...)
}

// requestsForSource returns every name that a source cluster exports.
func (r *reconciler) requestsForSource(ctx context.Context, lease client.Object) []reconcile.Request {
	cluster := lease.GetLabels()[liveness.LabelSource]
	if cluster == "" {
		return nil // a Lease of leader election
	}
	return r.requestsForRecords(ctx, client.MatchingFields{kube.ByCluster: cluster})
}

// requestsForNamespace returns every name that is exported in the namespace (I1).
func (r *reconciler) requestsForNamespace(ctx context.Context, namespace client.Object) []reconcile.Request {
	return r.requestsForRecords(ctx, client.MatchingFields{kube.ByNamespace: namespace.GetName()})
}

func (r *reconciler) requestsForRecords(ctx context.Context, selected client.ListOption) []reconcile.Request {
	in := client.InNamespace(kube.SystemNamespace)
	return kube.Requests(ctx, r.Local, &hubv1alpha1.ServiceExportRecordList{}, kube.Exported, in, selected)
}

// Addresses picks the cluster IPs of derived Services.
type Addresses interface {
	// Pick returns the addresses to ask for by name; the API server chooses for the families without one. The error
	// wraps ipam.ErrPending if a later pass gets a better answer.
	Pick(context.Context, *ipam.Request) ([]netip.Addr, error)
	// Refused takes the API server's error. It returns nil if another Pick makes sense, else the error to report.
	Refused(ctx context.Context, q *ipam.Request, asked []netip.Addr, err error) error
	// Allocated takes the Service that has its addresses.
	Allocated(ctx context.Context, q *ipam.Request, svc *corev1.Service, took time.Duration)
}
