package packets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestV2ARangeIsSwappedUnderTraffic: for a larger one, and that for a smaller one, in mode preferred. Flows of
// before live on, new ones are taken, and the name answers with the same VIPs throughout; nor does the loss of the
// derived Service in the smaller range move them.
func TestV2ARangeIsSwappedUnderTraffic(t *testing.T) {
	w, ns := clusters(t)
	w.mode(t, hubv1alpha1.VIPModePreferred)
	t.Cleanup(func() { w.mode(t, hubv1alpha1.VIPModeShared) })
	w.b.byHand(t, "first", "10.230.0.0/28", "fd00:10:230::/124")
	svc := service(ns, tcp("http", 80))
	w.a.exports(t, svc, "a1", "a2")
	w.c.exports(t, service(ns, tcp("http", 80)), "c1", "c2")
	v4, v6 := w.b.vips(t, ns, "a", "c")
	for _, a := range []netip.Addr{v4, v6} {
		if !within(a, "10.230.0.0/28", "fd00:10:230::/124") {
			t.Fatalf("%v is not of the range", a)
		}
	}

	name, server := svc.Name+"."+ns+".svc.clusterset.local.", dnsOf(t, w.b)
	r := newRecord(t)
	for _, vip := range []netip.Addr{v4, v6} {
		to := netip.AddrPortFrom(vip, 80)
		w.b.wantAnswers(t, "tcp", to, "a1:8080", "a2:8080", "c1:8080", "c2:8080")
		r.renewed(w.b, "tcp", to)
		r.lasting(w.b, "tcp", to, "a1:8080")
		r.lasting(w.b, "tcp", to, "c2:8080")
		r.resolved(server, name, vip)
	}
	r.more(50)
	w.b.swap(t, "first", "second", "10.230.0.0/27", "fd00:10:230::/123")
	r.more(50)
	w.b.swap(t, "second", "third", "10.230.0.0/28", "fd00:10:230::/124")
	r.more(50)
	if failed := r.stop(); len(failed) > 0 {
		t.Errorf("%d attempts failed", len(failed))
	}
	w.b.deleteDerived(t, ns, svc.Name)
	if again4, again6 := w.b.vips(t, ns, "a", "c"); again4 != v4 || again6 != v6 {
		t.Errorf("%v %v became %v %v", v4, v6, again4, again6)
	}
	w.b.wantAnswers(t, "tcp", netip.AddrPortFrom(v4, 80), "a1:8080", "a2:8080", "c1:8080", "c2:8080")
}

func within(a netip.Addr, prefixes ...string) bool {
	for _, p := range prefixes {
		if netip.MustParsePrefix(p).Contains(a) {
			return true
		}
	}
	return false
}

// mode sets the clusterset's.
func (w *world) mode(t *testing.T, mode hubv1alpha1.VIPMode) {
	t.Helper()
	hub := allKinds(t, w.set.Hub)
	eventually(t, "mode "+string(mode), func() error {
		set := &hubv1alpha1.ClusterSet{}
		if err := hub.Get(
			context.WithoutCancel(t.Context()),
			client.ObjectKey{Namespace: lab.HubNamespace, Name: lab.HubNamespace},
			set,
		); err != nil {
			return err
		}
		set.Spec.VIPs.Mode = mode
		return hub.Update(context.WithoutCancel(t.Context()), set)
	})
}

// allKinds is an admin's client that knows ours, too.
func allKinds(t *testing.T, cp *lab.ControlPlane) client.Client {
	t.Helper()
	c, err := cp.Client(agent.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// byHand makes a range for VIPs as an admin does, and waits until it gives out addresses and is held.
func (c *cluster) byHand(t *testing.T, name string, prefixes ...string) {
	t.Helper()
	cidr := &networkingv1.ServiceCIDR{}
	cidr.Name, cidr.Labels, cidr.Spec.CIDRs = name, map[string]string{ipam.LabelVIPs: ipam.Shared}, prefixes
	c.create(t, cidr)
	eventually(t, "range "+name, func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cidr), cidr); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady) ||
			len(cidr.Finalizers) < 2 {
			return fmt.Errorf("%v %v", cidr.Finalizers, cidr.Status.Conditions)
		}
		return nil
	})
}

// swap puts one range in the place of another, and waits until that is gone.
func (c *cluster) swap(t *testing.T, from, into string, prefixes ...string) {
	t.Helper()
	c.byHand(t, into, prefixes...)
	cidr := &networkingv1.ServiceCIDR{}
	cidr.Name = from
	if err := c.Delete(t.Context(), cidr); err != nil {
		t.Fatal(err)
	}
	eventually(t, "range "+from+" is gone", func() error {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(cidr), cidr)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("%v %v", cidr.DeletionTimestamp, cidr.Finalizers))
	})
}

// deleteDerived deletes what the policies let only the agent delete.
func (c *cluster) deleteDerived(t *testing.T, ns, name string) {
	t.Helper()
	imp := c.imported(t, ns, "a", "c")
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = ns, imp.Annotations["multicluster.kubernetes.io/derived-service"]
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Cluster.Kubectl(t.Context(), "", "delete", "service", "-n", ns, svc.Name,
		"--as=system:serviceaccount:clusterset-system:clusterset-controller"); err != nil {
		t.Fatal(err)
	}
	old := svc.UID
	eventually(t, "another derived Service of "+name, func() error {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(svc), svc)
		if err == nil && svc.UID == old {
			err = errors.New("it is the same")
		}
		return err
	})
}

// dnsOf is a CoreDNS for the cluster, for the length of the test.
func dnsOf(t *testing.T, c *cluster) *net.Resolver {
	t.Helper()
	server, err := lab.ServeDNS(t.Context(), c.Cluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Addr())
	}}
}

// resolved asks for a name again and again; the VIP must be the one address of its family.
func (r *record) resolved(server *net.Resolver, name string, vip netip.Addr) {
	network := "ip4"
	if vip.Is6() {
		network = "ip6"
	}
	r.stream("the "+network+" addresses of "+name, func() (string, error) {
		all, err := server.LookupNetIP(context.WithoutCancel(r.ctx), network, name)
		if err == nil && (len(all) != 1 || all[0].Unmap() != vip) {
			err = fmt.Errorf("want %s", vip)
		}
		return fmt.Sprint(all), err
	})
}
