package external

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// snapshot is what one pass knows of a name. The objects belong to caches and must not be changed.
type snapshot struct {
	name      types.NamespacedName
	concerned bool // a record has a load balancer, or there are slices
	foreign   bool // another program owns the import (I10): while the name is exported, nothing changes
	emptied   bool // the agent has emptied another program's import (I11): its slices are deleted
	copies    []*hubv1alpha1.ServiceExportRecord
	imp       *mcsv1beta1.ServiceImport
	slices    []discoveryv1.EndpointSlice // all that have an object name of ours, whoever wrote them
	frozen    map[string]bool             // clusters whose slices stay as they are
	older     bool                        // the hub shows an older record than a copy
}

func (r *reconciler) gather(ctx context.Context, name types.NamespacedName) (s snapshot, err error) {
	s.name, s.frozen = name, map[string]bool{}
	if s.copies, err = kube.Copies(ctx, r.Local, name); err != nil {
		return s, err
	}
	var existing discoveryv1.EndpointSliceList
	if err := r.Local.List(ctx, &existing, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{kube.ByExternal: kube.Key(name)}); err != nil {
		return s, err
	}
	s.slices, s.concerned = existing.Items, len(existing.Items) > 0
	for _, rec := range s.copies {
		s.concerned = s.concerned || rec.Spec.External != nil
		s.foreign = s.foreign || kube.NotOwned(rec)
	}
	if !s.concerned {
		return s, nil
	}
	s.imp, err = kube.Get[*mcsv1beta1.ServiceImport](ctx, r.Local, name)
	s.foreign = s.foreign || s.imp != nil && !kube.Manages(s.imp)
	s.emptied = s.imp != nil && kube.Emptied(s.imp)
	return s, err
}

// isExported returns whether the name is exported to this cluster and may be imported. A lost copy alone ends no export
// (DESIGN §2).
func (r *reconciler) isExported(ctx context.Context, s *snapshot) (bool, error) {
	if refuses, err := r.refuses(ctx, s.name.Namespace); refuses || err != nil {
		return false, err
	}
	own, err := kube.Place(ctx, r.Local, r.Cluster)
	if err != nil {
		return false, err
	}
	copied := map[string]bool{}
	for _, rec := range s.copies {
		copied[rec.Spec.ClusterID] = true
		if export, err := clusterset.ParseExport(rec); !rec.Spec.Withdrawn && (err != nil || export.GoesTo(own)) {
			return true, nil
		}
	}
	hub := r.Hub()
	set, _, err := kube.SetOf(ctx, hub, r.HubNamespace)
	if err != nil {
		return false, err
	}
	departed := kube.Departed(set)
	published, err := kube.PublishedOf(ctx, hub, r.HubNamespace, s.name)
	if err != nil {
		return false, err
	}
	export, err := kube.Get[*mcsv1beta1.ServiceExport](ctx, r.Local, s.name)
	return slices.ContainsFunc(s.slices, func(e discoveryv1.EndpointSlice) bool {
		cluster := sourceCluster(&e)
		ended := published.Ended(cluster, clusterset.Created(&e), departed[cluster])
		if cluster == r.Cluster {
			ended = kube.EndsExport(export)
		}
		return kube.Owned(&e) && !copied[cluster] && !ended
	}), err
}

// refuses returns whether the ClusterSet forbids external names or excludes a namespace, or the namespace's annotation
// keeps imports out (S5).
func (r *reconciler) refuses(ctx context.Context, namespace string) (bool, error) {
	set, known, err := kube.SetOf(ctx, r.Hub(), r.HubNamespace)
	if err != nil {
		return false, err
	}
	ns, err := kube.Get[*corev1.Namespace](ctx, r.Local, types.NamespacedName{Name: namespace})
	return set.Spec.ExternalNames == hubv1alpha1.ExternalNamesForbid ||
		known && !clusterset.MayUse(set.Spec.Namespaces, namespace) || ns != nil && refusesImports(ns), err
}

// decide returns the slices that there must be, and sets which clusters are frozen.
func (r *reconciler) decide(ctx context.Context, s *snapshot) ([]*discoveryv1.EndpointSlice, error) {
	hub := r.Hub()
	set, _, err := kube.SetOf(ctx, hub, r.HubNamespace)
	if err != nil || s.imp == nil || set.Spec.ExternalNames == hubv1alpha1.ExternalNamesForbid ||
		slices.Contains(s.imp.Finalizers, metav1.FinalizerDeleteDependents) { // its slices are deleted with it
		return nil, err
	}
	if s.imp.DeletionTimestamp != nil { // a finalizer of another program keeps it: clients use it while it is exported
		if exported, err := r.isExported(ctx, s); !exported || err != nil {
			return nil, err
		}
	}
	own, err := kube.Place(ctx, r.Local, r.Cluster)
	if err != nil {
		return nil, err
	}
	published, err := kube.PublishedOf(ctx, hub, r.HubNamespace, s.name)
	if err != nil {
		return nil, err
	}
	for _, c := range s.imp.Status.Clusters {
		s.frozen[c.Cluster] = true // until source has read its copy
	}
	var sources []external.Source
	for _, rec := range s.copies {
		if source := r.source(s, rec, own, published); source.External != nil {
			sources = append(sources, source)
		}
	}
	slices.SortFunc(sources, func(a, b external.Source) int { return strings.Compare(a.Cluster, b.Cluster) })
	reports, err := r.reports(ctx, hub)
	imp := &external.Import{Namespace: s.name.Namespace, Name: s.name.Name, UID: s.imp.UID, Manager: kube.Manager}
	return external.Desired(imp, sources, reports), err
}

// source returns what a cluster's record says. External is nil if the cluster gets no slice, or is frozen.
func (r *reconciler) source(
	s *snapshot, rec *hubv1alpha1.ServiceExportRecord, own clusterset.Place, published kube.Published,
) (out external.Source) {
	out.Cluster = rec.Spec.ClusterID
	export, err := clusterset.ParseExport(rec)
	if err != nil && !rec.Spec.Withdrawn {
		return out // frozen; serviceimport reports the error
	}
	if delete(s.frozen, out.Cluster); rec.Spec.Withdrawn || !export.GoesTo(own) {
		return out
	}
	reserved := r.Reserved
	if out.Cluster == r.Cluster {
		reserved = nil
	}
	var refused []error
	out.External, refused = clusterset.ParseExternal(&rec.Spec, reserved)
	if err := errors.Join(refused...); err != nil {
		r.Events.Event(s.imp, kube.Warning, hubv1alpha1.ReasonEndpointsRefused, fmt.Sprintf(
			"Addresses of a load balancer of cluster %s are not used: %v.", out.Cluster, err))
	}
	out.Ready, out.Created = s.isReady(rec, published), rec.Annotations[clusterset.AnnotationCreated]
	return out
}

// isReady returns whether the exporting cluster has a ready endpoint. If the hub shows a part of the endpoints, or an
// older record than copied, absence proves nothing (DESIGN §2): a slice that was ready stays ready.
func (s *snapshot) isReady(copied *hubv1alpha1.ServiceExportRecord, published kube.Published) bool {
	cluster := copied.Spec.ClusterID
	groups, all := published.Groups(cluster)
	shown := published.Records[cluster]
	if shown != nil && (shown.Spec.Withdrawn || clusterset.IsOlder(shown, copied)) {
		groups, all, s.older = nil, false, true
	}
	wasReady := func(e discoveryv1.EndpointSlice) bool {
		return sourceCluster(&e) == cluster && len(e.Endpoints) > 0 &&
			(e.Endpoints[0].Conditions.Ready == nil || *e.Endpoints[0].Conditions.Ready)
	}
	return anyReady(groups...) || !all && slices.ContainsFunc(s.slices, wasReady)
}

// reports returns which clusters each live member does not reach: this one by the Leases that package sources stores,
// others by their own Leases on the hub. An expired Lease has no vote, even if its member answers: nobody updates it.
func (r *reconciler) reports(ctx context.Context, hub client.Reader) (external.Unreachable, error) {
	members, err := kube.Members(ctx, hub, r.HubNamespace)
	if err != nil {
		return nil, err
	}
	stored, err := kube.Sources(ctx, r.Local)
	if err != nil {
		return nil, err
	}
	expired, voteless := sets.Set[string]{}, sets.New(r.Cluster)
	for i := range stored {
		cluster := stored[i].Labels[liveness.LabelSource]
		if liveness.StateOf(&stored[i]).Expired {
			expired.Insert(cluster)
		}
		if liveness.StateOf(&stored[i]).Expired || liveness.LeaseExpired(&stored[i]) {
			voteless.Insert(cluster)
		}
	}
	reports := external.Unreachable{r.Cluster: expired}
	for id, lease := range members {
		if lease != nil && !voteless.Has(id) {
			reports[id] = unreachable(lease)
		}
	}
	return reports, nil
}
