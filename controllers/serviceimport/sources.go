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

// foundSources are the endpoints of the exporting clusters: those that the hub shows, and those that are held.
type foundSources struct {
	sources  []*endpoints.Source
	held     map[string]bool // clusters with slices that stay as they were imported
	findings []finding
	lost     map[string]metav1.Condition // EndpointsImported of clusters whose endpoints are not all imported
}

func noSources() foundSources {
	return foundSources{held: map[string]bool{}, lost: map[string]metav1.Condition{}}
}

// lose notes why endpoints of a cluster are not imported, and what to do. Of several causes, the first is the reason.
// SliceRefused stands alone: reportLost keeps its first text.
func (f *foundSources) lose(cluster, reason, message string, args ...any) {
	c := metav1.Condition{Type: hubv1alpha1.ConditionEndpointsImported, Status: metav1.ConditionFalse,
		Reason: reason, Message: fmt.Sprintf(message, args...)}
	if first, also := f.lost[cluster]; also && reason != hubv1alpha1.ReasonSliceRefused {
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

// sources returns this cluster's own slices, the endpoints that the hub shows of other clusters, and what is held of
// clusters that the hub does not show completely.
func (r Config) sources(
	s *snapshot, e *exporters, imp *mcsv1beta1.ServiceImport, m *conflict.Merged,
) (out foundSources) {
	out = noSources()
	managed := map[string][]*discoveryv1.EndpointSlice{} // e.managed by cluster
	for _, slice := range e.managed {
		cluster := sourceCluster(slice)
		managed[cluster] = append(managed[cluster], slice)
	}
	for _, cluster := range m.Clusters { // sorted, so that a seed of the simulation replays
		switch {
		case m.Names[cluster] == nil: // frozen: its slices stay, and are not in e.managed
		case cluster == r.Cluster:
			for _, slice := range s.native {
				if src := s.nativeSource(r.Cluster, slice); src != nil {
					out.sources = append(out.sources, src)
				}
			}
		default:
			r.addCluster(&out, s, cluster, managed[cluster], imp)
		}
	}
	return out
}

// addCluster adds the sources of another cluster. managed are its imported slices. If the hub shows all endpoints of
// the cluster, those that its record does not state go. Else none go.
func (r Config) addCluster(
	out *foundSources, s *snapshot, cluster string, managed []*discoveryv1.EndpointSlice,
	imp *mcsv1beta1.ServiceImport,
) {
	slices.SortFunc(managed, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	rec, latest := s.published.Records[cluster], latestOf(managed)
	shows, stated := s.compare(cluster, managed, latest)
	switch {
	case shows == recordUnusable: // copyRecords reports it
	case shows != complete:
		out.lose(cluster, hubv1alpha1.ReasonEndpointsMissing, "the hub does not show all endpoints that cluster %s "+
			"published, or older ones: what was imported stays, and new ones wait; see there: kubectl clusterset "+
			"explain %s.%s", cluster, s.name.Name, s.name.Namespace)
	}
	var refused []string // addresses
	var invalid error    // of the first group that is invalid
	isStated := map[string]bool{}
	for _, p := range stated {
		isStated[p.source] = true
		if slice := latest[p.source]; shows == complete || slice == nil { // else some may have moved to a missing page
			addresses, err := r.addGroup(out, cluster, p, slice, imp)
			refused, invalid = append(refused, addresses...), cmp.Or(invalid, err)
		}
	}
	for _, slice := range managed { // one that is newer than the record may be of a page that a later record counts
		if shows != complete || !isStated[slice.Annotations[endpoints.AnnotationSource]] &&
			newerThan(slice, rec.CreationTimestamp.Unix(), rec.Spec.Revision) {
			refused = append(refused, r.addHeld(out, cluster, slice)...)
		}
	}
	if shows != complete {
		out.held[cluster] = true // also if it has no slice yet
	}
	if invalid != nil {
		was := meta.FindStatusCondition(s.copyOf(cluster).Status.Conditions, hubv1alpha1.ConditionEndpointsImported)
		if was == nil || !strings.Contains(was.Message, invalid.Error()) { // else an earlier pass has reported it
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
	if shows == complete && rec.Spec.Incomplete { // the last cause, because its exporter, too, says so
		out.lose(cluster, hubv1alpha1.ReasonRefusedByHub, "the hub does not take all endpoints of cluster %s; see "+
			"there: kubectl clusterset explain %s.%s", cluster, s.name.Name, s.name.Namespace)
	}
}

// shown is how much the hub shows of a cluster's endpoints.
type shown int

const (
	recordUnusable shown = iota // no record, or one that is withdrawn, older than its copy, or invalid: all is held
	older                       // older endpoints than imported ones, as after a restore: all is held
	pagesMissing                // what is imported is held, and only groups that were never imported are added
	complete
)

// compare returns how much the hub shows of a cluster's endpoints. stated are the groups to import: none of an unusable
// record, and none of older endpoints, because a group that was never imported may have gone since.
func (s *snapshot) compare(
	cluster string, managed []*discoveryv1.EndpointSlice, latest map[string]*discoveryv1.EndpointSlice,
) (_ shown, stated []published) {
	rec := s.published.Records[cluster]
	if rec == nil || rec.Spec.Withdrawn || clusterset.IsOlder(rec, s.copyOf(cluster)) {
		return recordUnusable, nil
	}
	if _, err := clusterset.ParseExport(rec); err != nil {
		return recordUnusable, nil
	}
	for _, slice := range managed { // without pages, each has the revision of its record
		if rec.Spec.Pages == 0 && newerThan(slice, rec.CreationTimestamp.Unix(), rec.Spec.Revision) {
			return older, nil
		}
	}
	stated, all := s.groupsOf(rec)
	for _, p := range stated {
		if newerThan(latest[p.source], p.created, p.revision) {
			return older, nil
		}
	}
	if !all {
		return pagesMissing, stated
	}
	return complete, stated
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
	if newerThan(slice, p.created, p.revision) {
		return r.addHeld(out, cluster, slice), nil
	}
	group, refused, err := clusterset.ParseGroup(p.group, r.Reserved)
	if err != nil {
		if slice != nil {
			refused = r.addHeld(out, cluster, slice)
		}
		return refused, err
	}
	if len(refused) > 0 && (slice == nil ||
		slice.Annotations[endpoints.AnnotationRevision] != endpoints.Revision(p.created, p.revision)) {
		out.findings = append(out.findings, finding{imp, hubv1alpha1.ReasonEndpointsRefused, fmt.Sprintf(
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
		return nil // edited: isUnreadable lets it go only if the hub shows all endpoints
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

// nativeSource returns the source of a slice of this cluster's own Service, or nil if other clusters cannot use it.
func (s *snapshot) nativeSource(own string, slice *discoveryv1.EndpointSlice) *endpoints.Source {
	name := endpoints.NativeName(slice.UID, own)
	var lastPorts []hubv1alpha1.EndpointPort
	for _, imported := range s.imported {
		if imported.Annotations[endpoints.AnnotationSource] == name {
			if src, err := endpoints.Restore(imported); err == nil {
				lastPorts = src.Ports
			}
		}
	}
	group, _, ok := clusterset.GroupOf(s.servicePorts(), lastPorts, slice)
	if !ok {
		return nil
	}
	native := make([]discoveryv1.Endpoint, 0, len(slice.Endpoints))
	for _, e := range slice.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		e.Addresses = []string{clusterset.Canonical(e.Addresses[0])} // as in other clusters
		if clusterset.Claimable(e.Addresses[0], nil) {               // --reserved-cidrs are this cluster's own
			native = append(native, e)
		}
	}
	return &endpoints.Source{
		Name: name, ClusterID: own, Revision: slice.Generation, EndpointGroup: group, Native: native,
	}
}

// servicePorts returns the ports of this cluster's own Service as its copy has them. Those that the Service has renamed
// since are there under both names, because its slices have either.
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
		sameName := func(c hubv1alpha1.ServicePort) bool { return c.Name == p.Name }
		sameNumber := func(c hubv1alpha1.ServicePort) bool { return c.Protocol == p.Protocol && c.Port == p.Port }
		if slices.ContainsFunc(copied.Spec.Ports, sameNumber) && !slices.ContainsFunc(copied.Spec.Ports, sameName) {
			out = append(out, p)
		}
	}
	return out
}
