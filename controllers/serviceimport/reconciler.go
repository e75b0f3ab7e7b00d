// Package serviceimport creates this cluster's ServiceImport, derived Service and imported EndpointSlices from all
// records of one name (SPEC I, S, C). One pass copies the records from the hub, so that imports survive whatever
// happens to it, and does all three from the copies, because their order keeps traffic flowing: first additions to
// slices, then the Service, then the import, then removals (DESIGN §4).
//
// It does not decide which clusters have expired (sources does), or choose addresses (clustersetips does).
package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// recheck is how often a name is checked again while a copy is missing, or the API server does not show its IP
// families.
const recheck = 10 * time.Second

type reconciler struct {
	Config
	memory
}

func newReconciler(c Config) *reconciler {
	return &reconciler{Config: c, memory: memory{
		waits:   workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstWait, maxWait),
		unknown: map[string]time.Time{},
		settled: map[types.NamespacedName]*settled{},
		orders:  map[types.NamespacedName]*endpoints.Order{},
		unseen:  map[types.NamespacedName]*unseen{},
	}}
}

// finding is an Event to raise about an object.
type finding struct {
	about           client.Object
	reason, message string
}

func (r *reconciler) report(findings []finding) {
	for _, f := range findings {
		r.Events.Event(f.about, kube.Warning, f.reason, f.message)
	}
}

// Reconcile is one pass over one name.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if wait := r.lags(&s, r.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if again, done, err := r.followEndpoints(ctx, &s); done || err != nil {
		return reconcile.Result{RequeueAfter: again}, err
	}
	copied := r.copyRecords(ctx, &s)
	if apierrors.IsConflict(copied) || apierrors.IsAlreadyExists(copied) {
		return reconcile.Result{}, copied
	}
	if !s.namespace {
		r.forget(s.name)
		return reconcile.Result{}, errors.Join(copied, r.reportLost(ctx, &s, &foundSources{}),
			r.reportWrite(ctx, &s, theNamespace, r.createNamespace(ctx, &s)))
	}
	err = r.repairSlices(ctx, &s) // a failure stops nothing else
	again, failed := r.resolve(ctx, &s)
	if err = errors.Join(copied, err, failed); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// createNamespace creates the missing namespace of a name that another cluster exports to this one, if the ClusterSet
// wants that (I12). The agent never changes or deletes it.
func (r *reconciler) createNamespace(ctx context.Context, s *snapshot) error {
	others := func(e clusterset.Export) bool { return e.Cluster != r.Cluster }
	if !s.createsNamespace || !slices.ContainsFunc(s.decideExporters().exports, others) {
		return nil
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.name.Namespace, Labels: map[string]string{derived.LabelManagedBy: kube.Manager},
	}}
	log.FromContext(ctx).Info("creating the namespace of an import", "namespace", ns.Name)
	return client.IgnoreAlreadyExists(r.Local.Create(ctx, ns))
}

// resolve decides about a name, applies the decision, and returns when to check the name again.
func (r *reconciler) resolve(ctx context.Context, s *snapshot) (again time.Duration, err error) {
	if s.importsOff {
		r.waits.Forget(s.name)
		r.setOrder(s.name, nil)
		if err := r.clearReports(ctx, s); err != nil {
			return 0, err
		}
		return r.retire(ctx, s)
	}
	e := s.decideExporters()
	r.report(e.findings)
	exported := len(e.exports)+len(e.frozen) > 0
	if o := s.foreign(); o != nil && exported {
		// It is no longer to be filled, has VIPs of others, or was made while the derived Service was in quarantine.
		if o == client.Object(s.imp) && (kube.Filled(s.imp) || isQuarantined(s.svc)) {
			if again, err = r.retire(ctx, s); err != nil {
				return 0, err
			}
		}
		return again, errors.Join(r.reportRefused(ctx, s, notOwned(o)), r.reportLost(ctx, s, &foundSources{}))
	}
	switch {
	case !exported:
		r.waits.Forget(s.name)
		r.setOrder(s.name, nil)
		if err := r.clearReports(ctx, s); err != nil {
			return 0, err
		}
		return r.retire(ctx, s)
	case len(e.exports)+len(e.standIns) > 0:
		if again, err = r.apply(ctx, s, &e); err != nil {
			return 0, err
		}
	default:
		if err := r.clearImported(ctx, s); err != nil {
			return 0, err
		}
	}
	if e.lost && (again == 0 || again > recheck) {
		return recheck, nil
	}
	return again, nil
}

// apply writes slices, derived Service and import, and returns when to check the name again.
func (r *reconciler) apply(ctx context.Context, s *snapshot, e *exporters) (again time.Duration, err error) {
	// Conflicts are dropped here: each exporter reports them on its own ServiceExport.
	merged, _ := conflict.Merge(slices.Concat(e.standIns, e.exports))
	imp, err := r.ensureImport(ctx, s, &merged)
	if err != nil {
		return 0, r.reportWrite(ctx, s, theImport, err)
	}
	families, later, err := r.families(ctx, s, imp, merged.Families)
	if err != nil {
		return 0, err
	}
	shape := e.shape(merged, imp)
	want := &endpoints.Import{
		Namespace: s.name.Namespace,
		Name:      s.name.Name,
		UID:       imp.UID,
		Derived:   s.derivedName(),
		Manager:   kube.Manager,
		Merged:    shape,
		// The hints of a value that it refuses in a Service.
		NoNodeHints: r.isUnknown(merged.TrafficDistribution, r.Now()),
	}
	found := r.sources(s, e, imp, shape)
	r.report(found.findings)
	sources := endpoints.Expire(found.sources, s.expired)
	p := &slicePlan{
		name: s.name, imported: sliceSet{existing: e.managed},
		projected: sliceSet{existing: projectedOf(s, e.managed)},
	}
	if s.hub { // else the records that they may be of are not known
		p.imported.existing = append(p.imported.existing, s.orphans...)
	}
	sources, order, back := endpoints.Prefer(sources, s.own, shape, r.order(s.name), r.Now())
	r.setOrder(s.name, order)
	r.desire(p, sources, want)

	unwritten := r.addSlices(ctx, p)
	if apierrors.IsConflict(unwritten) || apierrors.IsNotFound(unwritten) {
		return 0, unwritten // the Service gets no port before its endpoints (C9)
	}
	svc, failed := r.service(ctx, s, imp, &merged, families)
	if apierrors.IsConflict(failed) || apierrors.IsAlreadyExists(failed) {
		return 0, errors.Join(unwritten, failed)
	}
	write := theImport
	if kube.Manages(imp) && len(imp.Status.Clusters) > 0 {
		write = theChange // clients use it as it is
	}
	err = r.reportWrite(ctx, s, write, r.updateImport(ctx, imp, &merged, families, svc, failed))
	waits := errors.Is(failed, ipam.ErrPending)
	staysHeadless := failed != nil && imp.Spec.Type == mcsv1beta1.Headless && merged.Type == mcsv1beta1.ClusterSetIP
	err = errors.Join(unwritten, err, r.removeSlices(ctx, p, waits || staysHeadless))
	for cluster, refusal := range p.refused {
		found.lose(cluster, hubv1alpha1.ReasonSliceRefused, "writing endpoints of cluster %s here failed: %v", cluster,
			refusal)
	}
	err = errors.Join(err, r.reportLost(ctx, s, &found))
	if waits {
		return r.waits.When(s.name), err
	}
	r.waits.Forget(s.name)
	if err = errors.Join(failed, err); err != nil {
		return 0, err
	}
	again = later
	if len(found.held) == 0 && !e.unreadable && len(e.frozen) == 0 && kube.Owned(imp) {
		r.settle(s, &settled{want: want, families: families, again: again}, r.Now())
	}
	if again == 0 && r.isUnknown(merged.TrafficDistribution, r.Now()) {
		again = unknownFor
	}
	if back > 0 && (again == 0 || back < again) {
		again = back
	}
	return again, nil
}

// families returns the merged families that this cluster supports. If its API server does not show them, they are those
// that the import and its derived Service already have. If these have none, and the API server denies the dry run, the
// merged ones are used. later is when to look for families that are left out; 0 if there are none.
func (r *reconciler) families(
	ctx context.Context, s *snapshot, imp *mcsv1beta1.ServiceImport, merged []corev1.IPFamily,
) (families []corev1.IPFamily, later time.Duration, err error) {
	supported, err := r.Families(ctx)
	if err != nil {
		supported = imp.Spec.IPFamilies
		if s.svc != nil { // users do not edit it, and it has those that wait for an address
			supported = slices.Concat(supported, s.svc.Spec.IPFamilies)
		}
	}
	denied := kube.FamiliesDenied(err)
	switch families = derived.Families(merged, supported); {
	case len(families) == len(merged):
		return families, 0, nil
	case err == nil:
		return families, kube.FamiliesKept, nil // no event says when the API server gets another family
	case !denied && len(families) == 0:
		return nil, 0, err
	case !denied:
		return families, recheck, nil
	}
	used := "that it has"
	if len(families) == 0 {
		families, used = merged, "of its exporters"
	}
	r.report([]finding{{imp, "FamiliesUnknown", fmt.Sprintf("%v. The import uses the IP families %s. Allow the agent "+
		"to dry-run a Service in namespace %s.", err, used, kube.SystemNamespace)}})
	return families, kube.FamiliesKept, nil
}
