package servicecidrs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// report tells the hub by ClusterProperties which ranges no block may overlap, and how many blocks this member
// wants. A block with ranges in it is reported as a whole, so that a hub that lost its status grants it to nobody
// else. Pod ranges are the admin's to report.
func (r *reconciler) report(ctx context.Context, s *state, want map[corev1.IPFamily]int) error {
	if s.settings.Set == nil {
		return nil
	}
	var known []netip.Prefix
	for _, one := range s.Ranges {
		p := one.Prefix
		if i := slices.IndexFunc(
			s.Blocks, func(b netip.Prefix) bool { return b.Bits() <= p.Bits() && b.Contains(p.Addr()) },
		); i >= 0 {
			p = s.Blocks[i]
		}
		if !slices.Contains(known, p) {
			known = append(known, p)
		}
	}
	value, left := clusterset.FormatRanges(known)
	if len(left) > 0 {
		r.Events.Event(kube.System(), kube.Warning, "RangesNotReported", fmt.Sprintf(
			"The hub is not told of these ServiceCIDRs and may grant blocks that overlap them: %v.", left))
	}
	if err := r.property(ctx, clusterset.PropertyServiceRanges, value); err != nil {
		return err // the hub grants a block to a member that wants one, and must know its ranges before
	}
	blocks := clusterset.BlocksWanted{
		IPv4: min(want[corev1.IPv4Protocol], clusterset.MaxBlocksWanted),
		IPv6: min(want[corev1.IPv6Protocol], clusterset.MaxBlocksWanted),
	}
	return r.property(ctx, clusterset.PropertyBlocks, blocks.String())
}

// property sets a ClusterProperty, unless a user wrote it.
func (r *reconciler) property(ctx context.Context, name, value string) error {
	was, err := kube.Property(ctx, r.Local, name)
	if err != nil || value == "" || was != nil && (!kube.Owned(was) || was.Spec.Value == value) {
		return err
	}
	log.FromContext(ctx).Info("reporting to the hub", "property", name, "value", value)
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

// rememberMode notes the mode for a start at which the hub cannot be seen.
func (r *reconciler) rememberMode(ctx context.Context, mode ipam.Mode) error {
	set, err := kube.Property(ctx, r.Local, clusterset.PropertySet)
	if err != nil || set == nil || set.Annotations[clusterset.AnnotationVIPMode] == string(mode) {
		return err
	}
	if set.Annotations[clusterset.AnnotationVIPMode] == "" && mode == ipam.ModeShared {
		return nil
	}
	set = set.DeepCopy()
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, clusterset.AnnotationVIPMode, string(mode))
	log.FromContext(ctx).Info("VIP mode", "mode", mode)
	return r.Local.Update(ctx, set)
}
