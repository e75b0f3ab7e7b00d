// Package publish keeps this member's records on the hub up to date. It copies the ServiceExportRecords that
// serviceexport wrote in this cluster, and writes one EndpointRecord for each EndpointSlice of an exported Service.
// It never writes another member's records.
package publish

import (
	"context"
	"errors"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Lease is what publishing needs to know about this member's Lease on the hub.
type Lease interface {
	// MayPublish returns whether this agent speaks for its member: the hub has shown a renewal of it, and no other
	// agent holds the Lease.
	MayPublish() bool
	// HubMayHaveLost returns whether the hub may have lost what this member published before this agent started. No
	// earlier revision is higher than the time it returns.
	HubMayHaveLost() (before time.Time, lost bool)
}

// Config is what New needs.
type Config struct {
	Cluster      string // this member's cluster ID
	HubNamespace string
	Local        client.Client
	Hub          func() client.Client // never nil while the controller runs
	Lease        Lease
	Now          func() time.Time
}

// New returns the controller. Its requests are namespace/name of a Service.
func New(c Config) kube.Controller {
	own := func(o client.Object) types.NamespacedName {
		if kube.Origin(o).ClusterID != c.Cluster {
			return types.NamespacedName{}
		}
		return kube.Exported(o)
	}
	return kube.Controller{
		Name:     "publish",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(own)},
			{Side: kube.Local, Object: &mcsv1beta1.ServiceExport{}, Requests: kube.Named(kube.Itself)},
			{Side: kube.Local, Object: &discoveryv1.EndpointSlice{}, Requests: kube.Named(kube.SourceOf)},
			{Side: kube.Hub, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(own)},
			{Side: kube.Hub, Object: &hubv1alpha1.EndpointRecord{}, Requests: kube.Named(own)},
		},
		Reconciler: &reconciler{Config: c, memory: memory{records: map[string]*history{}}},
	}
}

type reconciler struct {
	Config
	memory
}

// state is what one pass works on.
type state struct {
	own       *hubv1alpha1.ServiceExportRecord       // in this cluster; nil if there is none
	published *hubv1alpha1.ServiceExportRecord       // on the hub; nil if there is none
	wanted    []endpointSpec                         // what this member's EndpointRecords must be
	leftOut   []error                                // what of the slices no other cluster can import
	endpoints map[string]*hubv1alpha1.EndpointRecord // this member's on the hub, by name; the cache's
	wrote     bool                                   // whether this pass has written to the hub
}

// recheck is when a pass looks again at what it wrote: a hub that is restored before its watch has shown the write
// sends no event.
const recheck = 30 * time.Second

// askAgain is how long a name waits while this agent may not publish. A pass in between costs microseconds.
const askAgain = time.Second

// Reconcile is one pass over one name.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if strings.Contains(req.Name, ".") { // a ServiceExport's without a Service; the record may be another member's
		return reconcile.Result{}, nil
	}
	if !r.Lease.MayPublish() {
		return reconcile.Result{RequeueAfter: askAgain}, nil
	}
	s, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.own == nil {
		if s.published == nil && len(s.endpoints) == 0 {
			r.forget(clusterset.RecordName(req.Name, req.Namespace, r.Cluster))
			return reconcile.Result{}, nil
		}
		// The hub has records of a Service that this cluster does not export: this cluster has lost its own record,
		// or the hub was restored. If there is a ServiceExport, serviceexport is about to write the record again.
		export, err := kube.Get[*mcsv1beta1.ServiceExport](ctx, r.Local, req.NamespacedName)
		if err != nil || export != nil && !invalid(export) {
			return reconcile.Result{}, err
		}
	}
	again, err := r.publish(ctx, &s)
	if s.own != nil {
		err = errors.Join(err, r.report(ctx, &s, err))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.wrote {
		again = sooner(again, recheck)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// invalid returns whether serviceexport has found this generation of the ServiceExport invalid.
func invalid(export *mcsv1beta1.ServiceExport) bool {
	c := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == export.Generation
}

func (r *reconciler) gather(ctx context.Context, service types.NamespacedName) (s state, err error) {
	name := clusterset.RecordName(service.Name, service.Namespace, r.Cluster)
	local := types.NamespacedName{Namespace: kube.SystemNamespace, Name: name}
	if s.own, err = kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, r.Local, local); err != nil {
		return s, err
	}
	remote := types.NamespacedName{Namespace: r.HubNamespace, Name: name}
	if s.published, err = kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, r.Hub(), remote); err != nil {
		return s, err
	}
	byService := client.MatchingFields{kube.ByService: kube.Key(service)}
	var records hubv1alpha1.EndpointRecordList
	if err := r.Hub().List(
		ctx, &records, client.InNamespace(r.HubNamespace), byService, client.UnsafeDisableDeepCopy,
	); err != nil {
		return s, err
	}
	s.endpoints = map[string]*hubv1alpha1.EndpointRecord{}
	for i := range records.Items {
		if records.Items[i].Spec.ClusterID == r.Cluster {
			s.endpoints[records.Items[i].Name] = &records.Items[i]
		}
	}
	if s.own == nil || s.own.Spec.Withdrawn {
		return s, nil
	}
	var list discoveryv1.EndpointSliceList
	err = r.Local.List(ctx, &list, client.InNamespace(service.Namespace), byService)
	s.setEndpoints(list.Items)
	return s, err
}

// publish writes endpoints before the export that states them, and deletes others after it: other members that see the
// export find its endpoints. If this pass only corrects the own record, a deletion comes before the statement that
// explains it, and other members keep the endpoints until then. An error of one does not stop the others.
func (r *reconciler) publish(ctx context.Context, s *state) (again time.Duration, err error) {
	again, err = r.publishEndpoints(ctx, s)
	next, failed := r.publishExport(ctx, s)
	// Before, the hub must have what makes other members drop these endpoints.
	stated := s.own == nil || s.own.Spec.Withdrawn || !s.losesNewer()
	if failed == nil && stated {
		failed = r.deleteEndpoints(ctx, s)
	}
	return sooner(again, next), errors.Join(err, failed)
}

// sooner returns the shorter of two requeue delays; 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}
