package clustersetip

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// listed is how many VIPs an Event names.
const listed = 12

// guard holds back the deletion of ranges that VIPs are in (V3), and says what has to move; seen tells whether the hub, which knows the
// blocks, has been.
func (r *Room) guard(ctx context.Context, s ipam.Standing, cidrs []*networkingv1.ServiceCIDR, seen bool) error {
	var vips []ipam.Held
	for _, h := range s.Held {
		if !h.Foreign {
			vips = append(vips, h)
		}
	}
	var writes []func() error
	for _, c := range cidrs {
		held := slices.Contains(c.Finalizers, clusterset.FinalizerVIPs)
		_, draining := c.Annotations[ipam.AnnotationDrain]
		if c.Labels[ipam.LabelVIPs] == "" && !held && !draining {
			continue
		}
		mine, err := ipam.Ranges(c)
		if err != nil {
			r.Event(about("ServiceCIDR", c.Name), kube.Warning, "VIPRangeInvalid", err.Error()+".")
		}
		remade := ours(c) && !seen
		var moving []ipam.Held
		for _, one := range mine {
			remade = remade || draining && ipam.Remade(s, one)
			if draining || c.DeletionTimestamp != nil {
				moving = append(moving, ipam.Holding(one, s.Ranges, vips)...)
			}
		}
		r.announce(c, moving, remade)
		switch {
		case held && (c.DeletionTimestamp != nil && len(moving) == 0 || c.Labels[ipam.LabelVIPs] == ""):
			writes = append(writes, func() error { return r.finalize(ctx, c, false) })
		case !held && c.DeletionTimestamp == nil && c.Labels[ipam.LabelVIPs] != "": // before a VIP is in it: later would be too late
			writes = append(writes, func() error { return r.finalize(ctx, c, true) })
		}
	}
	errs := make([]error, len(writes))
	r.Together(len(writes), func(i int) { errs[i] = writes[i]() })
	return errors.Join(errs...)
}

// announce lists the VIPs that keep a range which is to go; one that the agent would make again is not to.
func (r *Room) announce(c *networkingv1.ServiceCIDR, moving []ipam.Held, remade bool) {
	_, draining := c.Annotations[ipam.AnnotationDrain]
	var names []string
	for _, h := range moving {
		names = append(names, h.Address.String()+" ("+h.Owner.String()+")")
	}
	if n := len(names); n > listed {
		names = append(names[:listed], fmt.Sprintf("and %d more", n-listed))
	}
	list := strings.Join(names, ", ")
	switch {
	case c.DeletionTimestamp != nil && len(moving) > 0:
		r.Event(about("ServiceCIDR", c.Name), kube.Warning, "VIPRangeHeld", fmt.Sprintf(
			"It is deleted once no VIP is in it that no other ServiceCIDR covers. There are %d: %s. Make one that covers them, or delete these Services for them to get other addresses%s.", len(moving), list, ipam.AsAgent))
	case draining && c.DeletionTimestamp == nil && len(moving) > 0:
		r.Event(about("ServiceCIDR", c.Name), kube.Normal, "VIPRangeDraining", fmt.Sprintf(
			"No new VIP comes from it, but for addresses that another ServiceCIDR covers as well. %d that none covers are still in it, and move when their Services are deleted%s: %s.", len(moving), ipam.AsAgent, list))
	case draining && c.DeletionTimestamp == nil && remade:
		r.Event(about("ServiceCIDR", c.Name), kube.Normal, "VIPRangeDrained", "No VIP is in it that no other ServiceCIDR covers. Leave it, drained: the agent would make it again.")
	case draining && c.DeletionTimestamp == nil:
		r.Event(about("ServiceCIDR", c.Name), kube.Normal, "VIPRangeDrained", "No VIP is in it that no other ServiceCIDR covers: it can be deleted.")
	}
}

func (r *Room) finalize(ctx context.Context, c *networkingv1.ServiceCIDR, add bool) error {
	c = c.DeepCopy()
	if add {
		c.Finalizers = append(c.Finalizers, clusterset.FinalizerVIPs)
	} else {
		c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == clusterset.FinalizerVIPs })
	}
	log.FromContext(ctx).Info("a range for VIPs", "serviceCIDR", c.Name, "held", add)
	return kube.Gone(r.Local.Update(ctx, c))
}

// about is an object of this cluster without a namespace.
func about(kind, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: kind, Name: name}
}
