package serviceimport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// gatherLost looks for clusters of which something is imported though their copies are not here. Absence is not deletion (DESIGN §2), in
// this cluster as on the hub: a user may have deleted a copy, or a restore of this cluster not brought it back. Where it is about to be
// written again, nothing is decided before; else what was imported stays, unless the hub, as it is now, says that the export is over.
func (r *reconciler) gatherLost(ctx context.Context, s *state, copies map[string]bool) error {
	shares := s.shares(copies)
	for _, cluster := range slices.Sorted(maps.Keys(shares)) {
		comes, over, err := r.lost(ctx, s.name, cluster, shares[cluster])
		switch {
		case err != nil:
			return err
		case comes:
			s.awaited = true
		case !over:
			s.stays(cluster)
			s.lost = true
			if s.imp != nil && r.Hub() != nil {
				r.Events.Event(s.imp, kube.Warning, "RecordLost", fmt.Sprintf(
					"This cluster lost its copy of what cluster %s exports, and the hub shows none that could take its place. What was imported of it stays as it is, and so does what the oldest export decides, until it publishes again, or is evicted.", cluster))
			}
		}
	}
	return nil
}

// shares are the clusters of which the import and its slices say that they export, without those of which there are copies; each with the
// time of the latest record that was imported of it, by the hub's clock. A slice speaks for the cluster of its record only, and an import
// only if it is the agent's: users edit labels.
func (s *state) shares(copies map[string]bool) map[string]time.Time {
	out := map[string]time.Time{}
	if s.imp != nil && imports.Ours(s.imp, kube.Manager, s.svc, s.slices) {
		for _, c := range s.imp.Status.Clusters {
			out[c.Cluster] = time.Unix(0, 0)
		}
	}
	for _, slice := range s.slices {
		if copies[slice.Labels[mcsv1beta1.LabelSourceCluster]] {
			continue
		}
		src, err := endpoints.Restore(slice)
		if err != nil || clusterset.RecordOwner("EndpointRecord", src.Record) != src.ClusterID {
			continue
		}
		if at := time.Unix(src.Created, 0); !at.Before(out[src.ClusterID]) {
			out[src.ClusterID] = at
		}
	}
	maps.DeleteFunc(out, func(cluster string, _ time.Time) bool { return copies[cluster] })
	return out
}

// lost tells whether the copy of a cluster's record is about to be written again (by record; this cluster's own by serviceexport), or
// whether the export is over by the owner's word.
func (r *reconciler) lost(ctx context.Context, name types.NamespacedName, cluster string, created time.Time) (comes, over bool, err error) {
	if cluster == r.Cluster {
		export, err := kube.Get[*mcsv1beta1.ServiceExport](ctx, r.Local, name)
		if err != nil || export == nil || export.DeletionTimestamp != nil {
			return false, true, err
		}
		valid := !meta.IsStatusConditionPresentAndEqual(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid), metav1.ConditionFalse)
		return valid, !valid, nil
	}
	hub := r.Hub()
	if hub == nil {
		return false, false, nil
	}
	record := clusterset.RecordName(name.Name, name.Namespace, cluster)
	shown, err := kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, hub, types.NamespacedName{Namespace: r.HubNamespace, Name: record})
	switch {
	case err != nil:
		return false, false, err
	case shown == nil:
		return false, r.Gone(cluster, record, created), nil
	case shown.Spec.Withdrawn:
		return false, true, nil
	}
	_, refused := clusterset.ParseExport(shown)
	return refused == nil, false, nil
}

// comes tells of a peer's copy, which says that the export is over, whether the hub shows a later word that it is not: record is about to write
// it here. Where this cluster's API server was away, the earlier word may be written long after it was given, and just before the later one.
func (r *reconciler) comes(ctx context.Context, copied *hubv1alpha1.ServiceExportRecord) (bool, error) {
	hub := r.Hub()
	if hub == nil || copied.Spec.ClusterID == r.Cluster {
		return false, nil
	}
	shown, err := kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, hub, types.NamespacedName{Namespace: r.HubNamespace, Name: copied.Name})
	if err != nil || shown == nil || shown.Spec.Withdrawn || shown.Spec.Revision <= copied.Spec.Revision {
		return false, err
	}
	_, refused := clusterset.ParseExport(shown)
	return refused == nil, nil
}
