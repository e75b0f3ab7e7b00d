// Package serviceimport makes, of all records of one name, this cluster's ServiceImport, derived Service and imported EndpointSlices
// (SPEC I, S, C). One pass does all three, since their order is what keeps traffic flowing: additions to slices, then the Service, then
// the import, then removals (DESIGN §4).
package serviceimport

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// recheck is how often slices that the hub no longer shows are looked at again: their owner's word comes with its Lease.
const recheck = 10 * time.Second

// Controller is this room's entry in the list of controllers. Requests are namespace/name of a Service.
func Controller(env *kube.Env) kube.Controller {
	r := &reconciler{Env: env}
	return kube.Controller{
		Name: "serviceimport",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &hubv1alpha1.ServiceExportRecord{}, Requests: kube.Named(kube.Exported)},
			{Side: kube.Local, Object: &mcsv1beta1.ServiceImport{}, Requests: kube.Named(kube.Itself)},
			{Side: kube.Local, Object: &corev1.Service{}, Requests: r.ofDerived},
			{Side: kube.Local, Object: &corev1.Namespace{}, Requests: r.ofNamespace},
			{Side: kube.Local, Object: &discoveryv1.EndpointSlice{}, Requests: r.ofSource},
			{Side: kube.Local, Object: &discoveryv1.EndpointSlice{}, Requests: kube.Named(kube.ImportOf)},
			{Side: kube.Hub, Object: &hubv1alpha1.EndpointRecord{}, Requests: kube.Named(kube.Exported), Ahead: r.changed},
			{Side: kube.Local, Object: &coordinationv1.Lease{}, Requests: r.ofVerdict, Alike: sameVerdict},
		},
		Reconciler: &importer{reconciler: r},
	}
}

type reconciler struct {
	*kube.Env
}

// changed tells whether a peer's record is another than its slice here was made of. What was never imported does not go ahead.
func (r *reconciler) changed(ctx context.Context, o client.Object) bool {
	rec, of := o.(*hubv1alpha1.EndpointRecord), kube.Exported(o)
	name := endpoints.SliceName(derived.Name(of.Namespace, of.Name), rec.Name, rec.Spec.AddressType)
	slice, err := kube.Get[*discoveryv1.EndpointSlice](ctx, r.Local, types.NamespacedName{Namespace: of.Namespace, Name: name})
	return err == nil && slice != nil && rec.Spec.ClusterID != r.Cluster &&
		slice.Annotations[endpoints.AnnotationRevision] != endpoints.Revision(rec.CreationTimestamp.Unix(), rec.Spec.Revision)
}

// Reconcile is one pass over one name.
func (r *importer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !s.namespace {
		r.forget(s.name)
		return reconcile.Result{}, nil
	}
	err = r.expel(ctx, &s) // what cannot be written stops nothing else
	again, failed := r.resolve(ctx, s)
	if err = errors.Join(err, failed); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// resolve makes of a name what is known of it, and tells when to look again.
func (r *importer) resolve(ctx context.Context, s state) (again time.Duration, err error) {
	if s.hubSeen {
		s.behind = r.behind(s.name, s.records, r.Now())
	}
	switch {
	case s.awaited:
		return recheck, nil
	case len(s.exports) == 0 && len(s.unread) == 0:
		r.answered(s.name)
		return r.retire(ctx, s)
	case len(s.exports)+len(s.standIns) > 0:
		if again, err = r.follow(ctx, s); err != nil {
			return 0, err
		}
	}
	if s.lost && (again == 0 || again > recheck) {
		return recheck, nil
	}
	return again, nil
}

// full tells whether a quota refused something. The API server has no reason of its own for that.
func full(err error) bool { return strings.Contains(err.Error(), "exceeded quota") }

// follow makes import, derived Service and slices what the copies say, and tells when to look again.
func (r *importer) follow(ctx context.Context, s state) (again time.Duration, err error) {
	merged, _ := conflict.Merge(slices.Concat(s.standIns, s.exports)) // conflicts are reported on ServiceExports, by their exporters
	for _, e := range s.standIns {
		delete(merged.Names, e.Cluster) // its slices stay as they are
	}
	supported, err := r.Families(ctx)
	if err != nil {
		return 0, err
	}
	families := derived.Families(merged.Families, supported)

	imp, err := r.ensure(ctx, s, &merged)
	if err != nil {
		return 0, err
	}
	sources, held := r.sources(s, imp, &merged)
	// Who is dead comes first: the floor under votes is to stand on those that live.
	sources = endpoints.Withhold(endpoints.Expire(sources, s.verdicts, &merged), r.Cluster, s.withheld, &merged)
	sources = endpoints.Prefer(sources, r.Cluster, &merged)
	want := &endpoints.Import{
		Namespace: s.name.Namespace, Name: s.name.Name, UID: imp.UID, Derived: s.derivedName(), Manager: kube.Manager,
		Merged: &merged,
	}
	existing, refused := r.add(ctx, sources, want, s.slices)
	if apierrors.IsConflict(refused) || apierrors.IsNotFound(refused) {
		return 0, refused // the next pass sees what is there, and the Service gets no port before its endpoints (C9)
	}
	svc, failed := r.service(ctx, s, imp, &merged, families)
	if apierrors.IsConflict(failed) || apierrors.IsAlreadyExists(failed) {
		return 0, errors.Join(refused, failed) // no news to a user: the next pass sees what is there
	}
	if errors.Is(failed, kube.ErrVIPBusy) { // what is dead goes all the same, but nothing that the Service is to be without first
		return r.wait(s.name), errors.Join(refused, r.drop(ctx, sources, want, existing))
	}
	r.answered(s.name)
	remove := r.remove
	if refused != nil && !full(refused) { // what has no source may be what takes a quota's room
		remove = r.drop
	}
	err = errors.Join(refused, failed,
		r.update(ctx, imp, &merged, families, svc, failed),
		remove(ctx, sources, want, existing))
	switch {
	case err != nil:
		return 0, err
	case held || s.forgot:
		return recheck, nil
	case len(families) < len(merged.Families): // no event tells of a family that the API server was given
		return kube.FamiliesKept, nil
	}
	return 0, nil
}

// ofDerived names the import of a derived Service, also where a user has removed what says so.
func (r *reconciler) ofDerived(ctx context.Context, o client.Object) []reconcile.Request {
	if len(o.GetName()) < len("derived-") || o.GetName()[:len("derived-")] != "derived-" {
		return nil
	}
	said := derived.Import(o.GetAnnotations())
	if said.Name != "" && said.Namespace == o.GetNamespace() && derived.Name(said.Namespace, said.Name) == o.GetName() {
		return requestOf(said)
	}
	var imports mcsv1beta1.ServiceImportList
	if err := r.Local.List(ctx, &imports, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err == nil {
		for i := range imports.Items {
			if derived.Name(o.GetNamespace(), imports.Items[i].Name) == o.GetName() {
				return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(&imports.Items[i])}}
			}
		}
	}
	return requestOf(said)
}

// ofVerdict asks for every name that the cluster exports on which a verdict is.
func (r *reconciler) ofVerdict(ctx context.Context, o client.Object) []reconcile.Request {
	cluster := o.GetLabels()[liveness.LabelSource]
	if cluster == "" {
		return nil // the Lease of a leader's election
	}
	return r.exported(ctx, client.MatchingFields{kube.ByCluster: cluster})
}

// sameVerdict: a Lease bears more than the verdict.
func sameVerdict(was, is client.Object) bool {
	return liveness.StateOf(was.(*coordinationv1.Lease)) == liveness.StateOf(is.(*coordinationv1.Lease))
}

func requestOf(name types.NamespacedName) []reconcile.Request {
	if name.Name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

// ofNamespace asks for every name that is exported in the namespace (I1).
func (r *reconciler) ofNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return r.exported(ctx, client.MatchingFields{kube.ByNamespace: o.GetName()})
}

func (r *reconciler) exported(ctx context.Context, by client.ListOption) []reconcile.Request {
	var records hubv1alpha1.ServiceExportRecordList
	if err := r.Local.List(ctx, &records, client.InNamespace(kube.SystemNamespace), by, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache answers; it fails only when the agent stops
	}
	var out []reconcile.Request
	for i := range records.Items {
		out = append(out, reconcile.Request{NamespacedName: kube.Exported(&records.Items[i])})
	}
	return out
}
