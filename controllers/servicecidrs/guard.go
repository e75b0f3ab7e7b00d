package servicecidrs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// listed is how many VIPs an Event names.
const listed = 12

// guard keeps labelled ranges by a finalizer as long as VIPs are in them that no other range covers, and says which
// (SPEC V3). It reports whether a range is to become empty.
func (r *reconciler) guard(ctx context.Context, s *state) (emptying bool, err error) {
	for i := range s.cidrs {
		c := &s.cidrs[i]
		labelled := c.Labels[ipam.LabelVIPs] != ""
		if !labelled && !controllerutil.ContainsFinalizer(c, clusterset.FinalizerVIPs) {
			continue
		}
		var holding []ipam.Held
		if c.DeletionTimestamp != nil {
			ranges, _ := ipam.Ranges(c) // Reconcile has reported the errors
			for _, one := range ranges {
				holding = append(holding, ipam.Holding(one, s.Ranges, s.VIPs)...)
			}
			emptying = true
			r.announce(c, holding)
		}
		keep := labelled && (c.DeletionTimestamp == nil || len(holding) > 0)
		err = errors.Join(err, r.finalize(ctx, c, keep))
	}
	return emptying, err
}

// finalize adds our finalizer, or removes it. A range that is being deleted takes no new one.
func (r *reconciler) finalize(ctx context.Context, c *networkingv1.ServiceCIDR, keep bool) error {
	changed := c.DeepCopy()
	if !keep && !controllerutil.RemoveFinalizer(changed, clusterset.FinalizerVIPs) {
		return nil
	}
	if keep && (c.DeletionTimestamp != nil || !controllerutil.AddFinalizer(changed, clusterset.FinalizerVIPs)) {
		return nil
	}
	return client.IgnoreNotFound(r.Local.Update(ctx, changed))
}

// announce names the VIPs that keep a range from being deleted.
func (r *reconciler) announce(c *networkingv1.ServiceCIDR, holding []ipam.Held) {
	if len(holding) == 0 {
		return
	}
	var names []string
	for _, h := range holding[:min(len(holding), listed)] {
		names = append(names, h.Address.String()+" ("+h.Owner.String()+")")
	}
	if n := len(holding) - listed; n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	r.Events.Event(c, kube.Warning, "VIPRangeHeld", fmt.Sprintf("%d VIPs keep it from being deleted. "+
		"Create a ServiceCIDR that covers them, or delete their Services to give them other addresses (kubectl delete "+
		"--as=system:serviceaccount:clusterset-system:clusterset-controller): %s.",
		len(holding), strings.Join(names, ", ")))
}
