package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// slicePlan is what the imported slices and their projections should be and are.
type slicePlan struct {
	name                types.NamespacedName // of the import
	imported, projected sliceSet
	unwritten           map[string]bool  // slices that could not be written: this pass leaves them as they are
	refused             map[string]error // by source cluster: why this cluster's API server refuses a write
}

type sliceSet struct{ desired, existing []*discoveryv1.EndpointSlice }

// sets returns the imported slices first. They say what is held, and their projections follow them. So a projection
// without an imported slice is one to delete, also if the cache is late.
func (p *slicePlan) sets() []*sliceSet { return []*sliceSet{&p.imported, &p.projected} }

// desire adds the imported slices of sources, and their projections.
func (r *reconciler) desire(p *slicePlan, sources []*endpoints.Source, want *endpoints.Import) {
	for _, src := range sources {
		p.imported.desired = append(p.imported.desired, endpoints.Desired(src, want))
	}
	p.projected.desired = endpoints.Projections(p.imported.desired, want, r.Gateways())
}

// addSlices writes what is new and removes nothing. It updates existing to what was written.
func (r *reconciler) addSlices(ctx context.Context, p *slicePlan) error {
	var errs []error
	for _, set := range p.sets() {
		c := endpoints.Plan(endpoints.WithPorts(set.desired, set.existing), set.existing)
		c.Shrink, c.Delete = nil, nil
		written, err := r.applySlices(ctx, p, c)
		errs = append(errs, err)
		set.existing = slices.Clone(set.existing)
		for _, w := range written {
			i := slices.IndexFunc(set.existing, func(e *discoveryv1.EndpointSlice) bool { return e.Name == w.Name })
			if i < 0 {
				set.existing = append(set.existing, w)
			} else {
				set.existing[i] = w
			}
		}
	}
	return errors.Join(errs...)
}

// removeSlices writes the rest: it removes endpoints that have moved, slices without a source and, unless the derived
// Service waits, ports that nobody exposes. The error has all that the API server refused.
func (r *reconciler) removeSlices(ctx context.Context, p *slicePlan, waits bool) error {
	var errs []error
	for _, set := range p.sets() {
		desired := set.desired
		if waits {
			desired = endpoints.WithPorts(desired, set.existing)
		}
		_, err := r.applySlices(ctx, p, endpoints.Plan(desired, set.existing))
		errs = append(errs, err)
	}
	return errors.Join(append(errs, byName(p.refused)...)...)
}

// applySlices makes the changes in their order and returns the slices that it wrote. One failure does not stop the
// others.
func (r *reconciler) applySlices(
	ctx context.Context, p *slicePlan, c endpoints.Changes,
) (written []*discoveryv1.EndpointSlice, err error) {
	logger := log.FromContext(ctx)
	var errs []error
	unwritten := func(slice *discoveryv1.EndpointSlice) bool { return p.unwritten[slice.Name] }
	for _, slice := range slices.DeleteFunc(c.Create, unwritten) {
		logger.Info(
			"importing endpoints",
			"slice", slice.Name, "source", sourceCluster(slice), "endpoints", len(slice.Endpoints),
		)
		err := r.Local.Create(ctx, slice)
		if apierrors.IsAlreadyExists(err) {
			err = r.overwrite(ctx, p, slice, err)
		}
		if err == nil {
			written = append(written, slice)
		}
		errs = append(errs, r.failed(p, slice, err))
	}
	for _, slice := range slices.DeleteFunc(slices.Concat(c.Update, c.Shrink), unwritten) {
		logger.V(1).Info("changing endpoints", "slice", slice.Name, "source", sourceCluster(slice))
		err := r.Local.Update(ctx, slice)
		if err == nil {
			r.wrote(p.name, slice, slice.ResourceVersion, r.Now())
			written = append(written, slice)
		}
		errs = append(errs, r.failed(p, slice, err))
	}
	for _, slice := range c.Delete {
		logger.Info("removing endpoints", "slice", slice.Name, "source", sourceCluster(slice))
		err := kube.DeleteUnchanged(ctx, r.Local, slice)
		if err == nil {
			r.wrote(p.name, slice, "", r.Now())
		}
		errs = append(errs, r.failed(p, slice, err))
	}
	return written, errors.Join(errs...)
}

// failed notes and reports a slice that could not be written or deleted. It returns err, unless p.refused has it: what
// the API server refuses stops nothing else.
func (r *reconciler) failed(p *slicePlan, slice *discoveryv1.EndpointSlice, err error) error {
	if err == nil {
		return nil
	}
	if p.unwritten == nil {
		p.unwritten, p.refused = map[string]bool{}, map[string]error{}
	}
	p.unwritten[slice.Name] = true
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		errors.Is(err, context.Canceled) {
		return err
	}
	r.Events.Event(slice, kube.Warning, hubv1alpha1.ReasonSliceRefused, fmt.Sprintf(
		"Updating the endpoints of cluster %s failed: %v.", sourceCluster(slice), err))
	if kube.Refused(err) {
		p.refused[sourceCluster(slice)] = err
		return nil
	}
	return err
}

// overwrite replaces a slice of the agent that no longer says what it was made from. exists is the error of creating
// it.
func (r *reconciler) overwrite(
	ctx context.Context, p *slicePlan, slice *discoveryv1.EndpointSlice, exists error,
) error {
	existing, err := kube.Get[*discoveryv1.EndpointSlice](ctx, r.Local, client.ObjectKeyFromObject(slice))
	if err != nil {
		return err
	}
	if existing == nil { // the cache does not show it yet: the next pass sees whose it is
		return apierrors.NewConflict(discoveryv1.Resource("endpointslices"), slice.Name, exists)
	}
	if !kube.Writable(existing) {
		return exists
	}
	slice.ResourceVersion = existing.ResourceVersion
	if err := r.Local.Update(ctx, slice); err != nil {
		return err
	}
	r.wrote(p.name, slice, slice.ResourceVersion, r.Now())
	return nil
}

// repairSlices restores the labels of imported slices, which are known by their names, and reports slices of the
// derived Service that belong to others: they stay (I10), and kube-proxy sends the traffic of the VIP there as well.
func (r *reconciler) repairSlices(ctx context.Context, s *snapshot) error {
	if s.foreign() != nil || s.svc != nil && len(s.svc.Spec.Selector) > 0 {
		return nil // nothing is written, or the selector goes first
	}
	var errs []error
	for _, slice := range s.strays {
		owner := s.ownerByName(slice)
		switch {
		case !kube.Writable(slice):
			if s.svc != nil {
				r.Events.Event(s.svc, kube.Warning, hubv1alpha1.ReasonNotOwned, fmt.Sprintf(
					"EndpointSlice %s/%s belongs to another program, and the VIP leads to its endpoints as well; "+
						"if it should not: kubectl -n %[1]s delete endpointslice %[2]s", slice.Namespace, slice.Name))
			}
		case owner != "":
			labelled := slice.DeepCopy()
			if labelled.Labels == nil {
				labelled.Labels = make(map[string]string)
			}
			maps.Copy(labelled.Labels, endpoints.Labels(s.name.Name, s.derivedName(), owner, kube.Manager))
			delete(labelled.Annotations, kube.AnnotationAdopt)
			log.FromContext(ctx).Info("restoring the labels of an imported slice", "slice", slice.Name)
			errs = append(errs, client.IgnoreNotFound(r.Local.Update(ctx, labelled)))
		}
	}
	return errors.Join(errs...)
}

// ownerByName returns the source cluster of an imported slice from its name, which nobody can edit; "" for other
// slices.
func (s *snapshot) ownerByName(slice *discoveryv1.EndpointSlice) string {
	source := slice.Annotations[endpoints.AnnotationSource]
	if slice.Name != endpoints.SliceName(s.derivedName(), source, slice.AddressType) {
		return ""
	}
	return endpoints.OwnerOf(source)
}
