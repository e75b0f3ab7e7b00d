package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestV2WhoLeavesTakesItsRangesAlong: the hub grants a member a block, and another when its agent asks, which makes
// ranges of both beside one of the user's, and VIPs come from all three. Once the cluster has left, the user's range
// is as it was, and of the others nothing is left.
func TestV2WhoLeavesTakesItsRangesAlong(t *testing.T) {
	e := setUp(t)
	if err := e.admin["hub"].Get(t.Context(), client.ObjectKey{Namespace: "clusterset", Name: "clusterset"},
		&hubv1alpha1.ClusterSet{}); err == nil {
		e.unmake(t, "hub") // another test's
	}
	e.nodes(t, "hub", "east")
	// Before there are ranges: ordinary Services may draw from them, and would keep them for as long as they live.
	const services = 16 // more than the user's range and one block hold, six each
	for i := range services {
		e.service(t, "east", "leaving", fmt.Sprint("web-", i))
	}
	users := &networkingv1.ServiceCIDR{}
	users.Name, users.Labels = "users", map[string]string{ipam.LabelVIPs: ipam.Shared}
	users.Spec.CIDRs = []string{"10.201.0.0/29"}
	if err := e.admin["east"].Create(t.Context(), users); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.admin["east"].Delete(context.WithoutCancel(t.Context()), users); err != nil {
			t.Error(err)
		}
	})
	e.ok(t, "init", "--context", "hub")
	e.setVIPs(t, `{"mode": "preferred", "pools": ["10.200.0.0/24"], "blocks": {"ipv4Bits": 29}}`)
	e.ok(t, "join", "--context", "east", "--hub-context", "hub", "--cluster-id", "east")
	for i := range services {
		e.declare(t, "east", "leaving", fmt.Sprint("web-", i))
	}
	var vips []netip.Addr
	for i := range services {
		name := fmt.Sprint("web-", i)
		eventually(t, "VIP of "+name, func(ctx context.Context) error {
			imp := &mcsv1beta1.ServiceImport{}
			if err := e.admin["east"].Get(ctx, client.ObjectKey{Namespace: "leaving", Name: name}, imp); err != nil {
				return err
			}
			if len(imp.Spec.IPs) == 0 {
				return fmt.Errorf("%+v", imp.Status.Conditions)
			}
			vips = append(vips, netip.MustParseAddr(imp.Spec.IPs[0]))
			return nil
		})
	}
	set := &hubv1alpha1.ClusterSet{}
	if err := e.admin["hub"].Get(t.Context(), client.ObjectKey{Namespace: "clusterset", Name: "clusterset"},
		set); err != nil {
		t.Fatal(err)
	}
	gave := func(cidr string) bool { return slices.ContainsFunc(vips, netip.MustParsePrefix(cidr).Contains) }
	blocks := 0
	for _, b := range set.Status.Blocks {
		if b.ClusterID == "east" && gave(b.CIDR) {
			blocks++
		}
	}
	if !gave(users.Spec.CIDRs[0]) || blocks < 2 {
		t.Errorf("VIPs %v, of %d blocks of %+v; want them of the user's range and of two blocks", vips, blocks,
			set.Status.Blocks)
	}
	e.ok(t, "leave", "--yes", "--context", "east", "--hub-context", "hub")
	// Kubernetes keeps a ServiceCIDR for ten seconds, and for as long as there is an address of a Service in it.
	eventually(t, "nothing is left of the agent's ranges", func(ctx context.Context) error {
		var cidrs networkingv1.ServiceCIDRList
		var addresses networkingv1.IPAddressList
		err := errors.Join(e.admin["east"].List(ctx, &cidrs,
			client.MatchingLabels{derived.LabelManagedBy: kube.Manager}), e.admin["east"].List(ctx, &addresses))
		var left []string
		for _, r := range cidrs.Items {
			left = append(left, fmt.Sprint(r.Name, r.Finalizers, r.Status.Conditions))
		}
		ranges := len(left)
		for _, a := range addresses.Items {
			if ours := a.Labels[networkingv1.LabelManagedBy] == kube.Manager; ours || ranges > 0 {
				left = append(left, fmt.Sprintf("%s of %+v", a.Name, *a.Spec.ParentRef))
			}
		}
		if err == nil && len(left) > 0 {
			err = errors.New(strings.Join(left, "\n"))
		}
		return err
	})
	left := &networkingv1.ServiceCIDR{}
	if err := e.admin["east"].Get(t.Context(), client.ObjectKeyFromObject(users), left); err != nil ||
		left.DeletionTimestamp != nil || left.UID != users.UID ||
		left.Labels[ipam.LabelVIPs] != ipam.Shared || slices.Contains(left.Finalizers,
		clusterset.FinalizerVIPs) {
		t.Errorf("the user's range is not as it was: %v %+v", err, left)
	}
	e.setVIPs(t, `{"mode": "shared", "pools": null}`)
	e.forget(t, "leaving")
}
