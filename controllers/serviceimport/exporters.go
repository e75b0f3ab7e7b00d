package serviceimport

import (
	"fmt"
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
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

// exporters is the decision about which clusters export a name. A cluster is in one of three states:
//   - exporting: its copy is valid;
//   - frozen: its copy is unreadable, or missing although its owner did not end the export. Its share stays as it is;
//   - ended: its owner withdrew the record, departed, or does not export to this cluster (E11).
type exporters struct {
	exports  []clusterset.Export
	frozen   map[string]bool
	standIns []clusterset.Export // the import's content, for frozen clusters that contributed to it
	lost     bool                // a cluster is frozen because its copy is missing

	managed    []*discoveryv1.EndpointSlice // imported slices that this pass may change
	unreadable bool                         // an imported slice was edited and is left alone
	findings   []finding
}

// decideExporters returns which clusters export the name.
func (s *snapshot) decideExporters() exporters {
	own, e := s.own.Cluster, exporters{frozen: map[string]bool{}}
	for _, rec := range s.copies {
		e.addCopy(rec, s)
	}
	withoutCopy := s.importedWithoutCopy()
	for _, cluster := range slices.Sorted(maps.Keys(withoutCopy)) {
		if imported := withoutCopy[cluster]; s.isEnded(cluster, own, &imported) {
			continue
		}
		e.lost, e.frozen[cluster] = true, true
		if s.imp != nil && s.hub && cluster != own {
			e.findings = append(e.findings, finding{s.imp, "RecordLost", fmt.Sprintf(messageLost, cluster)})
		}
	}
	e.addStandIns(s)
	for _, slice := range s.imported {
		cluster := sourceCluster(slice)
		switch {
		case e.frozen[cluster]:
		case cluster != own && e.isExporting(cluster) && s.isUnreadable(slice): // own ones are recreated
			e.unreadable = true
		default:
			e.managed = append(e.managed, slice)
		}
	}
	return e
}

func (e *exporters) addCopy(rec *hubv1alpha1.ServiceExportRecord, s *snapshot) {
	cluster := rec.Spec.ClusterID
	if rec.Spec.Withdrawn {
		if s.unwritten[cluster] { // the copy could not be updated
			e.frozen[cluster] = true
		}
		return
	}
	export, err := clusterset.ParseExport(rec)
	if err != nil {
		e.frozen[cluster] = true
		e.findings = append(e.findings, finding{rec, "RecordUnreadable", fmt.Sprintf(messageUnreadable, err, cluster)})
		return
	}
	if export.GoesTo(s.own) {
		e.exports = append(e.exports, export)
	}
}

// importedWithoutCopy returns the clusters in the import or its slices that have no copy here, each with its youngest
// imported record or page by the hub's clock. Users edit labels, so a slice counts only if its record names the same
// cluster, and the import only if its status is the agent's.
func (s *snapshot) importedWithoutCopy() map[string]endpoints.Source {
	out := map[string]endpoints.Source{}
	if s.imp != nil && kube.Manages(s.imp) {
		for _, c := range s.imp.Status.Clusters {
			out[c.Cluster] = endpoints.Source{}
		}
	}
	for _, slice := range s.imported {
		src, err := endpoints.Restore(slice)
		if err != nil || endpoints.OwnerOf(src.Name) != src.ClusterID {
			continue
		}
		if src.Created >= out[src.ClusterID].Created {
			out[src.ClusterID] = src
		}
	}
	for _, rec := range s.copies {
		delete(out, rec.Spec.ClusterID)
	}
	return out
}

// isEnded returns whether a cluster without a copy has ended its export. A record that is older than what was imported
// does not count: the hub was restored.
func (s *snapshot) isEnded(cluster, own string, imported *endpoints.Source) bool {
	if cluster == own {
		return kube.EndsExport(s.export)
	}
	shown := s.published.Records[cluster]
	older := shown != nil && imported.NewerThan(shown.CreationTimestamp.Unix(), shown.Spec.Revision)
	return s.excluded || !older && s.published.Ended(cluster, time.Unix(imported.Created, 0), s.departed[cluster])
}

// addStandIns lets the import speak for frozen clusters that contributed to it; other frozen ones have no share. The
// spec of a Filled import is another program's, so it speaks for none.
func (e *exporters) addStandIns(s *snapshot) {
	if s.imp == nil || !kube.Owned(s.imp) {
		return
	}
	for _, cluster := range slices.Sorted(maps.Keys(e.frozen)) {
		inStatus := slices.ContainsFunc(
			s.imp.Status.Clusters, func(c mcsv1beta1.ClusterStatus) bool { return c.Cluster == cluster },
		)
		inSlices := slices.ContainsFunc(
			s.imported, func(x *discoveryv1.EndpointSlice) bool { return sourceCluster(x) == cluster },
		)
		if standIn, ok := imports.StandIn(s.imp, cluster, e.exports); ok && (inStatus || inSlices) {
			e.standIns = append(e.standIns, standIn)
		}
	}
}

// shape returns what the slices are made from: the merged exports. While these are Headless and the import names a VIP
// still, as its change may be refused, it is their merge as a ClusterSetIP: the VIP keeps its traffic (C9).
func (e *exporters) shape(merged conflict.Merged, imp *mcsv1beta1.ServiceImport) *conflict.Merged {
	if merged.Type == mcsv1beta1.Headless && len(imp.Spec.IPs) > 0 {
		all := slices.Concat(e.standIns, e.exports)
		for i := range all {
			all[i].Type = mcsv1beta1.ClusterSetIP
		}
		merged, _ = conflict.Merge(all)
	}
	for _, standIn := range e.standIns {
		delete(merged.Names, standIn.Cluster) // its slices stay as they are
	}
	return &merged
}

// projectedOf returns the projections that this pass may change: all but those of unmanaged slices.
func projectedOf(s *snapshot, managed []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	may := maps.Clone(s.projected)
	for _, slice := range s.imported {
		if !slices.Contains(managed, slice) {
			traffic, gateway := endpoints.ProjectionNames(slice.Name)
			delete(may, traffic)
			delete(may, gateway)
		}
	}
	return byName(may)
}

// byName returns the values of a map in the order of their names.
func byName[V any](of map[string]V) (out []V) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out = append(out, of[name])
	}
	return out
}

func (e *exporters) isExporting(cluster string) bool {
	return slices.ContainsFunc(e.exports, func(x clusterset.Export) bool { return x.Cluster == cluster })
}

// isUnreadable returns whether a slice was edited so that its source is unknown. It may be all that is known of these
// endpoints, so it stays until the hub shows all endpoints of its cluster.
func (s *snapshot) isUnreadable(slice *discoveryv1.EndpointSlice) bool {
	if _, err := endpoints.Restore(slice); err == nil {
		return false
	}
	cluster := sourceCluster(slice)
	_, all := s.published.Groups(cluster)
	return !all || clusterset.IsOlder(s.published.Records[cluster], s.copyOf(cluster))
}

func (s *snapshot) copyOf(cluster string) *hubv1alpha1.ServiceExportRecord {
	i := slices.IndexFunc(
		s.copies,
		func(c *hubv1alpha1.ServiceExportRecord) bool { return c.Spec.ClusterID == cluster },
	)
	if i < 0 {
		return nil
	}
	return s.copies[i]
}
