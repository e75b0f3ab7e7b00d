package kube

import (
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func clusterSetIP(name string, ips ...string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		TypeMeta:   metav1.TypeMeta{APIVersion: "multicluster.x-k8s.io/v1beta1", Kind: "ServiceImport"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: name},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, IPs: ips,
			Ports: []mcsv1beta1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}},
		},
	}
}

func headless(name string) *mcsv1beta1.ServiceImport {
	o := clusterSetIP(name)
	o.Spec.Type = mcsv1beta1.Headless
	return o
}

// slice of the Service named service from cluster, with ready endpoints of these addresses.
func slice(name, service, cluster string, addresses ...string) *discoveryv1.EndpointSlice {
	port, number, proto := "https", int32(8443), corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: name, Labels: map[string]string{
			labelServiceName: service, labelSourceCluster: cluster,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: &proto}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func in[T object](o T, namespace string) T {
	o = o.DeepCopyObject().(T)
	o.SetNamespace(namespace)
	return o
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}
}

// addrs are the IPv4 addresses that the index has for a Service, "absent" for a name that answers nothing.
func addrs(x *catalog.Table[*catalog.Service], key string) string {
	s := x.Service(key)
	if s == nil {
		return "absent"
	}
	var all []string
	for packed := s.Self(catalog.V4, catalog.Window{}).Addrs; packed != ""; packed = packed[4:] {
		addr, _ := netip.AddrFromSlice([]byte(packed[:4]))
		all = append(all, addr.String())
	}
	return strings.Join(all, " ")
}

const patience = 2 * time.Minute

// eventually waits for a condition that another goroutine makes true.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("not within %v: %s\n%s", patience, what, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func open(t testing.TB, c Config) *Watch {
	t.Helper()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	w, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func synced(t testing.TB, w *Watch) *Watch {
	t.Helper()
	select {
	case <-w.Wait():
	case <-time.After(patience):
		t.Fatalf("not synced within %v: refused %v", patience, w.Refused())
	}
	return w
}

func answers(t testing.TB, w *Watch, key, want string) {
	t.Helper()
	eventually(t, key+" answers "+want, func() bool { return addrs(w.Index(), key) == want })
}
