// Package serviceexport publishes this cluster's exports (SPEC E; DESIGN §2). One pass over a name turns its
// ServiceExport, Service and EndpointSlices into one record on the hub, keeps a copy of the record without endpoints in
// this cluster, and reports the outcome in the conditions of the ServiceExport. It writes no other member's records.
//
// The copy comes first, so that exports appear in their own cluster while the hub is away, and so that this cluster
// still knows what it withdrew.
package serviceexport

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Lease is what publishing needs to know about this member's Lease on the hub.
type Lease interface {
	// MayPublish returns whether this agent speaks for its member: the hub has shown a renewal of it, and no other
	// agent holds the Lease.
	MayPublish() bool
	// HubMayHaveLost returns by when this member wrote what the hub may have lost, zero if nothing, and by when an
	// earlier process wrote anything: no revision of that is higher.
	HubMayHaveLost() (lost, written time.Time)
}

type Config struct {
	kube.Member
	Lease Lease
	Pages pages.Limits
}

// New returns the controller. Its requests are namespace/name of a Service.
func New(c Config) kube.Controller {
	r := &reconciler{Config: c, memory: memory{records: map[string]*history{}}}
	unchanged := func(_, _ client.Object) bool { return true } // the Lease says the same for as long as it exists
	own := kube.Named(r.own)
	return kube.Controller{
		Name: "serviceexport",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &mcsv1beta1.ServiceExport{}, Requests: kube.Named(client.ObjectKeyFromObject)},
			{Side: kube.Local, Object: &corev1.Service{}, Requests: kube.Named(client.ObjectKeyFromObject)},
			{Side: kube.Local, Object: &discoveryv1.EndpointSlice{}, Requests: kube.Named(kube.SourceOf)},
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(kube.Exported)},
			{Side: kube.Local, Object: &coordinationv1.Lease{}, Requests: r.afterRefusal, Alike: unchanged},
			{
				Side: kube.Local, Object: &aboutv1beta1.ClusterProperty{}, Requests: r.allExports,
				Alike: kube.SameProperty,
			},
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: r.allExports, Alike: kube.SameRules},
			{Side: kube.Hub, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: own},
			{Side: kube.Hub, Object: &hubv1alpha1.EndpointPage{}, Requests: own},
		},
		Reconciler: r,
	}
}

type reconciler struct {
	Config
	memory
}

// own returns the Service of a record or page of this member.
func (c Config) own(o client.Object) types.NamespacedName {
	if kube.Origin(o).ClusterID != c.Cluster {
		return types.NamespacedName{}
	}
	return kube.Exported(o)
}

// afterRefusal requests a pass over every export when the hub starts or stops to refuse this member.
func (c Config) afterRefusal(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetName() != clusterset.LeaseRefused {
		return nil
	}
	return c.allExports(ctx, o)
}

// allExports requests a pass over every ServiceExport, and over every copy of an own record: its export may be gone.
func (c Config) allExports(ctx context.Context, _ client.Object) []reconcile.Request {
	exports := kube.Requests(ctx, c.Local, &mcsv1beta1.ServiceExportList{}, client.ObjectKeyFromObject)
	return append(exports, kube.Requests(ctx, c.Local, &hubv1alpha1.ServiceExportRecordList{}, c.own,
		client.InNamespace(kube.SystemNamespace), client.MatchingFields{kube.ByCluster: c.Cluster})...)
}

// state is what one pass works on.
type state struct {
	name    types.NamespacedName
	cluster clusterset.Place                 // this one
	export  *mcsv1beta1.ServiceExport        // nil if there is none, or it is being deleted
	service *corev1.Service                  // nil if there is none, or it is being deleted
	slices  []*discoveryv1.EndpointSlice     // of the Service, by name
	own     *hubv1alpha1.ServiceExportRecord // this member's copy; nil if there is none
	others  []clusterset.Export              // what other members export under the name to this cluster
	refused string                           // why the hub refuses this member; "" if it does not
	// excluded is set if the ClusterSet excludes the namespace (S5). Rules that are only assumed end no export.
	excluded bool
	external hubv1alpha1.ExternalNames // of the ClusterSet
	departed time.Time                 // when this member last departed, by the ClusterSet
	foreign  bool                      // another program owns the import of the name in this cluster (I10)

	shown *hubv1alpha1.ServiceExportRecord    // this member's record on the hub; nil if it shows none
	pages map[int32]*hubv1alpha1.EndpointPage // this member's on the hub, by number
	wrote bool                                // this pass has written to the hub
	waits bool                                // the hub does not show yet what earlier passes wrote

	proved bool // this cluster's API server has answered, and the copy is current
}

// recheck is when a pass looks again at what it wrote: a hub that is restored before its watch has shown the write
// sends no event.
const recheck = 30 * time.Second

// askAgain is how long a name waits while this agent may not publish, withoutHub while it has not seen the hub.
const (
	askAgain   = time.Second
	withoutHub = 10 * time.Second
)

// Reconcile is one pass over one name.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.export == nil && s.own == nil && s.shown == nil && len(s.pages) == 0 {
		r.forget(r.recordName(&s))
		r.forget(copyOf(r.recordName(&s)))
		return reconcile.Result{}, nil
	}
	d := decide(&s, r.Now())
	later, here := r.copy(ctx, &s, &d)
	if apierrors.IsConflict(here) || apierrors.IsAlreadyExists(here) {
		return reconcile.Result{}, here // the next pass sees what is there
	}
	again, published, there := r.publish(ctx, &s, &d)
	if here == nil { // else the copy is not of what the hub has
		there = errors.Join(there, r.setPublished(ctx, &s))
	}
	err = errors.Join(here, there)
	if s.export != nil {
		err = errors.Join(
			err,
			r.report(ctx, &s, &d, outcome{published: published, waits: s.waits, here: here, there: there}),
		)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if again = sooner(again, later); s.wrote {
		again = sooner(again, recheck)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// sooner returns the shorter of two requeue delays; 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

func (c Config) recordName(s *state) string {
	return clusterset.RecordName(s.name.Name, s.name.Namespace, c.Cluster)
}

func (c Config) gather(ctx context.Context, name types.NamespacedName) (s state, err error) {
	s.name = name
	if s.cluster, err = kube.Place(ctx, c.Local, c.Cluster); err != nil {
		return s, err
	}
	if s.export, err = kube.Get[*mcsv1beta1.ServiceExport](ctx, c.Local, name); err != nil {
		return s, err
	}
	if s.export != nil && s.export.DeletionTimestamp != nil {
		s.export = nil
	}
	if s.service, err = kube.Get[*corev1.Service](ctx, c.Local, name); err != nil {
		return s, err
	}
	if s.service != nil && s.service.DeletionTimestamp != nil {
		s.service = nil
	}
	refusal, err := kube.Get[*coordinationv1.Lease](ctx, c.Local, inSystem(clusterset.LeaseRefused))
	if err != nil {
		return s, err
	}
	if refusal != nil {
		s.refused = refusal.Annotations[clusterset.AnnotationRefused]
	}
	for _, read := range []func(context.Context, *state) error{c.gatherCopies, c.gatherSlices, c.gatherHub} {
		if err := read(ctx, &s); err != nil {
			return s, err
		}
	}
	return s, nil
}

func inSystem(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: kube.SystemNamespace, Name: name}
}

// gatherCopies reads this cluster's copies of all records of the name.
func (c Config) gatherCopies(ctx context.Context, s *state) error {
	copies, err := kube.Copies(ctx, c.Local, s.name)
	for _, rec := range copies {
		s.foreign = s.foreign || kube.NotOwned(rec)
		if rec.Spec.ClusterID == c.Cluster {
			s.own = rec
		} else if !rec.Spec.Withdrawn {
			e, err := clusterset.ParseExport(rec)
			if err == nil && e.GoesTo(s.cluster) { // whoever imports the record reports the error
				s.others = append(s.others, e)
			}
		}
	}
	return err
}

func (c Config) gatherSlices(ctx context.Context, s *state) error {
	if s.export == nil || s.service == nil {
		return nil
	}
	var list discoveryv1.EndpointSliceList
	err := c.Local.List(ctx, &list, client.InNamespace(s.name.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{kube.ByService: kube.Key(s.name)})
	s.slices = kube.ByName(list.Items)
	return err
}

// gatherHub reads the ClusterSet's rules, and what the hub shows of this member.
func (c Config) gatherHub(ctx context.Context, s *state) error {
	hub := c.Hub()
	set, known, err := kube.SetOf(ctx, hub, c.HubNamespace)
	exporting := s.own != nil && !s.own.Spec.Withdrawn
	s.external, s.departed = set.Spec.ExternalNames, kube.Departed(set)[c.Cluster]
	s.excluded = !clusterset.MayUse(set.Spec.Namespaces, s.name.Namespace) && (known || !exporting)
	if err != nil || hub == nil {
		return err
	}
	published, err := kube.PublishedOf(ctx, hub, c.HubNamespace, s.name)
	s.shown = published.Records[c.Cluster]
	s.pages = map[int32]*hubv1alpha1.EndpointPage{}
	for _, page := range published.Pages {
		if page.Spec.ClusterID == c.Cluster {
			s.pages[page.Spec.Number] = page
		}
	}
	return err
}
