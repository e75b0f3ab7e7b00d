package serviceimport

import (
	"context"
	"fmt"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// state is what one pass goes by. Everything in it is a cache's and must not be changed.
type state struct {
	name      types.NamespacedName
	namespace bool // there, and not going
	exports   []clusterset.Export
	unread    map[string]bool               // clusters whose records here do not parse, or are lost: what is imported of them stays
	standIns  []clusterset.Export           // what the import says, for those of them that it is of
	lost      bool                          // some of them are: their owners' word comes with a Lease
	awaited   bool                          // some record is about to be written here again
	verdicts  map[string]liveness.State   // on exporting clusters that count as dead
	withheld  map[string]endpoints.Unreached // by cluster that too few members reach
	imp       *mcsv1beta1.ServiceImport
	svc       *corev1.Service               // the derived Service
	slices    []*discoveryv1.EndpointSlice  // the imported ones, but for those of unread, and those that forgot
	strays    []*discoveryv1.EndpointSlice  // those of the derived Service that are not the import's by their labels, or another cluster's
	forgot    bool                          // there is an imported slice that no longer says of which record it is
	native    []*discoveryv1.EndpointSlice  // those of this cluster's own Service of the name
	records   []*hubv1alpha1.EndpointRecord // of its peers, on the hub; nil where no hub has been seen
	behind    map[string]bool               // those of records that a backup has brought back
	moved     map[string]bool               // records of which slices are imported, and which the hub shows as another Service's
	hubSeen   bool
}

func (s *state) derivedName() string { return derived.Name(s.name.Namespace, s.name.Name) }

func (r *reconciler) gather(ctx context.Context, name types.NamespacedName) (s state, err error) {
	s.name = name
	ns, err := kube.Get[*corev1.Namespace](ctx, r.Local, types.NamespacedName{Name: name.Namespace})
	if err != nil || ns == nil || ns.DeletionTimestamp != nil {
		return s, err
	}
	s.namespace = true
	copies, err := r.gatherExports(ctx, &s)
	if err != nil {
		return s, err
	}
	if s.imp, err = kube.Get[*mcsv1beta1.ServiceImport](ctx, r.Local, name); err != nil {
		return s, err
	}
	if s.svc, err = kube.Get[*corev1.Service](ctx, r.Local, types.NamespacedName{Namespace: name.Namespace, Name: s.derivedName()}); err != nil {
		return s, err
	}
	if err := r.gatherSlices(ctx, &s); err != nil {
		return s, err
	}
	if err := r.gatherLost(ctx, &s, copies); err != nil {
		return s, err
	}
	s.standIn()
	s.slices = slices.DeleteFunc(s.slices, func(e *discoveryv1.EndpointSlice) bool { return s.unread[e.Labels[mcsv1beta1.LabelSourceCluster]] })
	if s.native, err = r.list(ctx, name, kube.ByService); err != nil {
		return s, err
	}
	hub := r.Hub()
	s.hubSeen = hub != nil
	s.slices = slices.DeleteFunc(s.slices, func(e *discoveryv1.EndpointSlice) bool { return r.forgot(&s, e) })
	if hub == nil {
		return s, nil
	}
	var records hubv1alpha1.EndpointRecordList
	if err := hub.List(ctx, &records, client.InNamespace(r.HubNamespace), client.MatchingFields{kube.ByService: kube.Key(name)}, client.UnsafeDisableDeepCopy); err != nil {
		return s, err
	}
	for i := range records.Items {
		if records.Items[i].Spec.ClusterID != r.Cluster {
			s.records = append(s.records, &records.Items[i])
		}
	}
	return s, r.gatherMoved(ctx, &s)
}

// gatherSlices lists the imported slices, and those that expel looks at.
func (r *reconciler) gatherSlices(ctx context.Context, s *state) (err error) {
	if s.slices, err = r.list(ctx, s.name, kube.ByImport); err != nil {
		return err
	}
	if s.strays, err = r.list(ctx, types.NamespacedName{Namespace: s.name.Namespace, Name: s.derivedName()}, kube.ByService); err != nil {
		return err
	}
	s.slices = slices.DeleteFunc(s.slices, func(e *discoveryv1.EndpointSlice) bool {
		owner := s.owner(e)
		stray := owner != "" && owner != e.Labels[mcsv1beta1.LabelSourceCluster]
		if stray {
			s.strays = append(s.strays, e)
		}
		return stray
	})
	return nil
}

// gatherMoved looks for records that their owner has made another Service's, which it says by the same names: a slice that is relabelled
// keeps its UID.
func (r *reconciler) gatherMoved(ctx context.Context, s *state) error {
	shown := make(map[string]bool, len(s.records))
	for _, rec := range s.records {
		shown[rec.Name] = true
	}
	for _, slice := range s.slices {
		if shown[slice.Annotations[endpoints.AnnotationRecord]] || slice.Labels[mcsv1beta1.LabelSourceCluster] == r.Cluster {
			continue
		}
		src, err := endpoints.Restore(slice)
		if err != nil {
			continue
		}
		rec, err := kube.Get[*hubv1alpha1.EndpointRecord](ctx, r.Hub(), types.NamespacedName{Namespace: r.HubNamespace, Name: src.Record})
		if err != nil {
			return err
		}
		if rec == nil || rec.Spec.ClusterID != src.ClusterID || src.NewerThan(rec.CreationTimestamp.Unix(), rec.Spec.Revision) {
			continue
		}
		if s.moved == nil {
			s.moved = map[string]bool{}
		}
		s.moved[src.Record] = kube.Exported(rec) != s.name
	}
	return nil
}

// forgot tells of an imported slice that was edited here, so that it cannot be rebuilt, and may be all that is known of its endpoints: it stays
// as it is until the hub shows its record, or the owner's word is that nothing is missing.
func (r *reconciler) forgot(s *state, slice *discoveryv1.EndpointSlice) bool {
	cluster := slice.Labels[mcsv1beta1.LabelSourceCluster]
	if cluster == r.Cluster || !slices.ContainsFunc(s.exports, func(e clusterset.Export) bool { return e.Cluster == cluster }) {
		return false
	}
	if _, err := endpoints.Restore(slice); err == nil || s.hubSeen && r.Gone(cluster, slice.Annotations[endpoints.AnnotationRecord], created(slice)) {
		return false
	}
	s.forgot = true
	return true
}

// gatherExports reads this cluster's copies, and tells of which clusters there are any. One that does not parse was edited here, or is of a
// newer version of the agent: nobody has withdrawn it, and what was made of it stays.
func (r *reconciler) gatherExports(ctx context.Context, s *state) (copies map[string]bool, err error) {
	var records hubv1alpha1.ServiceExportRecordList
	if err := r.Local.List(ctx, &records, client.InNamespace(kube.SystemNamespace), client.MatchingFields{kube.ByService: kube.Key(s.name)}); err != nil {
		return nil, err
	}
	copies = map[string]bool{}
	for i := range records.Items {
		rec := &records.Items[i]
		copies[rec.Spec.ClusterID] = true
		if rec.Spec.Withdrawn {
			comes, err := r.comes(ctx, rec)
			if err != nil {
				return nil, err
			}
			s.awaited = s.awaited || comes
			continue
		}
		e, err := clusterset.ParseExport(rec)
		if err != nil {
			r.Events.Event(rec, kube.Warning, "RecordUnreadable", fmt.Sprintf(
				"It is not used: %v. What was imported of cluster %s stays as it is, and so does what the oldest export decides. If a newer agent wrote it, run that one again. If it was edited, delete this copy: it is made anew, and what was imported with it.", err, rec.Spec.ClusterID))
			s.stays(rec.Spec.ClusterID)
			continue
		}
		s.exports = append(s.exports, e)
		if c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionReached); c != nil && c.Status == metav1.ConditionFalse {
			if s.withheld == nil {
				s.withheld = map[string]endpoints.Unreached{}
			}
			s.withheld[rec.Spec.ClusterID] = endpoints.Unreached{Addresses: rec.Status.Withheld, Reason: c.Reason}
		}
	}
	return copies, r.gatherVerdicts(ctx, s)
}

// stays has what was imported of a cluster be left as it is.
func (s *state) stays(cluster string) {
	if s.unread == nil {
		s.unread = map[string]bool{}
	}
	s.unread[cluster] = true
}

// standIn has the import speak for clusters whose records cannot be read, if it was made with theirs: a peer that joins a name with a record that
// cannot be read holds nothing there.
func (s *state) standIn() {
	if s.imp == nil || !imports.Ours(s.imp, kube.Manager, s.svc, s.slices) {
		return
	}
	for _, cluster := range slices.Sorted(maps.Keys(s.unread)) {
		if !slices.ContainsFunc(s.imp.Status.Clusters, func(c mcsv1beta1.ClusterStatus) bool { return c.Cluster == cluster }) &&
			!slices.ContainsFunc(s.slices, func(e *discoveryv1.EndpointSlice) bool { return e.Labels[mcsv1beta1.LabelSourceCluster] == cluster }) {
			continue
		}
		if e, ok := imports.StandIn(s.imp, cluster); ok {
			s.standIns = append(s.standIns, e)
		}
	}
}

// gatherVerdicts reads what sources has written of the exporting clusters.
func (r *reconciler) gatherVerdicts(ctx context.Context, s *state) error {
	if len(s.exports) == 0 || len(s.exports) == 1 && s.exports[0].Cluster == r.Cluster {
		return nil
	}
	var leases coordinationv1.LeaseList
	if err := r.Local.List(ctx, &leases, client.InNamespace(kube.SystemNamespace), client.HasLabels{liveness.LabelSource}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range leases.Items {
		cluster := leases.Items[i].Labels[liveness.LabelSource]
		if v := liveness.StateOf(&leases.Items[i]); v.Expired && cluster != r.Cluster && leases.Items[i].Name == liveness.LeaseName(cluster) {
			if s.verdicts == nil {
				s.verdicts = map[string]liveness.State{}
			}
			s.verdicts[cluster] = v
		}
	}
	return nil
}

func (r *reconciler) list(ctx context.Context, name types.NamespacedName, index string) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := r.Local.List(ctx, &list, client.InNamespace(name.Namespace), client.MatchingFields{index: kube.Key(name)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}
