package serviceimport

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// service writes the derived Service and returns it; nil if there is none. A Headless import does not use it, but
// leaves it, so that the VIP is the same when the import becomes a ClusterSetIP again (I6).
func (r *reconciler) service(
	ctx context.Context, s *snapshot, imp *mcsv1beta1.ServiceImport, m *conflict.Merged, families []corev1.IPFamily,
) (*corev1.Service, error) {
	if m.Type == mcsv1beta1.Headless || len(families) == 0 || len(m.Ports) == 0 {
		return s.svc, r.endQuarantine(ctx, s.svc)
	}
	if s.svc != nil && s.svc.DeletionTimestamp != nil {
		return s.svc, nil // the pass after its deletion creates it again with the import's addresses
	}
	if s.svc != nil && s.svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil, kube.DeleteUnchanged(ctx, r.Local, s.svc) // a VIP cannot be added to a headless Service
	}
	held := derived.Held(s.svc, families)
	if len(held) < len(families) {
		return r.address(ctx, s, imp, m, held, families)
	}
	return r.write(ctx, s, m, families, nil)
}

// address gives the derived Service addresses of the families that it does not hold. A family that is full keeps no
// other from its address.
func (r *reconciler) address(
	ctx context.Context,
	s *snapshot,
	imp *mcsv1beta1.ServiceImport,
	m *conflict.Merged,
	held, families []corev1.IPFamily,
) (*corev1.Service, error) {
	if s.svc != nil && derived.Young(s.svc, r.Now()) {
		return s.svc, ipam.ErrPending
	}
	missing := slices.DeleteFunc(
		slices.Clone(families),
		func(f corev1.IPFamily) bool { return slices.Contains(held, f) },
	)
	svc, full := r.allocate(ctx, s, imp, m, missing, held)
	// The last is how an API server refuses a family that it lacks, if a policy denied the dry run that shows it.
	if len(missing) < 2 || !errors.Is(full, ipam.ErrFull) && !apierrors.IsInternalError(full) &&
		!kube.InvalidField(full, "spec.ipFamil") {
		return svc, full
	}
	var err error
	for _, f := range missing {
		if s.svc != nil && derived.Young(s.svc, r.Now()) { // it has just got the other one
			err = errors.Join(err, full, ipam.ErrPending)
			continue
		}
		var failed error
		s.svc, failed = r.allocate(ctx, s, imp, m, []corev1.IPFamily{f}, derived.Held(s.svc, families))
		err = errors.Join(err, failed)
	}
	return s.svc, err
}

// allocate asks for addresses of these families beside those that are held, and returns the current derived Service.
// An agent that is told to end waits for the answer: an API server whose client leaves releases the addresses, and
// may keep the Service until its repair loop has restored them (Kubernetes 1.36).
func (r *reconciler) allocate(
	ctx context.Context,
	s *snapshot,
	imp *mcsv1beta1.ServiceImport,
	m *conflict.Merged,
	families, held []corev1.IPFamily,
) (*corev1.Service, error) {
	ctx = context.WithoutCancel(ctx)
	service := types.NamespacedName{Namespace: s.name.Namespace, Name: s.derivedName()}
	q := &ipam.Request{Import: imp, Service: service, Families: families}
	for { // each refusal adds to q.Lost, and Pick allows only so many
		asked, err := r.Addresses.Pick(ctx, q)
		if err != nil {
			return r.without(ctx, s, m, held, err)
		}
		began := r.Now()
		svc, err := r.write(ctx, s, m, slices.Concat(held, families), asked)
		if err == nil {
			r.Addresses.Allocated(ctx, q, svc, r.Now().Sub(began))
			log.FromContext(ctx).Info("allocated VIPs", "service", svc.Name, "ips", svc.Spec.ClusterIPs)
			return svc, nil
		}
		if err = r.Addresses.Refused(ctx, q, asked, err); err != nil {
			return r.without(ctx, s, m, held, err)
		}
	}
}

// without writes the derived Service with the families that it holds, although others were refused, unless the next
// pass follows soon.
func (r *reconciler) without(
	ctx context.Context, s *snapshot, m *conflict.Merged, held []corev1.IPFamily, refused error,
) (*corev1.Service, error) {
	if len(held) == 0 || errors.Is(refused, ipam.ErrPending) || apierrors.IsConflict(refused) ||
		apierrors.IsAlreadyExists(refused) {
		return s.svc, refused
	}
	svc, failed := r.write(ctx, s, m, held, nil)
	return svc, errors.Join(failed, refused)
}

// write writes the derived Service with these families, and requests vips beside the addresses that it has. It leaves
// out a trafficDistribution that the API server is too old to know.
func (r *reconciler) write(
	ctx context.Context,
	s *snapshot,
	m *conflict.Merged,
	families []corev1.IPFamily,
	vips []netip.Addr,
) (*corev1.Service, error) {
	svc := derived.Service(s.name.Namespace, s.name.Name, kube.Manager, m, families, s.svc, vips)
	if r.isUnknown(m.TrafficDistribution, r.Now()) {
		svc.Spec.TrafficDistribution = nil
	}
	done, err := r.put(ctx, s, svc)
	if d := svc.Spec.TrafficDistribution; d != nil && kube.InvalidField(err, "spec.trafficDistribution") {
		log.FromContext(ctx).Info("the API server does not know this trafficDistribution", "service", svc.Name,
			"value", *d)
		r.setUnknown(*d, r.Now())
		svc.Spec.TrafficDistribution = nil
		return r.put(ctx, s, svc)
	}
	return done, err
}

// put writes the derived Service if it differs, and returns the current one. That is nil where only a cache that lags
// still has it: its VIP may be another's by now.
func (r *reconciler) put(ctx context.Context, s *snapshot, svc *corev1.Service) (*corev1.Service, error) {
	if s.svc == nil {
		return svc, r.Local.Create(ctx, svc)
	}
	if derived.Same(svc, s.svc) {
		return s.svc, nil
	}
	log.FromContext(ctx).Info("changing the derived Service", "service", svc.Name)
	switch err := r.Local.Update(ctx, svc); {
	case apierrors.IsNotFound(err):
		return nil, err
	case err != nil:
		return s.svc, err
	}
	r.wrote(s.name, svc, svc.ResourceVersion, r.Now())
	return svc, nil
}

// endQuarantine ends the quarantine of a derived Service whose import exists again.
func (r Config) endQuarantine(ctx context.Context, svc *corev1.Service) error {
	if svc == nil || svc.Annotations[derived.AnnotationUnusedSince] == "" {
		return nil
	}
	used := svc.DeepCopy()
	delete(used.Annotations, derived.AnnotationUnusedSince)
	return r.Local.Update(ctx, used)
}
