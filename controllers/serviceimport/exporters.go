package serviceimport

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

const (
	messageLost = "This cluster lost its copy of the record of cluster %s, and the hub shows no valid one. What was " +
		"imported from that cluster stays as it is until it publishes again or is evicted. If there is no such " +
		"cluster, delete its EndpointSlices here, then this ServiceImport."
	messageUnreadable = "The record is not used: %v. What was imported from cluster %s stays as it is. " +
		"If a newer agent wrote the record, run that version again. If the record was edited, delete this copy: " +
		"the agent copies it again."
)

// exporters is the decision about which clusters export a name. A cluster is in one of four states:
//   - exporting: its copy is valid;
//   - frozen: its copy is unreadable, or missing although its owner did not end the export. Its share stays as it is;
//   - pending: another controller is about to write its copy. The whole name waits;
//   - ended: its owner withdrew the record, departed, or does not export to this cluster (E11).
type exporters struct {
	exports  []clusterset.Export
	frozen   map[string]bool
	standIns []clusterset.Export // the import's content, for frozen clusters that contributed to it
	pending  bool
	lost     bool // a cluster is frozen because its copy is missing

	managed    []*discoveryv1.EndpointSlice // imported slices that this pass may change
	unreadable bool                         // an imported slice was edited and is left alone
	findings   []finding
}

// decideExporters returns which clusters export the name.
func (s *snapshot) decideExporters() exporters {
	own, e := s.own.Cluster, exporters{frozen: map[string]bool{}}
	for i := range s.copies {
		e.addCopy(&s.copies[i], s.onHub[s.copies[i].Spec.ClusterID], s.own)
	}
	withoutCopy := s.importedWithoutCopy()
	for _, cluster := range slices.Sorted(maps.Keys(withoutCopy)) {
		switch s.missingCopy(cluster, own, withoutCopy[cluster]) {
		case pending:
			e.pending = true
		case frozen:
			e.lost, e.frozen[cluster] = true, true
			if s.imp != nil && s.hub && cluster != own {
				e.findings = append(e.findings, finding{s.imp, "RecordLost", fmt.Sprintf(messageLost, cluster)})
			}
		}
	}
	e.addStandIns(s)
	for _, slice := range s.imported {
		cluster := sourceCluster(slice)
		switch {
		case e.frozen[cluster]:
		case cluster != own && e.isExporting(cluster) && s.isUnreadable(slice):
			e.unreadable = true
		default:
			e.managed = append(e.managed, slice)
		}
	}
	return e
}

type copyState int

const (
	ended copyState = iota
	pending
	frozen
)

// addCopy adds one copy. onHub is the record on the hub; nil if unknown.
func (e *exporters) addCopy(rec, onHub *hubv1alpha1.ServiceExportRecord, own clusterset.Place) {
	cluster := rec.Spec.ClusterID
	if rec.Spec.Withdrawn {
		// The local API server may have written the withdrawal long after it was sent, when the owner exports again.
		exportsAgain := cluster != own.Cluster && onHub != nil && onHub.Spec.Revision > rec.Spec.Revision &&
			isValid(onHub)
		e.pending = e.pending || exportsAgain
		return
	}
	export, err := clusterset.ParseExport(rec)
	if err != nil {
		e.frozen[cluster] = true
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

// missingCopy returns the state of a cluster without a copy. Absence is not deletion (DESIGN §2): a user may have
// deleted the copy, or this cluster was restored. serviceexport writes own copies again, record those of other
// clusters.
func (s *snapshot) missingCopy(cluster, own string, created time.Time) copyState {
	if cluster == own {
		if s.export == nil || s.export.DeletionTimestamp != nil || meta.IsStatusConditionPresentAndEqual(
			s.export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid), metav1.ConditionFalse) {
			return ended
		}
		ready := meta.FindStatusCondition(s.export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
		if ready != nil && ready.Reason == string(mcsv1beta1.ServiceExportReasonFailed) {
			return frozen // serviceexport cannot write it: a quota, or a policy
		}
		return pending
	}
	onHub := s.onHub[cluster]
	switch {
	case s.excluded || onHub != nil && onHub.Spec.Withdrawn: // record makes no copy for an excluded namespace
		return ended
	case onHub != nil && isValid(onHub):
		return pending
	case onHub == nil && created.Before(s.departed[cluster]):
		return ended
	}
	return frozen
}

// addStandIns lets the import speak for frozen clusters that contributed to it. A frozen cluster that is not in it
// yet has no share.
func (e *exporters) addStandIns(s *snapshot) {
	if s.imp == nil || !kube.Owned(s.imp) {
		return
	}
	for _, cluster := range slices.Sorted(maps.Keys(e.frozen)) {
		inStatus := slices.ContainsFunc(
			s.imp.Status.Clusters, func(c mcsv1beta1.ClusterStatus) bool { return c.Cluster == cluster },
		)
		inSlices := slices.ContainsFunc(
			s.imported, func(e *discoveryv1.EndpointSlice) bool { return sourceCluster(e) == cluster },
		)
		if standIn, ok := imports.StandIn(s.imp, cluster, e.exports); ok && (inStatus || inSlices) {
			e.standIns = append(e.standIns, standIn)
		}
	}
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
	onHub, copied := s.onHub[cluster], s.copyOf(cluster)
	return onHub != nil && copied != nil && onHub.Spec.Revision < copied.Spec.Revision
}

// foundSources are the slices that the exporting clusters publish.
type foundSources struct {
	sources  []*endpoints.Source
	held     bool // some stay as they were imported: their record is missing, older than before, or invalid
	findings []finding
	refused  map[string]string // by cluster: which of its endpoints this cluster refuses, and what to do
}

// sources returns this cluster's own slices and those that the hub shows of other clusters.
func (r *reconciler) sources(
	s *snapshot, e *exporters, imp *mcsv1beta1.ServiceImport, m *conflict.Merged,
) (out foundSources) {
	out.refused = map[string]string{}
	if m.Names[r.Cluster] != nil {
		out.sources = s.nativeSources(r.Cluster)
	}
	imported := map[string]*discoveryv1.EndpointSlice{} // by record
	for _, slice := range e.managed {
		if cluster := sourceCluster(slice); cluster != r.Cluster && m.Names[cluster] != nil {
			imported[slice.Annotations[endpoints.AnnotationRecord]] = slice
		}
	}
	for _, rec := range s.records {
		slice := imported[rec.Name]
		delete(imported, rec.Name)
		if m.Names[rec.Spec.ClusterID] != nil {
			r.addRecord(&out, rec, slice, s.isReverted(rec.Spec.ClusterID), imp)
		}
	}
	for _, record := range slices.Sorted(maps.Keys(imported)) { // sorted, so that a seed of the simulation replays
		slice := imported[record]
		src, err := endpoints.Restore(slice)
		if by := s.statedBy(sourceCluster(slice)); by == nil || err == nil && src.Revision >= by.Spec.Revision {
			r.hold(&out, slice)
		}
	}
	return out
}

// addRecord adds the source for one record on the hub. slice is what was imported of it, or nil.
func (r *reconciler) addRecord(
	out *foundSources, rec *hubv1alpha1.EndpointRecord, slice *discoveryv1.EndpointSlice, reverted bool,
	imp *mcsv1beta1.ServiceImport,
) {
	var previous endpoints.Source
	if slice != nil {
		if src, err := endpoints.Restore(slice); err == nil {
			previous = src
		}
	}
	created := rec.CreationTimestamp.Unix()
	switch {
	case slice != nil && previous.NewerThan(created, rec.Spec.Revision):
		r.hold(out, slice)
		return
	case slice == nil && reverted:
		out.held = true // the owner is about to publish its latest version again
		return
	}
	spec, refused, err := clusterset.ParseEndpoints(rec, r.Reserved)
	if err != nil {
		out.findings = append(out.findings, finding{imp, "RecordRefused", fmt.Sprintf(
			"Importing endpoints of cluster %s failed: %v.", rec.Spec.ClusterID, err)})
		out.refused[rec.Spec.ClusterID] = fmt.Sprintf("importing endpoints of cluster %s failed: %v; use the same "+
			"version of clusterset-controller in both clusters", rec.Spec.ClusterID, err)
		if slice != nil {
			r.hold(out, slice)
		}
		return
	}
	if len(refused) > 0 {
		out.refused[rec.Spec.ClusterID] = fmt.Sprintf("this cluster refuses addresses of cluster %s: %s; change them "+
			"there, or --reserved-cidrs of this cluster's agent if the message names it",
			rec.Spec.ClusterID, strings.Join(refused[:min(len(refused), 5)], ", "))
	}
	if len(refused) > 0 && (previous.Created != created || previous.Revision != spec.Revision) {
		out.findings = append(out.findings, finding{imp, "EndpointsRefused", fmt.Sprintf(
			"Cluster %s publishes addresses that no other cluster may claim: %s. Its other endpoints are imported.",
			rec.Spec.ClusterID, strings.Join(refused[:min(len(refused), 5)], "; "))})
	}
	out.sources = append(out.sources, &endpoints.Source{Record: rec.Name, Created: created, EndpointRecordSpec: spec})
}

// hold adds the source of an imported slice as it is, without addresses that no other cluster may claim (S4):
// --reserved-cidrs may be newer than the slice.
func (r *reconciler) hold(out *foundSources, slice *discoveryv1.EndpointSlice) {
	out.held = true
	src, err := endpoints.Restore(slice)
	if err != nil {
		return
	}
	src.Native = slices.DeleteFunc(slices.Clone(src.Native), func(e discoveryv1.Endpoint) bool {
		return slices.ContainsFunc(e.Addresses, func(a string) bool { return !clusterset.Claimable(a, r.Reserved) })
	})
	out.sources = append(out.sources, &src)
}

// nativeSources returns the slices of this cluster's own Service.
func (s *snapshot) nativeSources(own string) (out []*endpoints.Source) {
	for _, slice := range s.native {
		if src := s.nativeSource(own, slice); src != nil {
			out = append(out, src)
		}
	}
	return out
}

// nativeSource returns a slice of this cluster's own Service, or nil if it is of no use to other clusters.
func (s *snapshot) nativeSource(own string, slice *discoveryv1.EndpointSlice) *endpoints.Source {
	spec, _, ok := clusterset.EndpointsOf(own, s.name.Name, nil, slice)
	if !ok {
		return nil
	}
	spec.Revision = slice.Generation
	native := append([]discoveryv1.Endpoint{}, slice.Endpoints...)
	for i, e := range native {
		native[i].Addresses = []string{clusterset.Canonical(e.Addresses[0])} // as in other clusters
	}
	record := clusterset.EndpointRecordName(string(slice.UID), own)
	return &endpoints.Source{Record: record, EndpointRecordSpec: spec, Native: native}
}
