package serviceimport

import (
	"context"
	"errors"
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
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// settled is the result of a complete pass over a name, with the versions of the objects that it read. While nothing
// but endpoints changes, the next passes look only at the endpoints that have changed. So a change of an endpoint costs
// little, however many clusters export the name.
type settled struct {
	want     *endpoints.Import
	families []corev1.IPFamily     // of want, those that this cluster supports
	again    time.Duration         // when to look at the name again; 0: never
	basis    map[string]version    // of all objects but endpoints
	slices   map[string][2]version // by record: of what was published and of what was imported
}

// publishedSlice is one slice of one source cluster: an EndpointRecord, or an EndpointSlice of this cluster.
type publishedSlice struct {
	client.Object
	record   string
	imported *discoveryv1.EndpointSlice // nil if there is none yet
}

func (p *publishedSlice) versions() [2]version {
	return [2]version{versionOf(p.Object), versionOf(p.imported)}
}

// version tells two states of an object apart. The revision of a record follows its owner's clock, so that a restored
// hub does not show the same one twice.
type version struct {
	uid             types.UID
	resourceVersion string
	revision        int64
}

func versionOf(o client.Object) version {
	v := version{uid: o.GetUID(), resourceVersion: o.GetResourceVersion()}
	if rec, ok := o.(*hubv1alpha1.EndpointRecord); ok {
		v.revision = rec.Spec.Revision
	}
	return v
}

// basis returns the versions of all objects that a decision about the name comes from, without endpoints. ok is false
// if the name needs more than a look at endpoints.
func (s *snapshot) basis() (out map[string]version, ok bool) {
	if !s.hub || s.excluded || s.refuses || s.imp == nil || len(s.strays)+len(s.given) > 0 {
		return nil, false
	}
	out = make(map[string]version, len(s.copies)+4)
	for i := range s.copies {
		if c := &s.copies[i]; c.Spec.Withdrawn || meta.FindStatusCondition(
			c.Status.Conditions, hubv1alpha1.ConditionEndpointsImported) != nil {
			return nil, false
		}
		out[s.copies[i].Name] = versionOf(&s.copies[i])
	}
	out["/import"] = versionOf(s.imp)                                                  // no record's name has a slash
	out["/properties"] = version{resourceVersion: fmt.Sprintf("%q", s.own.Properties)} // of this cluster
	if s.export != nil {
		out["/export"] = versionOf(s.export)
	}
	if s.svc != nil {
		out["/service"] = versionOf(s.svc)
	}
	return out, true
}

// published returns the slices of the clusters that export, with what is imported of them. ok is false unless both have
// the same number, and no slice is imported twice.
func (s *snapshot) published(want *endpoints.Import) (out []publishedSlice, ok bool) {
	own := s.own.Cluster
	imported := make(map[string]*discoveryv1.EndpointSlice, len(s.imported))
	for _, slice := range s.imported {
		imported[slice.Annotations[endpoints.AnnotationRecord]] = slice
	}
	out = make([]publishedSlice, 0, len(s.records)+len(s.native))
	for _, rec := range s.records {
		if want.Merged.Names[rec.Spec.ClusterID] != nil {
			out = append(out, publishedSlice{rec, rec.Name, imported[rec.Name]})
		}
	}
	if want.Merged.Names[own] != nil {
		for _, slice := range s.native {
			if src := s.nativeSource(own, slice); src != nil {
				out = append(out, publishedSlice{slice, src.Record, imported[src.Record]})
			}
		}
	}
	return out, len(out) == len(s.imported) && len(out) == len(imported)
}

// settle remembers the decision of a pass that met no error, and adds the versions that it read: what it wrote has
// others, and is looked at again.
func (m *memory) settle(s *snapshot, is *settled, now time.Time) {
	var ok bool
	if is.basis, ok = s.basis(); !ok || s.anyExpired(is.want) || !endpoints.Independent(is.want.Merged, s.own) ||
		m.isUnknown(is.want.Merged.TrafficDistribution, now) {
		return
	}
	all, ok := s.published(is.want)
	if !ok {
		return
	}
	is.slices = make(map[string][2]version, len(all))
	for i := range all {
		if all[i].imported == nil {
			return
		}
		is.slices[all[i].record] = all[i].versions()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.settled == nil {
		m.settled = map[types.NamespacedName]*settled{}
	}
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
	if basis, ok := s.basis(); !ok || !maps.Equal(basis, was.basis) {
		return 0, false, nil
	}
	all, ok := s.published(was.want)
	if !ok {
		return 0, false, nil
	}
	var changed []publishedSlice
	for i := range all {
		p := &all[i]
		last, known := was.slices[p.record]
		if !known || p.imported == nil {
			return 0, false, nil
		}
		if p.versions() != last {
			changed = append(changed, *p)
		}
	}
	if len(changed) > 0 {
		if done, err = r.follow(ctx, s, was.want, changed); !done || err != nil {
			return 0, done, err
		}
		for i := range changed {
			was.slices[changed[i].record] = changed[i].versions()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled[s.name] = was
	return was.again, true, nil
}

// follow writes the imported slices of what has changed, in the order of a whole pass: removals last.
func (r *reconciler) follow(
	ctx context.Context, s *snapshot, want *endpoints.Import, changed []publishedSlice,
) (done bool, err error) {
	plan, found := &slicePlan{}, foundSources{refused: map[string]string{}}
	for i := range changed {
		p := &changed[i]
		if _, err := endpoints.Restore(p.imported); err != nil || !kube.Writable(p.imported) {
			return false, nil
		}
		switch o := p.Object.(type) {
		case *hubv1alpha1.EndpointRecord:
			r.addRecord(&found, o, p.imported, false, s.imp)
		case *discoveryv1.EndpointSlice:
			found.sources = append(found.sources, s.nativeSource(r.Cluster, o))
		}
		plan.existing = append(plan.existing, p.imported)
	}
	if found.held || len(found.refused) > 0 || len(found.sources) != len(changed) {
		return false, nil
	}
	r.report(found.findings)
	for _, src := range found.sources {
		plan.desired = append(plan.desired, endpoints.Desired(src, want))
	}
	err = r.addSlices(ctx, plan)
	if err == nil {
		err = r.removeSlices(ctx, plan)
	}
	return true, errors.Join(err, plan.invalid)
}
