// Package servicecidrs keeps this member's ServiceCIDRs for VIPs (DESIGN §5, SPEC V): it creates one for each
// block that the hub granted, keeps every labelled range while VIPs are in it, and reports ranges and wishes to the
// hub. It gives out no address and remembers nothing.
package servicecidrs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// No event says that a range is filling up or has become empty, so the ranges are looked at this often.
const (
	busyInterval = 5 * time.Second // in mode preferred, or while a range is to become empty
	idleInterval = time.Minute
)

// New returns the controller. All its requests are the same: the ranges as a whole.
func New(m kube.Member) kube.Controller {
	all := kube.Named(func(client.Object) types.NamespacedName { return types.NamespacedName{Name: "ranges"} })
	r := &reconciler{Member: m}
	return kube.Controller{
		Name: "servicecidrs",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &aboutv1beta1.ClusterProperty{}, Requests: all},
			{Side: kube.Local, Object: &networkingv1.ServiceCIDR{}, Requests: all, Optional: true},
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: all},
		},
		Reconciler: r,
		Metrics:    []prometheus.Collector{collector{r}},
	}
}

type reconciler struct {
	kube.Member
	passed atomic.Bool // a pass has begun
}

// state is what one pass goes by.
type state struct {
	ipam.Standing
	settings kube.VIPSettings
	invalid  []error // what of the ServiceCIDRs and the Pod ranges cannot be used
	cidrs    []networkingv1.ServiceCIDR
}

// Reconcile makes the ServiceCIDRs what the ClusterSet and the VIPs in use ask for.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	r.passed.Store(true)
	s, err := r.gather(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.rememberMode(ctx, s.Mode); err != nil {
		return reconcile.Result{}, err
	}
	if why := r.missing(); why != nil {
		if s.Mode != ipam.ModeShared {
			r.Events.Event(kube.System(), kube.Warning, "VIPModeUnsupported", fmt.Sprintf(
				"Mode %s needs ServiceCIDRs and IPAddresses (Kubernetes 1.33): %v. "+
					"New VIPs come from the cluster's own ranges.", s.Mode, why))
		}
		return reconcile.Result{RequeueAfter: idleInterval}, nil
	}
	plan := ipam.Plan(s.Standing)
	for _, why := range slices.Concat(s.invalid, plan.Invalid) {
		r.Events.Event(kube.System(), kube.Warning, "VIPRangeInvalid", why.Error()+".")
	}
	emptying, held := r.guard(ctx, &s)
	err = errors.Join(r.report(ctx, &s, plan.Want), r.create(ctx, plan.Create), r.delete(ctx, &s, plan.Delete), held)
	if err != nil {
		return reconcile.Result{}, err
	}
	kept := slices.Contains(slices.Collect(maps.Values(s.Ours)), true) // in mode shared they go once they are empty
	if emptying || kept || s.Mode == ipam.ModePreferred {
		return reconcile.Result{RequeueAfter: busyInterval}, nil
	}
	return reconcile.Result{RequeueAfter: idleInterval}, nil
}

func (r *reconciler) missing() error {
	return errors.Join(r.Missing(&networkingv1.ServiceCIDR{}), r.Missing(&networkingv1.IPAddress{}))
}

func (r *reconciler) gather(ctx context.Context) (s state, err error) {
	if s.settings, err = kube.ReadVIPSettings(ctx, r.Local, r.Hub(), r.HubNamespace, r.Cluster); err != nil {
		return s, err
	}
	s.Mode, s.Blocks, s.Pools, s.Ours = s.settings.Mode, s.settings.Blocks, s.settings.Pools, map[string]bool{}
	if r.missing() != nil {
		return s, nil
	}
	if s.Families, err = r.Families(ctx); kube.FamiliesDenied(err) {
		s.Families = kube.BothFamilies
	} else if err != nil {
		return s, err
	}
	if s.VIPs, err = r.vips(ctx); err != nil {
		return s, err
	}
	if s.Taken, err = r.taken(ctx); err != nil {
		return s, err
	}
	var list networkingv1.ServiceCIDRList
	if err := r.Local.List(ctx, &list); err != nil {
		return s, err
	}
	s.cidrs = list.Items
	s.Ranges, s.invalid = ipam.AllRanges(s.cidrs)
	pods, err := kube.Property(ctx, r.Local, clusterset.PropertyPodRanges)
	if err != nil {
		return s, err
	}
	if pods != nil {
		if s.Pods, err = clusterset.ParseRanges(pods.Spec.Value); err != nil {
			s.invalid = append(s.invalid, fmt.Errorf("ClusterProperty %s: %w", pods.Name, err))
		}
	}
	for i := range s.cidrs {
		s.Ours[s.cidrs[i].Name] = kube.Owned(&s.cidrs[i])
	}
	return s, nil
}

// vips returns the addresses of derived Services, and those of imports whose derived Service is gone: they ask for
// them again (SPEC I6).
func (r *reconciler) vips(ctx context.Context) (out []ipam.Held, err error) {
	var services corev1.ServiceList
	var imports mcsv1beta1.ServiceImportList
	managed := client.MatchingLabels{derived.LabelManagedBy: kube.Manager}
	err = errors.Join(
		r.Local.List(ctx, &services, managed, client.UnsafeDisableDeepCopy),
		r.Local.List(ctx, &imports, managed, client.UnsafeDisableDeepCopy),
	)
	if err != nil {
		return nil, err
	}
	seen := map[netip.Addr]bool{}
	add := func(owner types.NamespacedName, texts []string) {
		for _, text := range texts {
			if a, err := netip.ParseAddr(text); err == nil && !seen[a] {
				seen[a] = true
				out = append(out, ipam.Held{Owner: owner, Address: a})
			}
		}
	}
	for i := range services.Items {
		svc := &services.Items[i]
		add(client.ObjectKeyFromObject(svc), svc.Spec.ClusterIPs)
	}
	for i := range imports.Items {
		imp := &imports.Items[i]
		add(types.NamespacedName{Namespace: imp.Namespace, Name: derived.Name(imp.Namespace, imp.Name)}, imp.Spec.IPs)
	}
	return out, nil
}

// taken returns the addresses that have an IPAddress.
func (r *reconciler) taken(ctx context.Context) (out []netip.Addr, err error) {
	var list networkingv1.IPAddressList
	if err := r.Local.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if a, err := netip.ParseAddr(list.Items[i].Name); err == nil {
			out = append(out, a)
		}
	}
	return out, nil
}

// create makes ServiceCIDRs. What the API server or its policies refuse is reported and tried again at the next
// look.
func (r *reconciler) create(ctx context.Context, ranges []ipam.Range) error {
	var errs []error
	for _, one := range ranges {
		c := &networkingv1.ServiceCIDR{}
		c.Name, c.Finalizers = one.Name, []string{clusterset.FinalizerVIPs}
		c.Spec.CIDRs = []string{one.Prefix.String()}
		c.Labels = map[string]string{derived.LabelManagedBy: kube.Manager, ipam.LabelVIPs: ipam.Shared}
		switch err := r.Local.Create(ctx, c); {
		case err == nil:
			log.FromContext(ctx).Info("created a range for VIPs", "serviceCIDR", c.Name)
		case refused(err):
			r.Events.Event(kube.System(), kube.Warning, "VIPRangeRefused", fmt.Sprintf(
				"Creating ServiceCIDR %s failed: %v. Until it exists, new VIPs come from other ranges.", c.Name, err))
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// refused reports whether the same request would be refused again. Policies and webhooks may use nearly any code of
// 4xx.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code/100 == 4
	}
}

func (r *reconciler) delete(ctx context.Context, s *state, names []string) (err error) {
	for i := range s.cidrs {
		if c := &s.cidrs[i]; slices.Contains(names, c.Name) {
			log.FromContext(ctx).Info("deleting a range for VIPs", "serviceCIDR", c.Name)
			err = errors.Join(err, kube.DeleteUnchanged(ctx, r.Local, c))
		}
	}
	return err
}
