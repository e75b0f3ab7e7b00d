package serviceimport

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
)

// foundSources are the slices that the exporting clusters publish.
type foundSources struct {
	sources  []*endpoints.Source
	held     bool // some stay as they were imported: their record is missing, older than before, or invalid
	findings []finding
}

// sources returns this cluster's own slices and those that the hub shows of other clusters.
func (r *reconciler) sources(
	s *snapshot, e *exporters, imp *mcsv1beta1.ServiceImport, m *conflict.Merged,
) (out foundSources) {
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
	out *foundSources,
	rec *hubv1alpha1.EndpointRecord,
	slice *discoveryv1.EndpointSlice,
	reverted bool,
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
		if slice != nil {
			r.hold(out, slice)
		}
		return
	}
	if len(refused) > 0 && (previous.Created != created || previous.Revision != spec.Revision) {
		out.findings = append(
			out.findings,
			finding{imp, "EndpointsRefused", fmt.Sprintf("Cluster %s publishes addresses that no other "+
				"cluster may claim: %s. Its other endpoints are imported.",
				rec.Spec.ClusterID, strings.Join(refused[:min(len(refused), 5)], "; "))},
		)
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
	spec, ok := clusterset.EndpointsOf(own, s.name.Name, slice)
	if !ok {
		return nil
	}
	spec.Revision = slice.Generation
	native := slice.Endpoints
	if native == nil {
		native = []discoveryv1.Endpoint{}
	}
	record := clusterset.EndpointRecordName(string(slice.UID), own)
	return &endpoints.Source{Record: record, EndpointRecordSpec: spec, Native: native}
}
