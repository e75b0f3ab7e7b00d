package serviceimport

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// snapshot is everything that one pass knows of a name. The objects belong to caches and must not be changed.
type snapshot struct {
	name      types.NamespacedName
	own       clusterset.Place
	namespace bool // exists and is not being deleted

	createsNamespace bool // there is none, and the ClusterSet wants it created (I12)
	importsOff       bool // the namespace has no imports, by its annotation (S5)
	fillsDeclared    bool // the namespace or the ClusterSet wants declared imports filled (I11)

	// In this cluster:
	copies      []*hubv1alpha1.ServiceExportRecord
	export      *mcsv1beta1.ServiceExport // of this cluster
	service     *corev1.Service           // of this cluster, of the same name
	imp         *mcsv1beta1.ServiceImport
	svc         *corev1.Service // the derived Service
	imported    []*discoveryv1.EndpointSlice
	projected   map[string]*discoveryv1.EndpointSlice // what was made of imported slices, by name
	projections map[string]versions                   // of projected, by source; made by versionsOf
	native      []*discoveryv1.EndpointSlice          // slices of this cluster's own Service
	expired     map[string]liveness.State             // by cluster ID
	// strays are slices of the derived Service that belong to other programs, which stay, and imported slices whose
	// labels are lost or wrong, which get them back.
	strays []*discoveryv1.EndpointSlice
	// orphans are the agent's slices of the derived Service whose names match no source: replaced or deleted.
	orphans []*discoveryv1.EndpointSlice

	// On the hub:
	hub       bool // the hub's caches have synced once
	excluded  bool // the ClusterSet excludes the namespace (S5)
	assumed   bool // the hub shows no ClusterSet, and default rules exclude the namespace: nothing new is copied
	published kube.Published
	departed  map[string]time.Time // when members departed

	unwritten map[string]bool // clusters whose copy this pass could not write
}

func (s *snapshot) derivedName() string { return derived.Name(s.name.Namespace, s.name.Name) }

func (r *reconciler) gather(ctx context.Context, name types.NamespacedName) (s snapshot, err error) {
	s.name, s.unwritten = name, map[string]bool{}
	if s.own, err = kube.Place(ctx, r.Local, r.Cluster); err != nil {
		return s, err
	}
	for _, read := range []func(context.Context, *snapshot) error{r.gatherObjects, r.gatherHub} {
		if err := read(ctx, &s); err != nil {
			return s, err
		}
	}
	ns, err := kube.Get[*corev1.Namespace](ctx, r.Local, types.NamespacedName{Name: name.Namespace})
	if err != nil || ns == nil || ns.DeletionTimestamp != nil {
		s.createsNamespace = s.createsNamespace && ns == nil
		return s, err
	}
	s.namespace, s.importsOff = true, ns.Annotations[clusterset.AnnotationNamespaceImport] == "false"
	if v := ns.Annotations[clusterset.AnnotationNamespaceDeclared]; v != "" {
		s.fillsDeclared = v == string(hubv1alpha1.DeclaredImportsFill)
	}
	for _, read := range []func(context.Context, *snapshot) error{r.gatherSlices, r.gatherExpired} {
		if err := read(ctx, &s); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (r *reconciler) gatherObjects(ctx context.Context, s *snapshot) (err error) {
	if s.copies, err = kube.Copies(ctx, r.Local, s.name); err != nil {
		return err
	}
	if s.service, err = kube.Get[*corev1.Service](ctx, r.Local, s.name); err != nil {
		return err
	}
	if s.export, err = kube.Get[*mcsv1beta1.ServiceExport](ctx, r.Local, s.name); err != nil {
		return err
	}
	if s.imp, err = kube.Get[*mcsv1beta1.ServiceImport](ctx, r.Local, s.name); err != nil {
		return err
	}
	service := types.NamespacedName{Namespace: s.name.Namespace, Name: s.derivedName()}
	s.svc, err = kube.Get[*corev1.Service](ctx, r.Local, service)
	return err
}

// gatherSlices reads the slices that are labelled as of the import, of the derived Service, and of this cluster's own
// Service. Names decide what the first two are, because nobody can edit them.
func (r *reconciler) gatherSlices(ctx context.Context, s *snapshot) error {
	imported, err := r.listSlices(ctx, s.name, kube.ByImport)
	if err != nil {
		return err
	}
	ofDerived, err := r.listSlices(
		ctx, types.NamespacedName{Namespace: s.name.Namespace, Name: s.derivedName()}, kube.ByService,
	)
	if err != nil {
		return err
	}
	s.projected = make(map[string]*discoveryv1.EndpointSlice, len(imported))
	for _, slice := range ofDerived {
		switch {
		case !kube.Writable(slice), s.ownerByName(slice) != "":
			s.strays = append(s.strays, slice)
		case endpoints.IsProjection(slice.Name) && endpoints.ServiceOf(slice.Name) == s.derivedName():
			s.projected[slice.Name] = slice
		default:
			s.orphans = append(s.orphans, slice)
		}
	}
	for _, slice := range imported {
		owner := endpoints.OwnerOf(slice.Annotations[endpoints.AnnotationSource])
		switch {
		case endpoints.IsProjection(slice.Name):
			s.projected[slice.Name] = slice
		case owner != sourceCluster(slice) && s.ownerByName(slice) != "": // hashes only what is suspect
			s.strays = append(s.strays, slice)
		default:
			s.imported = append(s.imported, slice)
		}
	}
	s.native, err = r.listSlices(ctx, s.name, kube.ByService)
	return err
}

func (r Config) listSlices(
	ctx context.Context, name types.NamespacedName, index string,
) (out []*discoveryv1.EndpointSlice, err error) {
	var list discoveryv1.EndpointSliceList
	err = r.Local.List(
		ctx, &list, client.InNamespace(name.Namespace), client.MatchingFields{index: kube.Key(name)},
		client.UnsafeDisableDeepCopy,
	)
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, err
}

// gatherExpired reads the states that sources keeps of other clusters.
func (r *reconciler) gatherExpired(ctx context.Context, s *snapshot) error {
	others := func(c *hubv1alpha1.ServiceExportRecord) bool { return c.Spec.ClusterID != r.Cluster }
	if !slices.ContainsFunc(s.copies, others) && len(s.published.Records) == 0 {
		return nil
	}
	leases, err := kube.Sources(ctx, r.Local)
	s.expired = map[string]liveness.State{}
	for i := range leases {
		cluster, state := leases[i].Labels[liveness.LabelSource], liveness.StateOf(&leases[i])
		if state.Expired && cluster != r.Cluster {
			s.expired[cluster] = state
		}
	}
	return err
}

// gatherHub reads the ClusterSet's rules, the departures, and what the hub shows of the name.
func (r *reconciler) gatherHub(ctx context.Context, s *snapshot) error {
	hub := r.Hub()
	s.fillsDeclared = s.imp != nil && kube.Manages(s.imp) // until the ClusterSet is known
	if s.hub = hub != nil; !s.hub {
		return nil
	}
	set, known, err := kube.SetOf(ctx, hub, r.HubNamespace)
	if err != nil {
		return err
	}
	rules := &set.Spec
	if known {
		s.fillsDeclared = rules.DeclaredImports == hubv1alpha1.DeclaredImportsFill
	}
	excludes := !clusterset.MayUse(rules.Namespaces, s.name.Namespace)
	s.excluded, s.assumed = excludes && known, excludes && !known
	s.createsNamespace = known && !excludes && rules.Namespaces.Missing == hubv1alpha1.MissingNamespacesCreate
	s.departed = kube.Departed(set)
	s.published, err = kube.PublishedOf(ctx, hub, r.HubNamespace, s.name)
	return err
}

// sourceCluster returns the cluster that an imported slice or a projection is labelled with.
func sourceCluster(slice *discoveryv1.EndpointSlice) string {
	return cmp.Or(slice.Labels[mcsv1beta1.LabelSourceCluster], slice.Labels[endpoints.LabelCluster])
}
