package gather

import (
	"context"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// serviceRanges returns those of a cluster's ServiceCIDRs, or none if the kind does not exist or may not be read.
func serviceRanges(ctx context.Context, c *cluster.Cluster) (out []ipam.Range, err error) {
	var cidrs networkingv1.ServiceCIDRList
	err = c.List(ctx, &cidrs)
	out, _ = ipam.AllRanges(cidrs.Items) // the agent reports invalid ones in Events
	return out, c.Failed(ignoreUnreadable(err), "reading ServiceCIDRs")
}

// allocated returns the Service addresses that are in use.
func allocated(ctx context.Context, c *cluster.Cluster) (out []netip.Addr, err error) {
	var addresses networkingv1.IPAddressList
	err = c.List(ctx, &addresses)
	for i := range addresses.Items {
		if a, err := netip.ParseAddr(addresses.Items[i].Name); err == nil {
			out = append(out, a)
		}
	}
	return out, c.Failed(ignoreUnreadable(err), "reading IPAddresses")
}

func ignoreUnreadable(err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
