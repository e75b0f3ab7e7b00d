package serviceimport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// settled is the result of a complete pass over a name, with the versions of the objects that it read. While nothing
// but endpoints changes, the next passes look only at the endpoints that have changed. So a change of an endpoint costs
// little more than the lists of the name's records and slices.
type settled struct {
	want      *endpoints.Import
	families  []corev1.IPFamily   // of want, those that this cluster supports
	again     time.Duration       // when to look at the name again; 0: never
	basis     map[string]version  // of all objects but endpoints
	hub       map[string]version  // of records and pages of other clusters, by name
	slices    map[string]versions // by source
	projected int                 // how many projections there were
}

// versions are those of one published slice and of what was made of it.
type versions struct{ published, imported, traffic, gateway version }

// publishedSlice is one slice of one source cluster: a group on the hub, or an EndpointSlice of this cluster.
type publishedSlice struct {
	from     client.Object // the record, page or EndpointSlice
	source   string
	cluster  string
	group    published                  // of another cluster
	imported *discoveryv1.EndpointSlice // nil if there is none yet
}

// versionsOf returns the versions of what was published, of the slice imported from it, and of its projections.
func (s *snapshot) versionsOf(published version, imported *discoveryv1.EndpointSlice) versions {
	if s.projections == nil {
		s.projections = make(map[string]versions, len(s.projected))
		for name, p := range s.projected {
			source := p.Annotations[endpoints.AnnotationSource]
			v := s.projections[source]
			if endpoints.IsGateway(name) {
				v.gateway = versionOfSlice(p)
			} else {
				v.traffic = versionOfSlice(p)
			}
			s.projections[source] = v
		}
	}
	v := s.projections[imported.Annotations[endpoints.AnnotationSource]]
	v.published, v.imported = published, versionOfSlice(imported)
	return v
}

// version tells two states of an object apart. The revision of a record follows its owner's clock, so that a restored
// hub does not show the same one twice.
type version struct {
	uid             types.UID
	resourceVersion string
	revision        int64
}

func versionOfSlice(s *discoveryv1.EndpointSlice) version {
	return version{s.UID, s.ResourceVersion, 0}
}

func versionOf(o client.Object) version {
	return version{o.GetUID(), o.GetResourceVersion(), kube.Origin(o).Revision}
}

// basis returns the versions of all objects that a decision about the name comes from, without endpoints. ok is false
// if the name needs more than a look at endpoints, as while a copy is to be written again.
func (s *snapshot) basis() (out map[string]version, ok bool) {
	if !s.hub || s.excluded || s.importsOff || s.imp == nil || len(s.strays)+len(s.orphans)+len(s.unwritten) > 0 {
		return nil, false
	}
	out = make(map[string]version, len(s.copies)+4)
	for _, c := range s.copies {
		if c.Spec.Withdrawn || meta.IsStatusConditionTrue(c.Status.Conditions, hubv1alpha1.ConditionHeld) ||
			meta.FindStatusCondition(c.Status.Conditions, hubv1alpha1.ConditionEndpointsImported) != nil {
			return nil, false
		}
		out[c.Name] = versionOf(c)
	}
	out["/import"] = versionOf(s.imp)                                                  // no record's name has a slash
	out["/properties"] = version{resourceVersion: fmt.Sprintf("%q", s.own.Properties)} // of this cluster
	if s.export != nil {
		out["/export"] = versionOf(s.export)
	}
	if s.svc != nil {
		out["/derived"] = versionOf(s.svc)
	}
	if s.service != nil {
		out["/service"] = versionOf(s.service)
	}
	return out, true
}

// publishedSlices returns the slices of those clusters among these that export, with what is imported of them. ok is
// false unless both have the same number, and no slice is imported twice.
func (s *snapshot) publishedSlices(want *endpoints.Import, clusters []string) (out []publishedSlice, ok bool) {
	own, all := s.own.Cluster, 0
	imported := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range s.imported {
		if slices.Contains(clusters, sourceCluster(slice)) {
			imported[slice.Annotations[endpoints.AnnotationSource]] = slice
			all++
		}
	}
	for _, cluster := range clusters {
		rec := s.published.Records[cluster]
		switch {
		case want.Merged.Names[cluster] == nil || cluster == own:
			continue
		case rec == nil:
			return nil, false
		}
		stated, shown := s.groupsOf(rec)
		if !shown {
			return nil, false
		}
		for i, p := range stated {
			from := client.Object(rec)
			if rec.Spec.Pages > 0 {
				from = s.published.Page(rec, int32(i))
			}
			out = append(out, publishedSlice{from, p.source, cluster, p, imported[p.source]})
		}
	}
	if want.Merged.Names[own] != nil && slices.Contains(clusters, own) {
		for _, slice := range s.native {
			if src := s.nativeSource(own, slice); src != nil {
				out = append(out, publishedSlice{slice, src.Name, own, published{}, imported[src.Name]})
			}
		}
	}
	return out, len(out) == all && len(out) == len(imported)
}

// onHub returns all records and pages of other clusters.
func (s *snapshot) onHub(do func(cluster, name string, o client.Object)) {
	for cluster, rec := range s.published.Records {
		if cluster != s.own.Cluster {
			do(cluster, rec.Name, rec)
		}
	}
	for name, page := range s.published.Pages {
		if page.Spec.ClusterID != s.own.Cluster {
			do(page.Spec.ClusterID, name, page)
		}
	}
}

// changedSince returns this cluster, and those with a change on the hub or in an imported slice. ok is
// false if a record differs in more than its endpoints, so that its copy has to follow.
func (s *snapshot) changedSince(was *settled) (clusters []string, ok bool) {
	clusters, ok = []string{s.own.Cluster}, true
	note := func(cluster string) {
		if !slices.Contains(clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	}
	there := 0
	s.onHub(func(cluster, name string, o client.Object) {
		there++
		last, known := was.hub[name]
		rec, isRecord := o.(*hubv1alpha1.ServiceExportRecord)
		switch {
		case last == versionOf(o):
			return
		case isRecord:
			copied := s.copyOf(cluster)
			ok = ok && known && copied != nil && last.uid == rec.UID && !clusterset.IsOlder(rec, copied) &&
				clusterset.SameFacts(&rec.Spec, &copied.Spec)
		}
		note(cluster)
	})
	for _, slice := range s.imported {
		last := was.slices[slice.Annotations[endpoints.AnnotationSource]]
		if s.versionsOf(last.published, slice) != last {
			note(sourceCluster(slice))
		}
	}
	return clusters, ok && there == len(was.hub)
}

// settle remembers the decision of a pass that met no error, and adds the versions that it read: what it wrote has
// others, and is looked at again.
func (m *memory) settle(s *snapshot, is *settled, now time.Time) {
	var ok bool
	if is.basis, ok = s.basis(); !ok || s.anyExpired(is.want) || !endpoints.Independent(is.want.Merged, s.own) ||
		m.isUnknown(is.want.Merged.TrafficDistribution, now) {
		return
	}
	all, ok := s.publishedSlices(is.want, is.want.Merged.Clusters)
	if !ok || len(all) != len(s.imported) {
		return
	}
	is.hub = map[string]version{}
	s.onHub(func(_, name string, o client.Object) { is.hub[name] = versionOf(o) })
	is.slices, is.projected = make(map[string]versions, len(all)), len(s.projected)
	for i := range all {
		if all[i].imported == nil {
			return
		}
		is.slices[all[i].source] = s.versionsOf(versionOf(all[i].from), all[i].imported)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settled[s.name] = is
}

// anyExpired reports whether a cluster has expired that exports the name.
func (s *snapshot) anyExpired(want *endpoints.Import) bool {
	for cluster := range s.expired {
		if want.Merged.Names[cluster] != nil {
			return true
		}
	}
	return false
}

// followEndpoints imports the endpoints that have changed since the name was settled, and returns when to look at the
// name again. done is false if it needs a whole pass.
func (r *reconciler) followEndpoints(ctx context.Context, s *snapshot) (again time.Duration, done bool, err error) {
	r.mu.Lock()
	was := r.settled[s.name]
	delete(r.settled, s.name)
	r.mu.Unlock()
	if was == nil {
		return 0, false, nil
	}
	supported, err := r.Families(ctx)
	families := derived.Families(was.want.Merged.Families, supported)
	if err != nil || !slices.Equal(families, was.families) || s.anyExpired(was.want) {
		return 0, false, nil // a whole pass reports the error, or handles the change
	}
	if basis, ok := s.basis(); !ok || !maps.Equal(basis, was.basis) || len(s.imported) != len(was.slices) ||
		len(s.projected) != was.projected {
		return 0, false, nil
	}
	clusters, ok := s.changedSince(was)
	if !ok {
		return 0, false, nil
	}
	all, ok := s.publishedSlices(was.want, clusters)
	if !ok {
		return 0, false, nil
	}
	var changed []publishedSlice
	for i := range all {
		p := &all[i]
		last, known := was.slices[p.source]
		if !known || p.imported == nil {
			return 0, false, nil
		}
		if s.versionsOf(versionOf(p.from), p.imported) != last {
			changed = append(changed, *p)
		}
	}
	if len(changed) > 0 {
		if done, err = r.importChanged(ctx, s, was.want, changed); !done || err != nil {
			return 0, done, err
		}
		for i := range changed {
			was.slices[changed[i].source] = s.versionsOf(versionOf(changed[i].from), changed[i].imported)
		}
	}
	s.onHub(func(_, name string, o client.Object) { was.hub[name] = versionOf(o) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled[s.name] = was
	return was.again, true, nil
}

// importChanged writes the imported slices of what has changed, in the order of a whole pass: removals last.
func (r *reconciler) importChanged(
	ctx context.Context, s *snapshot, want *endpoints.Import, changed []publishedSlice,
) (done bool, err error) {
	plan, found := &slicePlan{name: s.name}, noSources()
	for i := range changed {
		p := &changed[i]
		if _, err := endpoints.Restore(p.imported); err != nil || !kube.Writable(p.imported) {
			return false, nil
		}
		if native, ok := p.from.(*discoveryv1.EndpointSlice); ok {
			found.sources = append(found.sources, s.nativeSource(r.Cluster, native))
		} else if refused, err := r.addGroup(&found, p.cluster, p.group, p.imported, s.imp); err != nil ||
			len(refused) > 0 {
			return false, nil // a whole pass reports it
		}
		plan.imported.existing = append(plan.imported.existing, p.imported)
		traffic, gateway := endpoints.ProjectionNames(p.imported.Name)
		for _, name := range []string{traffic, gateway} {
			if there := s.projected[name]; there != nil {
				plan.projected.existing = append(plan.projected.existing, there)
			}
		}
	}
	if len(found.held) > 0 || len(found.sources) != len(changed) {
		return false, nil
	}
	r.desire(plan, found.sources, want)
	err = r.addSlices(ctx, plan)
	if err == nil {
		err = r.removeSlices(ctx, plan, false)
	}
	return true, err
}
