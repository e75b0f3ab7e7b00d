package packets

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// through is the cluster, asked from another node, whose kube-proxy is in another mode. Both share one Node object:
// what its addresses are for, NodePorts, nobody asks.
func (c *cluster) through(t *testing.T, mode string, at *node) *cluster {
	t.Helper()
	p, err := at.pod(c.ID + "-" + mode)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := lab.StartProxy(t.Context(), c.Cluster, nodeName, mode, at.Do)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kube-proxy with %s:\n%s", mode, proxy.Log())
		}
		proxy.Stop()
	})
	other := *c
	other.pod = p
	return &other
}

// headless sets or removes the label of slices that kube-proxy does not watch, on those of the cluster's own Service.
func (c *cluster) headless(t *testing.T, svc *corev1.Service, label string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, corev1.IsHeadlessService, label)
	for _, s := range c.endpoints(svc) {
		if err := c.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWithheldSlicesGetNoConnection (T2) with kube-proxy in either mode: neither those that the agent withholds, nor
// any that it does not touch and that have the label for Headless Services alone. Once they are not withheld, they do.
func TestWithheldSlicesGetNoConnection(t *testing.T) {
	w, svc, vip := preferring(t)
	if err := w.a.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
		t.Fatal(err)
	}
	modes := map[string]*cluster{"nftables": w.a, "iptables": w.a.through(t, "iptables", w.net.nodes[4])}
	each := func(step string, check func(*testing.T, *cluster)) {
		for mode, c := range modes {
			t.Run(step+" "+mode, func(t *testing.T) { check(t, c) })
		}
	}
	ownAnswer := func(t *testing.T, c *cluster) {
		c.wantAnswers(t, "tcp", vip[w.a], own...)
		for _, ip := range svc.Spec.ClusterIPs {
			c.wantAnswers(t, "tcp", netip.AddrPortFrom(netip.MustParseAddr(ip), 80), own...)
		}
	}
	each("others' withheld", ownAnswer)
	w.a.ready(t, svc.Namespace, false)
	each("others' not withheld", func(t *testing.T, c *cluster) { c.wantAnswers(t, "tcp", vip[w.a], others...) })
	w.a.ready(t, svc.Namespace, true)
	each("others' withheld again", ownAnswer)
	w.a.headless(t, svc, `""`)
	each("one label", func(t *testing.T, c *cluster) {
		for _, ip := range svc.Spec.ClusterIPs {
			c.wantRefused(t, "tcp", netip.AddrPortFrom(netip.MustParseAddr(ip), 80))
		}
	})
	w.a.headless(t, svc, "null")
	each("no label", ownAnswer)
}
