package clustersetip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// tell lets the hub know, by ClusterProperties, which of this cluster's ranges no block may meet, and how many blocks it wants. Pod ranges
// are the admin's to say: Nodes do not show those of most networks. A block in which there are ranges is told as a whole, and what was made
// in one that the hub knows nothing of: its status.blocks may be lost, or restored from a backup. A hub that was not seen yet is told
// nothing new.
func (r *Room) tell(ctx context.Context, s ipam.Standing, plan ipam.Layout, cidrs []*networkingv1.ServiceCIDR, seen bool) error {
	if !seen {
		return nil
	}
	var known []netip.Prefix
	for _, c := range cidrs {
		ranges, _ := ipam.Ranges(c)
		for _, one := range ranges {
			switch b, in := within(one.Prefix, s.Blocks); {
			case !in:
				known = append(known, one.Prefix)
			case !slices.Contains(known, b):
				known = append(known, b)
			}
		}
	}
	value, left := clusterset.FormatRanges(known)
	if len(left) > 0 {
		r.Event(kube.System(), kube.Warning, "RangesNotTold", fmt.Sprintf("The hub is not told of these ServiceCIDRs, and may grant blocks that meet them: %v.", left))
	}
	err := r.property(ctx, clusterset.PropertyServiceRanges, value)
	if s.Mode == ipam.ModeShared {
		return err
	}
	want := clusterset.BlocksWanted{
		IPv4: min(plan.Want[corev1.IPv4Protocol], clusterset.MaxBlocksWanted), IPv6: min(plan.Want[corev1.IPv6Protocol], clusterset.MaxBlocksWanted),
	}
	return errors.Join(err, r.property(ctx, clusterset.PropertyBlocks, want.String()))
}

// within is the block that has all of p.
func within(p netip.Prefix, blocks []netip.Prefix) (block netip.Prefix, in bool) {
	i := slices.IndexFunc(blocks, func(b netip.Prefix) bool { return b.Bits() <= p.Bits() && b.Contains(p.Addr()) })
	if i < 0 {
		return block, false
	}
	return blocks[i], true
}

// property makes a ClusterProperty say this, unless somebody else wrote it.
func (r *Room) property(ctx context.Context, name, value string) error {
	was, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, r.Local, types.NamespacedName{Name: name})
	if err != nil || value == "" || was != nil && (!ours(was) || was.Spec.Value == value) {
		return err
	}
	log.FromContext(ctx).Info("telling the hub", "property", name, "value", value)
	if was != nil {
		was = was.DeepCopy()
		was.Spec.Value = value
		return r.Local.Update(ctx, was)
	}
	p := &aboutv1beta1.ClusterProperty{}
	p.Name, p.Spec.Value = name, value
	p.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	return r.Local.Create(ctx, p)
}
