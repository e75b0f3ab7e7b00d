package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// TestV2AnAdminGivesVIPsRangesOfTheirOwn: init with pools, dry or not, on a new hub and on one that is there; then
// status and doctor.
func TestV2AnAdminGivesVIPsRangesOfTheirOwn(t *testing.T) {
	e := setUp(t)
	if err := e.admin["hub"].Get(t.Context(), client.ObjectKey{Namespace: "clusterset", Name: "clusterset"},
		&hubv1alpha1.ClusterSet{}); err == nil {
		e.unmake(t, "hub") // another test's
	}
	e.nodes(t, "hub")
	init := func(more ...string) []string { return append([]string{"init", "--context", "hub"}, more...) }
	for _, c := range []struct{ arg, want string }{
		{"--vip-mode=mine", `--vip-mode "mine": must be shared or preferred`},
		{"--vip-pools=10.200.0.1/16", "has bits set after its prefix: write 10.200.0.0/16"},
		{"--vip-pools=10.200.0.0/16,10.200.4.0/22", "overlaps pool 10.200.0.0/16"},
		{"--vip-pools=10.200.0.0/24", "is smaller than a block of /22"},
		{"--vip-block-bits=ipv4=30", "a block is a /8 to a /29"},
		{"--vip-block-bits=ipv5=30", "must be ipv4=N, ipv6=N, or both"},
	} {
		e.refused(t, []string{c.want}, init(c.arg)...)
	}
	dry := e.ok(t, init("--dry-run", "--vip-mode=preferred", "--vip-pools=10.200.0.0/23,fd00:c5::/48",
		"--vip-block-bits=ipv4=24")...)
	for _, want := range []string{"mode: preferred", "- 10.200.0.0/23\n", "- fd00:c5::/48\n", "ipv4Bits: 24"} {
		if !strings.Contains(dry.stdout, want) {
			t.Errorf("a dry run does not show %q", want)
		}
	}
	e.ok(t, init("--vip-mode=preferred", "--vip-pools=10.200.0.0/23,fd00:c5::/48", "--vip-block-bits=ipv4=24")...)
	e.vips(t, hubv1alpha1.VIPs{Mode: "preferred", Pools: []string{"10.200.0.0/23", "fd00:c5::/48"},
		Blocks: hubv1alpha1.BlockSize{IPv4Bits: 24, IPv6Bits: 112}})
	e.ok(t, init()...) // leaves it
	e.vips(t, hubv1alpha1.VIPs{Mode: "preferred", Pools: []string{"10.200.0.0/23", "fd00:c5::/48"},
		Blocks: hubv1alpha1.BlockSize{IPv4Bits: 24, IPv6Bits: 112}})
	e.ok(t, init("--vip-pools=10.200.0.0/24")...) // for blocks of the size that is there
	e.vips(t, hubv1alpha1.VIPs{Mode: "preferred", Pools: []string{"10.200.0.0/24"},
		Blocks: hubv1alpha1.BlockSize{IPv4Bits: 24, IPv6Bits: 112}})

	for _, id := range []string{"first", "second"} {
		p := &inventoryv1alpha1.ClusterProfile{}
		p.Namespace, p.Name, p.Spec.ClusterManager.Name = "clusterset", id, "clusterset-dns"
		if err := e.admin["hub"].Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		e.tells(t, id, "pod-ranges.clusterset-dns.io", "10.244.0.0/16")
		if id == "first" {
			eventually(t, "first has a block", func(ctx context.Context) error {
				set := &hubv1alpha1.ClusterSet{}
				err := e.admin["hub"].Get(ctx, client.ObjectKey{Namespace: "clusterset", Name: "clusterset"}, set)
				if err == nil && len(set.Status.Blocks) == 0 {
					return fmt.Errorf("%+v", set.Status)
				}
				return err
			})
		}
	}
	shown := e.run(t, "status", "--context", "hub", "--hub-only")
	for _, want := range []string{"POOLS (mode preferred)", "10.200.0.0/24   /24         1         0",
		"first     10.200.0.0/24", "x second: cluster second asks for a block and cannot have one: "} {
		if !strings.Contains(shown.stdout, want) {
			t.Errorf("status does not show %q:\n%s", want, shown.stdout)
		}
	}
	for _, id := range []string{"first", "second"} {
		e.ok(t, "leave", id, "--evict", "--context", "hub")
	}
	e.ok(t, init("--vip-mode=shared", "--vip-pools=")...)
	e.vips(t, hubv1alpha1.VIPs{Mode: "shared", Blocks: hubv1alpha1.BlockSize{IPv4Bits: 24, IPv6Bits: 112}})
}

// vips compares what the ClusterSet says.
func (e *environment) vips(t *testing.T, want hubv1alpha1.VIPs) {
	t.Helper()
	set := &hubv1alpha1.ClusterSet{}
	if err := e.admin["hub"].Get(t.Context(), client.ObjectKey{Namespace: "clusterset", Name: "clusterset"},
		set); err != nil {
		t.Fatal(err)
	}
	if got := set.Spec.VIPs; got.Mode != want.Mode || got.Blocks != want.Blocks ||
		!slices.Equal(got.Pools, want.Pools) {
		t.Errorf("the ClusterSet says %+v, want %+v", got, want)
	}
	if set.Spec.Lease.DurationSeconds != 40 {
		t.Errorf("the rest of it is not left as it was: %+v", set.Spec)
	}
}

// tells has a member publish a property, as its agent would.
func (e *environment) tells(t *testing.T, id, property, value string) {
	t.Helper()
	eventually(t, id+" tells "+property, func(ctx context.Context) error {
		p := &inventoryv1alpha1.ClusterProfile{}
		if err := e.admin["hub"].Get(ctx, client.ObjectKey{Namespace: "clusterset", Name: id}, p); err != nil {
			return err
		}
		p.Status.Properties = []inventoryv1alpha1.Property{{Name: property, Value: value}}
		return e.admin["hub"].Status().Update(ctx, p)
	})
}
