package gather

import (
	"context"
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// serviceRanges are those of a cluster's ServiceCIDRs; none where it has no such kind, or the user may not read it.
func serviceRanges(ctx context.Context, c *cluster.Cluster) (out []ipam.Range, err error) {
	var cidrs networkingv1.ServiceCIDRList
	if err := c.List(ctx, &cidrs); err != nil {
		return nil, unlessMissing(c, err)
	}
	for i := range cidrs.Items {
		ranges, _ := ipam.Ranges(&cidrs.Items[i]) // what cannot be read, an Event tells
		out = append(out, ranges...)
	}
	return out, nil
}

// taken lists the addresses that have an IPAddress.
func taken(ctx context.Context, c *cluster.Cluster) (out []netip.Addr, err error) {
	var addresses networkingv1.IPAddressList
	if err := c.List(ctx, &addresses); err != nil {
		return nil, unlessMissing(c, err)
	}
	for i := range addresses.Items {
		if a, err := netip.ParseAddr(addresses.Items[i].Name); err == nil {
			out = append(out, a)
		}
	}
	return out, nil
}

func unlessMissing(c *cluster.Cluster, err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsForbidden(err) || client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.Name, err)
}
