package kube

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// VIPSettings are the ClusterSet's settings for the VIPs of a member.
type VIPSettings struct {
	// Set is nil until the hub shows exactly one ClusterSet. Until then, Mode is the last mode that
	// this cluster stored.
	Set    *hubv1alpha1.ClusterSet
	Mode   ipam.Mode
	Blocks []netip.Prefix
	Pools  map[corev1.IPFamily]bool // the families that have a pool
}

// ReadVIPSettings returns the VIP settings of a cluster. hub is nil until the hub's caches have synced once.
func ReadVIPSettings(
	ctx context.Context, local, hub client.Reader, namespace, cluster string,
) (v VIPSettings, err error) {
	set, known, err := SetOf(ctx, hub, namespace)
	if err != nil {
		return v, err
	}
	if !known {
		v.Mode = ipam.ModeShared
		p, err := Property(ctx, local, clusterset.PropertySet)
		if p != nil {
			v.Mode = modeOf(p.Annotations[clusterset.AnnotationVIPMode])
		}
		return v, err
	}
	v.Set, v.Pools = set, map[corev1.IPFamily]bool{}
	v.Mode = modeOf(string(set.Spec.VIPs.Mode))
	for _, text := range set.Spec.VIPs.Pools {
		if p, err := netip.ParsePrefix(text); err == nil {
			v.Pools[ipam.Family(p.Addr())] = true
		}
	}
	for _, b := range set.Status.Blocks {
		if b.ClusterID != cluster {
			continue
		}
		if p, err := netip.ParsePrefix(b.CIDR); err == nil {
			v.Blocks = append(v.Blocks, p.Masked())
		}
	}
	return v, nil
}

// modeOf returns shared for an unknown mode: one that was edited, or that a later version brings.
func modeOf(text string) ipam.Mode {
	if ipam.Mode(text) == ipam.ModePreferred {
		return ipam.ModePreferred
	}
	return ipam.ModeShared
}
