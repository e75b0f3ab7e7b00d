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

// through is the cluster, asked from another node, whose kube-proxy is in another mode. For it that is the same Node:
// where the addresses of a Node are, it does not ask.
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

// labelled sets or removes a label of the slices of the cluster's own Service.
func (c *cluster) labelled(t *testing.T, svc *corev1.Service, label string, on bool) {
	t.Helper()
	value := "null"
	if on {
		value = `"none"`
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, value))
	for _, s := range c.endpoints(svc) {
		if err := c.Patch(t.Context(), s, patch); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWithheldSlicesGetNoConnection (T2), with kube-proxy in either mode: neither those that the agent withholds, nor
// any that has one of its two labels. They get connections once they are withheld no more.
func TestWithheldSlicesGetNoConnection(t *testing.T) {
	w, svc, vip := preferring(t)
	if err := w.a.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
		t.Fatal(err)
	}
	for mode, c := range map[string]*cluster{
		"nftables": w.a, "iptables": w.a.through(t, "iptables", w.net.nodes[4]),
	} {
		t.Run(mode, func(t *testing.T) {
			c.wantAnswers(t, "tcp", vip[w.a], own...) // b's slice is withheld
			c.ready(t, svc.Namespace, false)
			c.wantAnswers(t, "tcp", vip[w.a], others...)
			c.ready(t, svc.Namespace, true)
			c.wantAnswers(t, "tcp", vip[w.a], own...)

			for _, label := range []string{corev1.IsHeadlessService, "service.kubernetes.io/service-proxy-name"} {
				for _, on := range []bool{false, true, false} {
					c.labelled(t, svc, label, on)
					for _, ip := range svc.Spec.ClusterIPs {
						to := netip.AddrPortFrom(netip.MustParseAddr(ip), 80)
						if on {
							c.wantRefused(t, "tcp", to)
						} else {
							c.wantAnswers(t, "tcp", to, own...)
						}
					}
				}
			}
		})
	}
}
