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

// TestV2AnAdminGivesVIPsRangesOfTheirOwn by fields of the ClusterSet, which another init leaves as they are. Then
// status shows what is granted.
func TestV2AnAdminGivesVIPsRangesOfTheirOwn(t *testing.T) {
	e := setUp(t)
	if err := e.admin["hub"].Get(t.Context(), client.ObjectKey{Namespace: "clusterset", Name: "clusterset"},
		&hubv1alpha1.ClusterSet{}); err == nil {
		e.unmake(t, "hub") // another test's
	}
	e.nodes(t, "hub")
	e.ok(t, "init", "--context", "hub")
	e.setVIPs(t, `{"mode": "preferred", "pools": ["10.200.0.0/24"], "blocks": {"ipv4Bits": 24}}`)
	e.ok(t, "init", "--context", "hub")
	e.vips(t, hubv1alpha1.VIPs{Mode: "preferred", Pools: []string{"10.200.0.0/24"},
		Blocks: hubv1alpha1.BlockSize{IPv4Bits: 24, IPv6Bits: 112}})

	for _, id := range []string{"first", "second"} {
		p := &inventoryv1alpha1.ClusterProfile{}
		p.Namespace, p.Name, p.Spec.ClusterManager.Name = "clusterset", id, "clusterset-dns"
		if err := e.admin["hub"].Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		e.tells(t, id, "service-ranges.clusterset-dns.io", "10.96.0.0/16")
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
		"first     10.200.0.0/24", "not as they should be (PoolsFull): second: "} {
		if !strings.Contains(shown.stdout, want) {
			t.Errorf("status does not show %q:\n%s", want, shown.stdout)
		}
	}
	for _, id := range []string{"first", "second"} {
		e.ok(t, "evict", "--yes", id, "--context", "hub")
	}
	e.setVIPs(t, `{"mode": "shared", "pools": null}`)
}

// setVIPs changes fields of the ClusterSet, as docs/operate.md says.
func (e *environment) setVIPs(t *testing.T, vips string) {
	t.Helper()
	if _, err := e.planes["hub"].Kubectl(t.Context(), "", "-n", "clusterset", "patch", "clusterset", "clusterset",
		"--type=merge", "-p", `{"spec": {"vips": `+vips+`}}`); err != nil {
		t.Fatal(err)
	}
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
