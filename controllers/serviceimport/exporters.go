package serviceimport

import (
	"fmt"
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

const (
	messageLost = "This cluster lost its copy of the record of cluster %s, and the hub shows no valid one. " +
		"The import stays as it is until that cluster publishes again or is evicted."
	messageUnreadable = "The record of cluster %[2]s cannot be used: %[1]v. The import stays as it is. " +
		"If a newer agent wrote the record, run that version again. If the record was edited, delete this copy: " +
		"the agent copies it again."
)

// exporters is the decision about which clusters export a name. A cluster exports if its copy is valid, and does not if
// its owner withdrew the record, departed, or does not export to this cluster (E11). While the copy of another one is
// unreadable or missing, nothing of the name changes: absence is not deletion (DESIGN §2).
type exporters struct {
	exports []clusterset.Export
	waits   bool // for a copy

	managed    []*discoveryv1.EndpointSlice // imported slices that this pass may change
	unreadable bool                         // an imported slice was edited and is left alone
	findings   []finding
}

// exporters decides.
func (s *snapshot) exporters() (e exporters) {
	for i := range s.copies {
		e.addCopy(&s.copies[i], s.exported[s.copies[i].Spec.ClusterID], s.own)
	}
	withoutCopy := s.importedWithoutCopy()
	for _, cluster := range slices.Sorted(maps.Keys(withoutCopy)) {
		waits, lost := s.missingCopy(cluster, withoutCopy[cluster])
		e.waits = e.waits || waits
		if lost && s.imp != nil && s.hub {
			e.findings = append(e.findings, finding{s.imp, "RecordLost", fmt.Sprintf(messageLost, cluster)})
		}
	}
	for _, slice := range s.imported {
		cluster := sourceCluster(slice)
		if cluster != s.own.Cluster && e.isExporting(cluster) && s.isUnreadable(slice) {
			e.unreadable = true
		} else {
			e.managed = append(e.managed, slice)
		}
	}
	return e
}

// addCopy adds one copy. onHub is the record on the hub; nil if unknown.
func (e *exporters) addCopy(rec, onHub *hubv1alpha1.ServiceExportRecord, own clusterset.Place) {
	cluster := rec.Spec.ClusterID
	if rec.Spec.Withdrawn {
		// The local API server may have written the withdrawal long after it was sent, when the owner exports again.
		exportsAgain := cluster != own.Cluster && onHub != nil && onHub.Spec.Revision > rec.Spec.Revision &&
			isValid(onHub)
		e.waits = e.waits || exportsAgain
		return
	}
	export, err := clusterset.ParseExport(rec)
	if err != nil {
		e.waits = true
		e.findings = append(e.findings, finding{rec, "RecordUnreadable", fmt.Sprintf(messageUnreadable, err, cluster)})
		return
	}
	if export.GoesTo(own) {
		e.exports = append(e.exports, export)
	}
}

func isValid(rec *hubv1alpha1.ServiceExportRecord) bool {
	_, err := clusterset.ParseExport(rec)
	return err == nil && !rec.Spec.Withdrawn
}

// importedWithoutCopy returns the clusters that the import or its slices say export, but that have no copy here, each
// with the creation time of its latest imported record by the hub's clock. Users edit labels, so a slice counts only
// for the cluster that its record names, and the import only if it is the agent's.
func (s *snapshot) importedWithoutCopy() map[string]time.Time {
	out := map[string]time.Time{}
	if s.imp != nil && kube.Owned(s.imp) {
		for _, c := range s.imp.Status.Clusters {
			out[c.Cluster] = time.Unix(0, 0)
		}
	}
	for _, slice := range s.imported {
		src, err := endpoints.Restore(slice)
		if err != nil || clusterset.RecordOwner("EndpointRecord", src.Record) != src.ClusterID {
			continue
		}
		if at := time.Unix(src.Created, 0); !at.Before(out[src.ClusterID]) {
			out[src.ClusterID] = at
		}
	}
	for i := range s.copies {
		delete(out, s.copies[i].Spec.ClusterID)
	}
	return out
}

// missingCopy returns whether the name waits for the copy of a cluster: its owner did not end the export. A user may
// have deleted the copy. serviceexport writes own copies again, record those of other clusters, unless it is lost: the
// hub shows no valid record either.
func (s *snapshot) missingCopy(cluster string, created time.Time) (waits, lost bool) {
	if cluster == s.own.Cluster {
		ended := s.export == nil || s.export.DeletionTimestamp != nil || meta.IsStatusConditionPresentAndEqual(
			s.export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid), metav1.ConditionFalse)
		return !ended, false
	}
	onHub := s.exported[cluster]
	switch {
	case s.excluded || onHub != nil && onHub.Spec.Withdrawn: // record makes no copy for an excluded namespace
		return false, false
	case onHub == nil && created.Before(s.departed[cluster]):
		return false, false
	}
	return true, onHub == nil || !isValid(onHub)
}

func (e *exporters) isExporting(cluster string) bool {
	return slices.ContainsFunc(e.exports, func(x clusterset.Export) bool { return x.Cluster == cluster })
}

// isUnreadable returns whether a slice was edited so that its source is unknown. It may be all that is known of these
// endpoints, so it stays until the hub shows all endpoints of its cluster.
func (s *snapshot) isUnreadable(slice *discoveryv1.EndpointSlice) bool {
	_, err := endpoints.Restore(slice)
	return err != nil && s.statedBy(sourceCluster(slice)) == nil
}

// copyOf returns the copy of a cluster's record, or nil.
func (s *snapshot) copyOf(cluster string) *hubv1alpha1.ServiceExportRecord {
	i := slices.IndexFunc(s.copies, func(c hubv1alpha1.ServiceExportRecord) bool { return c.Spec.ClusterID == cluster })
	if i < 0 {
		return nil
	}
	return &s.copies[i]
}

// statedBy returns the copy of a cluster's record if the hub shows exactly the EndpointRecords that it states, else
// nil. If it does, the cluster's other endpoints have gone, and are not merely missing.
func (s *snapshot) statedBy(cluster string) *hubv1alpha1.ServiceExportRecord {
	rec := s.copyOf(cluster)
	if rec == nil || !s.hub {
		return nil
	}
	var shown []string
	for _, e := range s.records {
		if e.Spec.ClusterID == cluster {
			shown = append(shown, e.Name)
		}
	}
	if rec.Spec.EndpointRecords != clusterset.EndpointSet(shown) {
		return nil
	}
	return rec
}

// isReverted returns whether a restored hub shows an older record of a cluster than the copy. The EndpointRecords there
// may be of slices that have gone since.
func (s *snapshot) isReverted(cluster string) bool {
	onHub, copied := s.exported[cluster], s.copyOf(cluster)
	return onHub != nil && copied != nil && onHub.Spec.Revision < copied.Spec.Revision
}
