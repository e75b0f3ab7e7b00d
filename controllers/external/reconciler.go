// Package external writes the EndpointSlices from which CoreDNS answers clients outside the clusters (SPEC F5): those
// of the load balancers that the records state, ready while their cluster is up.
//
// Without a ServiceImport there are no slices. A cluster of the import whose record cannot be read keeps its slices as
// they are. While this member does not see the hub, nothing changes, but the slices of an import that is emptied go.
package external

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// recheck is how often a name is checked again while this member does not see the hub, or sees an older record there.
const recheck = 5 * time.Second

// New returns the controller. Its requests are namespace/name of a Service.
func New(m kube.Member) kube.Controller {
	r := &reconciler{m}
	return kube.Controller{
		Name:     "external",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(kube.Exported)},
			{Side: kube.Local, Object: &mcsv1beta1.ServiceImport{}, Requests: kube.Named(client.ObjectKeyFromObject)},
			{Side: kube.Local, Object: &discoveryv1.EndpointSlice{}, Requests: kube.Named(kube.ExternalOf)},
			{
				Side: kube.Local, Object: &corev1.Namespace{},
				Alike: func(was, is client.Object) bool { return refusesImports(was) == refusesImports(is) },
				Requests: func(ctx context.Context, o client.Object) []reconcile.Request {
					return r.requestsForSlices(ctx, o.GetName())
				},
			},
			{
				Side: kube.Local, Object: &coordinationv1.Lease{}, Requests: r.requestsForAll,
				Alike: func(was, is client.Object) bool {
					return kube.SameState(was, is) && liveness.LeaseExpired(was.(*coordinationv1.Lease)) ==
						liveness.LeaseExpired(is.(*coordinationv1.Lease))
				},
			},
			{
				Side: kube.Local, Object: &aboutv1beta1.ClusterProperty{}, Requests: r.requestsForAll,
				Alike: kube.SameProperty,
			},
			{
				Side: kube.Hub, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(exported),
				Alike: func(was, is client.Object) bool {
					before, after := was.(*hubv1alpha1.ServiceExportRecord), is.(*hubv1alpha1.ServiceExportRecord)
					return anyReady(before.Spec.Endpoints...) == anyReady(after.Spec.Endpoints...) &&
						before.Spec.Pages == after.Spec.Pages && before.Spec.Withdrawn == after.Spec.Withdrawn
				},
			},
			{
				Side: kube.Hub, Object: &hubv1alpha1.EndpointPage{}, Requests: kube.Named(kube.Exported),
				Alike: func(was, is client.Object) bool {
					before, after := was.(*hubv1alpha1.EndpointPage), is.(*hubv1alpha1.EndpointPage)
					return anyReady(before.Spec.EndpointGroup) == anyReady(after.Spec.EndpointGroup)
				},
			},
			{
				Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: r.requestsForAll,
				Alike: func(was, is client.Object) bool {
					return unreachable(was.(*coordinationv1.Lease)).Equal(unreachable(is.(*coordinationv1.Lease)))
				},
			},
			{
				Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Alike: kube.SameRulesAndDepartures,
				Requests: func(ctx context.Context, o client.Object) []reconcile.Request {
					return append(r.requestsForAll(ctx, o), r.requestsForSlices(ctx, metav1.NamespaceAll)...)
				},
			},
		},
		Reconciler: r,
	}
}

type reconciler struct{ kube.Member }

// exported returns the Service of a record with a load balancer.
func exported(o client.Object) (name types.NamespacedName) {
	if o.(*hubv1alpha1.ServiceExportRecord).Spec.External != nil {
		name = kube.Exported(o)
	}
	return name
}

// requestsForAll returns every name with a load balancer.
func (r *reconciler) requestsForAll(ctx context.Context, _ client.Object) []reconcile.Request {
	records := &hubv1alpha1.ServiceExportRecordList{}
	return kube.Requests(ctx, r.Local, records, exported, client.InNamespace(kube.SystemNamespace))
}

// requestsForSlices returns every name that has slices in a namespace, also without a copy of a record.
func (r *reconciler) requestsForSlices(ctx context.Context, namespace string) []reconcile.Request {
	return kube.Requests(
		ctx, r.Local, &discoveryv1.EndpointSliceList{}, kube.ExternalOf, client.InNamespace(namespace))
}

func refusesImports(namespace client.Object) bool {
	return namespace.GetAnnotations()[clusterset.AnnotationNamespaceImport] == "false"
}

func anyReady(groups ...hubv1alpha1.EndpointGroup) bool {
	return slices.ContainsFunc(
		groups,
		func(g hubv1alpha1.EndpointGroup) bool { return len(endpoints.ReadyAddresses(&g)) > 0 },
	)
}

// unreachable returns the clusters that a Lease on the hub says that its owner does not reach. An invalid statement is
// none: status reports it.
func unreachable(lease *coordinationv1.Lease) sets.Set[string] {
	since, _ := reach.ReadUnreachable(lease)
	return sets.KeySet(since)
}

// Reconcile is one pass over one name.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.gather(ctx, req.NamespacedName)
	switch {
	case err != nil || !s.concerned:
		return reconcile.Result{}, err
	case s.emptied:
		return reconcile.Result{}, r.apply(ctx, &s, nil)
	case !r.Fresh():
		return reconcile.Result{RequeueAfter: recheck}, nil
	case s.foreign:
		if exported, err := r.isExported(ctx, &s); exported || err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, r.apply(ctx, &s, nil)
	}
	desired, err := r.decide(ctx, &s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.apply(ctx, &s, desired); err != nil || !s.older {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: recheck}, nil // its owner may publish again without a ready endpoint
}

// apply writes the slices: first those that there must be, then it deletes others.
func (r *reconciler) apply(ctx context.Context, s *snapshot, desired []*discoveryv1.EndpointSlice) error {
	var errs []error
	logger, wanted := log.FromContext(ctx), map[string]bool{}
	for _, d := range desired {
		wanted[d.Name] = true
		at := slices.IndexFunc(s.slices, func(e discoveryv1.EndpointSlice) bool { return e.Name == d.Name })
		if at < 0 {
			logger.Info("publishing a load balancer", "slice", d.Name, "ready", *d.Endpoints[0].Conditions.Ready)
			errs = append(errs, r.reportRefused(s, d, r.Local.Create(ctx, d)))
			continue
		}
		e := &s.slices[at]
		if !kube.Writable(e) {
			r.Events.Event(s.imp, kube.Warning, hubv1alpha1.ReasonNotOwned, fmt.Sprintf(
				"EndpointSlice %s/%s belongs to another program, so clients outside the clusters do not get these "+
					"addresses of cluster %s; if it should not: kubectl -n %[1]s delete endpointslice %[2]s",
				d.Namespace, d.Name, sourceCluster(d)))
			continue
		}
		if u := external.Updated(e, d); !equality.Semantic.DeepEqual(u, e) {
			logger.Info("updating a load balancer", "slice", d.Name, "ready", *d.Endpoints[0].Conditions.Ready)
			errs = append(errs, r.reportRefused(s, d, r.Local.Update(ctx, u)))
		}
	}
	for i := range s.slices {
		if e := &s.slices[i]; kube.Owned(e) && !wanted[e.Name] && !s.frozen[sourceCluster(e)] {
			logger.Info("removing a load balancer", "slice", e.Name)
			errs = append(errs, kube.DeleteUnchanged(ctx, r.Local, e))
		}
	}
	return errors.Join(errs...)
}

// reportRefused raises an Event if err says that the API server refuses a slice. It returns err.
func (r *reconciler) reportRefused(s *snapshot, d *discoveryv1.EndpointSlice, err error) error {
	if kube.Refused(err) {
		r.Events.Event(s.imp, kube.Warning, hubv1alpha1.ReasonSliceRefused, fmt.Sprintf(
			"This cluster's API server refuses EndpointSlice %s, so clients outside the clusters do not get these "+
				"addresses of cluster %s as they are now: %v; change its policy or quota",
			d.Name, sourceCluster(d), err))
	}
	return err
}

func sourceCluster(slice *discoveryv1.EndpointSlice) string {
	return slice.Labels[mcsv1beta1.LabelSourceCluster]
}
