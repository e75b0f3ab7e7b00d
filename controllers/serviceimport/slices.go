package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// sources are the slices of all exporters: this cluster's own as they are, its peers' as published. What a peer no longer shows, shows
// as older than seen, or shows as nonsense, is held as it was imported; held tells whether there is any.
func (r *reconciler) sources(s state, imp *mcsv1beta1.ServiceImport, m *conflict.Merged) (out []*endpoints.Source, held bool) {
	if m.Names[r.Cluster] != nil {
		out = append(out, r.native(s)...)
	}
	imported := map[string]*discoveryv1.EndpointSlice{} // by record
	for _, slice := range s.slices {
		if cluster := slice.Labels[mcsv1beta1.LabelSourceCluster]; cluster != r.Cluster && m.Names[cluster] != nil {
			imported[slice.Annotations[endpoints.AnnotationRecord]] = slice
		}
	}
	hold := func(slice *discoveryv1.EndpointSlice) {
		held = true
		if src, err := r.remembered(slice); err == nil {
			out = append(out, src)
		}
	}
	for _, rec := range s.records {
		slice := imported[rec.Name]
		delete(imported, rec.Name)
		if m.Names[rec.Spec.ClusterID] == nil {
			continue
		}
		seen := endpoints.Source{}
		if slice != nil {
			if src, err := endpoints.Restore(slice); err == nil {
				seen = src
			}
		}
		created := rec.CreationTimestamp.Unix()
		if seen.NewerThan(created, rec.Spec.Revision) {
			hold(slice)
			continue
		}
		if slice == nil && s.behind[rec.Name] {
			held = true // the owner is about to say it again
			continue
		}
		if rec.Spec.Withdrawn {
			continue
		}
		spec, refused, err := clusterset.ParseEndpoints(rec, r.Reserved)
		if err != nil {
			r.Events.Event(imp, kube.Warning, "RecordRefused", fmt.Sprintf("Cluster %s: endpoints are not imported: %v.", rec.Spec.ClusterID, err))
			if slice != nil {
				hold(slice)
			}
			continue
		}
		if len(refused) > 0 && (seen.Created != created || seen.Revision != spec.Revision) {
			r.Events.Event(imp, kube.Warning, "EndpointsRefused", fmt.Sprintf("Cluster %s: %s. No peer may claim such an address; the other endpoints are imported.",
				rec.Spec.ClusterID, strings.Join(refused[:min(len(refused), 5)], "; ")))
		}
		out = append(out, &endpoints.Source{Record: rec.Name, Created: created, EndpointRecordSpec: spec})
	}
	for _, record := range slices.Sorted(maps.Keys(imported)) { // in an order, so that a seed of the simulation replays
		slice := imported[record]
		if s.moved[record] {
			continue
		}
		if !s.hubSeen || !r.Gone(slice.Labels[mcsv1beta1.LabelSourceCluster], record, created(slice)) {
			hold(slice)
		}
	}
	return out, held
}

// remembered is the source of a slice that is held, without the addresses that no peer may claim (S4): it may have been imported before
// --reserved-cidrs was given, or by an agent that refused less.
func (r *reconciler) remembered(slice *discoveryv1.EndpointSlice) (*endpoints.Source, error) {
	src, err := endpoints.Restore(slice)
	src.Native = slices.DeleteFunc(slices.Clone(src.Native), func(e discoveryv1.Endpoint) bool {
		return slices.ContainsFunc(e.Addresses, func(a string) bool { return !clusterset.Claimable(a, r.Reserved) })
	})
	return &src, err
}

// created is when the record of an imported slice was, by the hub's clock; a time that nothing precedes where the slice does not say.
func created(slice *discoveryv1.EndpointSlice) time.Time {
	src, err := endpoints.Restore(slice)
	if err != nil {
		return time.Unix(1<<40, 0)
	}
	return time.Unix(src.Created, 0)
}

func (r *reconciler) native(s state) (out []*endpoints.Source) {
	for _, slice := range s.native {
		spec, ok := clusterset.EndpointsOf(r.Cluster, s.name.Name, slice)
		if !ok {
			continue
		}
		spec.Revision = slice.Generation
		native := slice.Endpoints
		if native == nil {
			native = []discoveryv1.Endpoint{}
		}
		out = append(out, &endpoints.Source{
			Record: clusterset.EndpointRecordName(string(slice.UID), r.Cluster), EndpointRecordSpec: spec, Native: native,
		})
	}
	return out
}

func desired(sources []*endpoints.Source, want *endpoints.Import) []*discoveryv1.EndpointSlice {
	out := make([]*discoveryv1.EndpointSlice, len(sources))
	for i, src := range sources {
		out[i] = endpoints.Desired(src, want)
	}
	return out
}

// add writes what is new, and takes nothing away. It returns the imported slices as they are then.
func (r *reconciler) add(ctx context.Context, sources []*endpoints.Source, want *endpoints.Import, existing []*discoveryv1.EndpointSlice) ([]*discoveryv1.EndpointSlice, error) {
	c := endpoints.Plan(endpoints.Additive(desired(sources, want), existing), existing)
	c.Delete = nil
	written, err := r.apply(ctx, c)
	have := map[string]int{}
	out := append([]*discoveryv1.EndpointSlice(nil), existing...)
	for i, e := range out {
		have[e.Name] = i
	}
	for _, w := range written {
		if i, ok := have[w.Name]; ok {
			out[i] = w
		} else {
			out = append(out, w)
		}
	}
	return out, err
}

// remove writes the rest: ports that nobody exposes any more, and slices that have no source.
func (r *reconciler) remove(ctx context.Context, sources []*endpoints.Source, want *endpoints.Import, existing []*discoveryv1.EndpointSlice) error {
	_, err := r.apply(ctx, endpoints.Plan(desired(sources, want), existing))
	return err
}

// drop takes away what has no source, where others cannot be written, or the Service: who is dead or has withdrawn must not stay for as long
// as what is new is refused. Endpoints that have moved to a slice that could not be written stay.
func (r *reconciler) drop(ctx context.Context, sources []*endpoints.Source, want *endpoints.Import, existing []*discoveryv1.EndpointSlice) error {
	_, err := r.apply(ctx, endpoints.Dispensable(desired(sources, want), existing))
	return err
}

// apply makes creations, updates and deletions, in this order. One that fails does not stop the others: one member's slice must not keep those
// of the others as they are.
func (r *reconciler) apply(ctx context.Context, c endpoints.Changes) (written []*discoveryv1.EndpointSlice, err error) {
	logger := log.FromContext(ctx)
	var errs []error
	for _, slice := range c.Create {
		logger.Info("importing endpoints", "slice", slice.Name, "source", slice.Labels[mcsv1beta1.LabelSourceCluster], "endpoints", len(slice.Endpoints))
		err := r.Local.Create(ctx, slice)
		if apierrors.IsAlreadyExists(err) {
			err = r.adopt(ctx, slice)
		}
		if err == nil {
			written = append(written, slice)
		}
		errs = append(errs, r.refused(slice, err))
	}
	for _, slice := range c.Update {
		logger.V(1).Info("changing imported endpoints", "slice", slice.Name, "source", slice.Labels[mcsv1beta1.LabelSourceCluster], "endpoints", len(slice.Endpoints))
		err := r.Local.Update(ctx, slice)
		if err == nil {
			written = append(written, slice)
		}
		errs = append(errs, r.refused(slice, err))
	}
	for _, slice := range c.Delete {
		logger.Info("removing imported endpoints", "slice", slice.Name, "source", slice.Labels[mcsv1beta1.LabelSourceCluster])
		errs = append(errs, kube.Gone(r.Local.Delete(ctx, slice, client.Preconditions{UID: &slice.UID})))
	}
	return written, errors.Join(errs...)
}

// refused reports a slice that this cluster's API server does not take. One that it will never take is no error: the pass is as done as it
// can be.
func (r *reconciler) refused(slice *discoveryv1.EndpointSlice, err error) error {
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || errors.Is(err, context.Canceled) {
		return err // no news to a user: the next pass sees what is there
	}
	r.Events.Event(slice, kube.Warning, "SliceRefused", fmt.Sprintf("Endpoints of cluster %s are not imported as they are now: %v.",
		slice.Labels[mcsv1beta1.LabelSourceCluster], err))
	if apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// adopt takes over a slice that bears our name but lost our labels, which no list shows.
func (r *reconciler) adopt(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	there, err := kube.Get[*discoveryv1.EndpointSlice](ctx, r.LocalNow, client.ObjectKeyFromObject(slice))
	if err != nil || there == nil {
		return err
	}
	slice.ResourceVersion = there.ResourceVersion
	return r.Local.Update(ctx, slice)
}
