package serviceimport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
)

// foundSources are the endpoints that the exporting clusters publish.
type foundSources struct {
	sources []*endpoints.Source
	// held are the clusters with some that stay as they were imported: what the hub shows is incomplete, older than
	// before, or invalid.
	held     map[string]bool
	findings []finding
	lost     map[string]metav1.Condition // EndpointsImported of clusters whose endpoints are not all imported
}

func noSources() foundSources {
	return foundSources{held: map[string]bool{}, lost: map[string]metav1.Condition{}}
}

// lose notes why endpoints of a cluster are not imported, and what to do. Of several causes, the first is the reason.
func (f *foundSources) lose(cluster, reason, message string, args ...any) {
	c := metav1.Condition{Type: hubv1alpha1.ConditionEndpointsImported, Status: metav1.ConditionFalse,
		Reason: reason, Message: fmt.Sprintf(message, args...)}
	if first, also := f.lost[cluster]; also && reason != hubv1alpha1.ReasonSliceRefused { // of which no text is final
		c.Reason, c.Message = first.Reason, first.Message+"; "+c.Message
	}
	f.lost[cluster] = c
}

// published is one group of endpoints on the hub.
type published struct {
	source            string // endpoints.SourceName
	created, revision int64  // of the record or page
	group             *hubv1alpha1.EndpointGroup
}

// sources returns this cluster's own slices and the endpoints that the hub shows of other clusters.
func (r Config) sources(
	s *snapshot, e *exporters, imp *mcsv1beta1.ServiceImport, m *conflict.Merged,
) (out foundSources) {
	out = noSources()
	imported := map[string][]*discoveryv1.EndpointSlice{} // by cluster
	for _, slice := range e.managed {
		cluster := sourceCluster(slice)
		imported[cluster] = append(imported[cluster], slice)
	}
	for _, cluster := range m.Clusters { // sorted, so that a seed of the simulation replays
		switch {
		case m.Names[cluster] == nil: // an import stands in for it
		case cluster == r.Cluster:
			for _, slice := range s.native {
				if src := s.nativeSource(r.Cluster, slice); src != nil {
					out.sources = append(out.sources, src)
				}
			}
		default:
			r.addCluster(&out, s, cluster, imported[cluster], imp)
		}
	}
	return out
}

// addCluster adds the sources of one other cluster. imported is what was imported of it. What its record does not state
// has gone. While the hub does not show all that it states, nothing goes.
func (r Config) addCluster(
	out *foundSources, s *snapshot, cluster string, imported []*discoveryv1.EndpointSlice,
	imp *mcsv1beta1.ServiceImport,
) {
	slices.SortFunc(imported, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	rec := s.published.Records[cluster]
	newerThanRecord := func(slice *discoveryv1.EndpointSlice) bool {
		return newerThan(slice, rec.CreationTimestamp.Unix(), rec.Spec.Revision)
	}
	recordHeld := rec == nil || rec.Spec.Withdrawn || clusterset.IsOlder(rec, s.copyOf(cluster))
	if !recordHeld {
		_, err := clusterset.ParseExport(rec)
		recordHeld = err != nil
	}
	holds := recordHeld || rec.Spec.Pages == 0 && slices.ContainsFunc(imported, newerThanRecord)
	latest, isStated := latestOf(imported), map[string]bool{}
	var stated []published // none while the owner is about to publish its latest version again
	var all, restored bool
	if !holds {
		stated, all = s.groupsOf(rec)
		restored = slices.ContainsFunc(stated, func(p published) bool {
			return newerThan(latest[p.source], p.created, p.revision)
		})
		holds = !all || restored // endpoints may move to a page that is to come
	}
	switch {
	case recordHeld: // copyRecords reports it
	case holds:
		out.lose(cluster, hubv1alpha1.ReasonEndpointsMissing, "the hub does not show all endpoints that cluster %s "+
			"published, or older ones: what was imported stays, and new ones wait; see there: kubectl clusterset "+
			"explain %s.%s", cluster, s.name.Name, s.name.Namespace)
	case rec.Spec.Incomplete:
		out.lose(cluster, hubv1alpha1.ReasonRefusedByHub, "the hub does not take all endpoints of cluster %s; see "+
			"there: kubectl clusterset explain %s.%s", cluster, s.name.Name, s.name.Namespace)
	}
	var refused []string // addresses
	var invalid error    // of the first group that is invalid
	for _, p := range stated {
		isStated[p.source] = true
		if slice := latest[p.source]; !holds || slice == nil && !restored { // else it may have gone since
			addresses, err := r.addGroup(out, cluster, p, slice, imp)
			refused, invalid = append(refused, addresses...), cmp.Or(invalid, err)
		}
	}
	for _, slice := range imported {
		if holds || !isStated[slice.Annotations[endpoints.AnnotationSource]] && newerThanRecord(slice) {
			refused = append(refused, r.addHeld(out, cluster, slice)...)
		}
	}
	if holds {
		out.held[cluster] = true
	}
	if invalid != nil {
		if !s.reports(cluster, invalid) {
			out.findings = append(out.findings, finding{imp, "RecordRefused", fmt.Sprintf(
				"Importing endpoints of cluster %s failed: %v.", cluster, invalid)})
		}
		out.lose(cluster, hubv1alpha1.ReasonEndpointsRefused, "importing endpoints of cluster %s failed: %v; use the "+
			"same version of clusterset-controller in both clusters", cluster, invalid)
	}
	if len(refused) > 0 {
		out.lose(cluster, hubv1alpha1.ReasonEndpointsRefused, "this cluster refuses addresses of cluster %s: %s; "+
			"change them there, or --reserved-cidrs of this cluster's agent if the message names it",
			cluster, strings.Join(refused[:min(len(refused), 5)], ", "))
	}
}

// reports returns whether the condition EndpointsImported of a cluster's copy names an error.
func (s *snapshot) reports(cluster string, err error) bool {
	c := meta.FindStatusCondition(s.copyOf(cluster).Status.Conditions, hubv1alpha1.ConditionEndpointsImported)
	return c != nil && strings.Contains(c.Message, err.Error())
}

// newerThan reports whether an imported slice, if there is one, is newer than a record or page.
func newerThan(slice *discoveryv1.EndpointSlice, created, revision int64) bool {
	if slice == nil {
		return false
	}
	src, err := endpoints.Restore(slice)
	return err == nil && src.NewerThan(created, revision)
}

// latestOf returns imported slices by source. There may be two of a page that has got another family.
func latestOf(imported []*discoveryv1.EndpointSlice) map[string]*discoveryv1.EndpointSlice {
	out := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range imported {
		source := slice.Annotations[endpoints.AnnotationSource]
		if src, err := endpoints.Restore(slice); out[source] == nil ||
			err == nil && !newerThan(out[source], src.Created, src.Revision) {
			out[source] = slice
		}
	}
	return out
}

// groupsOf returns the groups that a record states. all is false if the hub does not show all pages.
func (s *snapshot) groupsOf(rec *hubv1alpha1.ServiceExportRecord) (stated []published, all bool) {
	cluster := rec.Spec.ClusterID
	for i := range rec.Spec.Endpoints {
		if rec.Spec.Pages == 0 {
			stated = append(stated, published{
				endpoints.SourceName(i, cluster), rec.CreationTimestamp.Unix(), rec.Spec.Revision,
				&rec.Spec.Endpoints[i],
			})
		}
	}
	pages, all := s.published.PagesOf(rec)
	for _, page := range pages {
		stated = append(stated, published{
			endpoints.SourceName(int(page.Spec.Number), cluster), page.CreationTimestamp.Unix(), page.Spec.Revision,
			&page.Spec.EndpointGroup,
		})
	}
	return stated, all
}

// addGroup adds the source for one group on the hub. slice is what was imported of it, or nil: it stays if the group is
// invalid. refused names addresses that this cluster refuses.
func (r Config) addGroup(
	out *foundSources, cluster string, p published, slice *discoveryv1.EndpointSlice, imp *mcsv1beta1.ServiceImport,
) (refused []string, invalid error) {
	var previous endpoints.Source
	if slice != nil {
		if src, err := endpoints.Restore(slice); err == nil {
			previous = src
		}
	}
	if slice != nil && previous.NewerThan(p.created, p.revision) {
		return r.addHeld(out, cluster, slice), nil
	}
	group, refused, err := clusterset.ParseGroup(p.group, r.Reserved)
	if err != nil {
		if slice != nil {
			refused = r.addHeld(out, cluster, slice)
		}
		return refused, err
	}
	if len(refused) > 0 && (previous.Created != p.created || previous.Revision != p.revision) {
		out.findings = append(out.findings, finding{imp, "EndpointsRefused", fmt.Sprintf(
			"Cluster %s publishes addresses that no other cluster may claim: %s. Its other endpoints are imported.",
			cluster, strings.Join(refused[:min(len(refused), 5)], "; "))})
	}
	out.sources = append(out.sources, &endpoints.Source{
		Name: p.source, ClusterID: cluster, Created: p.created, Revision: p.revision, EndpointGroup: group,
	})
	return refused, nil
}

// addHeld adds the source of an imported slice as it is, without addresses that no other cluster may claim (S4):
// --reserved-cidrs may be newer than the slice. refused names these.
func (r Config) addHeld(out *foundSources, cluster string, slice *discoveryv1.EndpointSlice) (refused []string) {
	out.held[cluster] = true
	src, err := endpoints.Restore(slice)
	if err != nil {
		return nil
	}
	all := src.Native
	src.Native = []discoveryv1.Endpoint{}
	for _, e := range all {
		i := slices.IndexFunc(e.Addresses, func(a string) bool { return !clusterset.Claimable(a, r.Reserved) })
		if i < 0 {
			src.Native = append(src.Native, e)
		} else {
			refused = append(refused, e.Addresses[i]+", which --reserved-cidrs has by now")
		}
	}
	out.sources = append(out.sources, &src)
	return refused
}

// nativeSource returns a slice of this cluster's own Service, or nil if it is of no use to other clusters.
func (s *snapshot) nativeSource(own string, slice *discoveryv1.EndpointSlice) *endpoints.Source {
	name := endpoints.NativeName(slice.UID, own)
	var was []hubv1alpha1.EndpointPort
	for _, imported := range s.imported {
		if imported.Annotations[endpoints.AnnotationSource] == name {
			if src, err := endpoints.Restore(imported); err == nil {
				was = src.Ports
			}
		}
	}
	group, _, ok := clusterset.GroupOf(s.servicePorts(), was, slice)
	if !ok {
		return nil
	}
	native := make([]discoveryv1.Endpoint, 0, len(slice.Endpoints))
	for _, e := range slice.Endpoints {
		if len(e.Addresses) > 0 {
			e.Addresses = []string{clusterset.Canonical(e.Addresses[0])} // as in other clusters
			native = append(native, e)
		}
	}
	return &endpoints.Source{
		Name: name, ClusterID: own, Revision: slice.Generation, EndpointGroup: group, Native: native,
	}
}

// servicePorts returns the ports of this cluster's own Service as its copy has them. Slices may have new names for some
// that the Service has, and the copy has not yet.
func (s *snapshot) servicePorts() (out []hubv1alpha1.ServicePort) {
	copied := s.copyOf(s.own.Cluster)
	if copied == nil {
		return nil
	}
	out = slices.Clone(copied.Spec.Ports)
	if s.service == nil {
		return out
	}
	for _, p := range clusterset.ServicePorts(s.service) {
		named := slices.ContainsFunc(
			copied.Spec.Ports,
			func(c hubv1alpha1.ServicePort) bool { return c.Name == p.Name },
		)
		there := slices.ContainsFunc(copied.Spec.Ports, func(c hubv1alpha1.ServicePort) bool {
			return c.Protocol == p.Protocol && c.Port == p.Port
		})
		if there && !named {
			out = append(out, p)
		}
	}
	return out
}
