package serviceimport

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		return nil, r.delete(ctx, s.svc) // a VIP cannot be added to a headless Service
	}
	held := derived.Held(s.svc, families)
	if len(held) < len(families) {
		return r.address(ctx, s, imp, m, held, families)
	}
	return r.write(ctx, r.Local, s, m, families, nil)
}

// address makes the derived Service with addresses of the families that it does not hold. Families that wait for an
// address do not delay the others (V).
func (r *reconciler) address(
	ctx context.Context,
	s *snapshot,
	imp *mcsv1beta1.ServiceImport,
	m *conflict.Merged,
	held, families []corev1.IPFamily,
) (*corev1.Service, error) {
	if s.svc != nil && derived.Young(s.svc, r.Now()) {
		return s.svc, kube.ErrVIPBusy
	}
	request := kube.VIPRequest{
		Import:  imp,
		Service: types.NamespacedName{Namespace: s.name.Namespace, Name: s.derivedName()},
	}
	for _, f := range families {
		if !slices.Contains(held, f) {
			request.Families = append(request.Families, f)
		}
	}
	if s.imp != nil {
		for _, text := range s.imp.Spec.IPs {
			if a, err := netip.ParseAddr(text); err == nil {
				request.Previous = append(request.Previous, a)
			}
		}
	}
	svc, granted, err := r.ask(ctx, s, m, request, held)
	if len(granted) < 2 || !errors.Is(err, ipam.ErrFull) {
		return svc, err
	}
	full := err
	err = nil
	for _, f := range request.Families { // the API server does not say which of them is full
		if s.svc != nil && derived.Young(s.svc, r.Now()) { // it has just got the other one
			err = errors.Join(err, full)
			continue
		}
		request.Families = []corev1.IPFamily{f}
		var failed error
		s.svc, _, failed = r.ask(ctx, s, m, request, derived.Held(s.svc, families))
		err = errors.Join(err, failed)
	}
	return s.svc, err
}

// ask asks for addresses of the families of a request beside those that are held. It returns the derived Service as
// it is then, and the families that the API server was asked for. An agent that is told to end waits for the answer:
// an API server whose client leaves releases the addresses of the Service, and may keep the Service until its repair
// loop has restored them (Kubernetes 1.36).
func (r *reconciler) ask(
	ctx context.Context, s *snapshot, m *conflict.Merged, request kube.VIPRequest, held []corev1.IPFamily,
) (*corev1.Service, []corev1.IPFamily, error) {
	ctx = context.WithoutCancel(ctx)
	if s.svc == nil {
		request.Try = func(ctx context.Context) error {
			_, err := r.write(ctx, client.NewDryRunClient(r.Local), s, m, request.Families, nil)
			return err
		}
	}
	grant, err := r.VIPs.Reserve(ctx, request)
	if err != nil {
		svc, err := r.without(ctx, s, m, held, err)
		return svc, nil, err
	}
	svc, err := r.write(ctx, r.Local, s, m, slices.Concat(held, grant.Families), grant.Addresses)
	if err := r.VIPs.Settle(ctx, request, grant, svc, err); err != nil {
		svc, err := r.without(ctx, s, m, held, err)
		return svc, grant.Families, err
	}
	log.FromContext(ctx).Info("gave the derived Service its VIPs", "service", svc.Name, "ips", svc.Spec.ClusterIPs)
	return svc, grant.Families, grant.Refused
}

// without writes the derived Service with the families that it holds, although others were refused, unless the next
// pass follows soon.
func (r *reconciler) without(
	ctx context.Context, s *snapshot, m *conflict.Merged, held []corev1.IPFamily, refused error,
) (*corev1.Service, error) {
	if len(held) == 0 || errors.Is(refused, kube.ErrVIPBusy) || apierrors.IsConflict(refused) ||
		apierrors.IsAlreadyExists(refused) {
		return s.svc, refused
	}
	svc, failed := r.write(ctx, r.Local, s, m, held, nil)
	return svc, errors.Join(failed, refused)
}

// write writes the derived Service with these families, and requests vips beside the addresses that it has. It leaves
// out a trafficDistribution that the API server is too old to know.
func (r *reconciler) write(
	ctx context.Context,
	local client.Client,
	s *snapshot,
	m *conflict.Merged,
	families []corev1.IPFamily,
	vips []netip.Addr,
) (*corev1.Service, error) {
	var texts []string
	for _, a := range vips {
		texts = append(texts, a.String())
	}
	svc := derived.Service(s.name.Namespace, s.name.Name, kube.Manager, m, families, s.svc, texts)
	if r.isUnknown(m.TrafficDistribution, r.Now()) {
		svc.Spec.TrafficDistribution = nil
	}
	done, err := r.put(ctx, local, s, svc)
	if d := svc.Spec.TrafficDistribution; d != nil && apierrors.IsInvalid(err) &&
		strings.Contains(err.Error(), "spec.trafficDistribution") {
		log.FromContext(ctx).Info("the API server does not know this trafficDistribution", "service", svc.Name,
			"value", *d)
		r.setUnknown(*d, r.Now())
		svc.Spec.TrafficDistribution = nil
		return r.put(ctx, local, s, svc)
	}
	return done, err
}

// put writes the derived Service if it differs, and returns the current one.
func (r *reconciler) put(
	ctx context.Context, local client.Client, s *snapshot, svc *corev1.Service,
) (*corev1.Service, error) {
	if s.svc == nil {
		return svc, local.Create(ctx, svc)
	}
	if derived.Same(svc, s.svc) {
		return s.svc, nil
	}
	log.FromContext(ctx).Info("changing the derived Service", "service", svc.Name)
	if err := local.Update(ctx, svc); err != nil {
		return s.svc, err
	}
	return svc, nil
}

// endQuarantine ends the quarantine of a derived Service whose import exists again.
func (r *reconciler) endQuarantine(ctx context.Context, svc *corev1.Service) error {
	if svc == nil || svc.Annotations[derived.AnnotationUnusedSince] == "" {
		return nil
	}
	used := svc.DeepCopy()
	delete(used.Annotations, derived.AnnotationUnusedSince)
	return r.Local.Update(ctx, used)
}
