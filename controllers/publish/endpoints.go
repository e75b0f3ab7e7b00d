package publish

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// publishEndpoints writes the EndpointRecords of the slices.
func (r *reconciler) publishEndpoints(ctx context.Context, s *state) (again time.Duration, err error) {
	var errs []error
	for _, e := range s.wanted {
		next, err := r.publishSlice(ctx, s, e.name, e.spec)
		again = sooner(again, next)
		errs = append(errs, err)
	}
	return again, errors.Join(errs...)
}

// deleteEndpoints deletes the EndpointRecords of slices that have gone.
func (r *reconciler) deleteEndpoints(ctx context.Context, s *state) error {
	wanted := map[string]bool{}
	for _, e := range s.wanted {
		wanted[e.name] = true
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.endpoints)) { // a seed of the simulation must replay
		if !wanted[name] {
			log.FromContext(ctx).Info("deleting endpoints", "record", name)
			s.wrote = true
			errs = append(errs, r.deleteRecord(ctx, s.endpoints[name]))
		}
	}
	return errors.Join(errs...)
}

// endpointSpec is the content of an EndpointRecord that must be on the hub.
type endpointSpec struct {
	name string
	spec hubv1alpha1.EndpointRecordSpec
}

func (s *state) endpointNames() (names []string) {
	for _, e := range s.wanted {
		names = append(names, e.name)
	}
	return names
}

// setEndpoints sets the content of the records of the slices, sorted by the slices' names, so that messages list errors
// in a stable order, and what is left out. It does not change the slices, which are the cache's.
func (s *state) setEndpoints(list []discoveryv1.EndpointSlice) {
	o := s.own.Spec.Origin
	for _, slice := range kube.ByName(list) {
		spec, leftOut, ok := clusterset.EndpointsOf(o.ClusterID, o.ServiceName, s.own.Spec.Ports, slice)
		s.leftOut = append(s.leftOut, leftOut...)
		if ok {
			name := clusterset.EndpointRecordName(string(slice.UID), o.ClusterID)
			s.wanted = append(s.wanted, endpointSpec{name, spec})
		}
	}
}

// publishSlice writes one EndpointRecord, if the hub's differs from spec, and returns when to look again.
func (r *reconciler) publishSlice(
	ctx context.Context, s *state, name string, spec hubv1alpha1.EndpointRecordSpec,
) (again time.Duration, err error) {
	published := s.endpoints[name]
	if published == nil {
		if wait := r.recreateIn(name, r.Now()); wait > 0 {
			return wait, nil
		}
		if err := r.deleteOtherService(ctx, s, name, &spec.Origin); err != nil {
			return 0, err
		}
		rec := &hubv1alpha1.EndpointRecord{Spec: spec}
		rec.Namespace, rec.Name = r.HubNamespace, name
		highest, _ := r.highest(name, 0)
		rec.Spec.Revision = clusterset.NextRevision(highest, r.Now())
		return 0, r.write(ctx, s, rec, spec)
	}
	if clusterset.Spent(published.Spec.Revision) {
		return r.recreate(ctx, s, published)
	}
	highest, restored := r.highest(name, published.Spec.Revision)
	if !restored {
		is := published.Spec
		is.Revision, is.LastChangeTriggerTime = 0, spec.LastChangeTriggerTime
		if equality.Semantic.DeepEqual(spec, is) {
			return 0, nil
		}
		if wait := r.alteredByHub(published, spec, r.Now()); wait > 0 {
			return wait, nil
		}
	}
	rec := published.DeepCopy()
	rec.Spec = spec
	rec.Spec.Revision = clusterset.NextRevision(highest, r.Now())
	return 0, r.write(ctx, s, rec, spec)
}

// highest returns the highest revision of an EndpointRecord that the hub has shown or taken, and whether it now shows
// a lower one. A restored hub does, and other members do not follow it, even if its content is right.
func (r *reconciler) highest(name string, shown int64) (highest int64, restored bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.of(name)
	if h.revision == 0 && shown > 0 {
		if before, lost := r.Lease.HubMayHaveLost(); lost {
			h.revision = max(shown+1, before.UnixMilli())
		}
	}
	restored = shown < h.revision
	h.revision = max(h.revision, shown)
	return h.revision, restored
}

// deleteOtherService deletes the record of a slice that belonged to another Service: it has the same name, since that
// is the slice's UID, and the Service in it is immutable. The record that takes its place tells other members that
// the endpoints of the old Service are gone.
func (r *reconciler) deleteOtherService(ctx context.Context, s *state, name string, service *hubv1alpha1.Origin) error {
	old, err := kube.Get[*hubv1alpha1.EndpointRecord](
		ctx, r.Hub(), types.NamespacedName{Namespace: r.HubNamespace, Name: name})
	if err != nil || old == nil ||
		old.Spec.ServiceNamespace == service.ServiceNamespace && old.Spec.ServiceName == service.ServiceName {
		return err
	}
	r.highest(name, old.Spec.Revision) // the next one must be higher
	log.FromContext(ctx).
		Info("a slice belongs to another Service now", "record", name, "before", old.Spec.ServiceName)
	s.wrote = true
	return kube.DeleteUnchanged(ctx, r.Hub(), old)
}
