package packets

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// limit is far more than anything takes: machines are shared.
const limit = 4 * time.Minute

// eventually asks until there is no error.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	if err := lab.Until(t.Context(), limit, what, ask); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("%s: %T %s/%s: %v", c.ID, o, o.GetNamespace(), o.GetName(), err)
		}
	}
}

func (c *cluster) update(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatalf("%s: %T %s/%s: %v", c.ID, o, o.GetNamespace(), o.GetName(), err)
		}
	}
}

// service is one of both families without a selector; its endpoints are the test's.
func service(namespace string, ports ...corev1.ServicePort) *corev1.Service {
	both := corev1.IPFamilyPolicyRequireDualStack
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       corev1.ServiceSpec{IPFamilyPolicy: &both, Ports: ports},
	}
}

func tcp(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolTCP}
}

func udp(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolUDP}
}

// endpoints are the Service's slices, one of each family, with these backends of the cluster; the Service's ports
// are theirs, in the
// order of serving.
func (c *cluster) endpoints(svc *corev1.Service, backends ...string) []client.Object {
	var out []client.Object
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: svc.Namespace, Name: svc.Name + "-" + strings.ToLower(string(family)),
				Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
			},
			AddressType: family,
		}
		for i := range svc.Spec.Ports {
			p, target := &svc.Spec.Ports[i], int32(serving[i])
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &target})
		}
		for _, name := range backends {
			at, node, ready := c.backends[name].v4, nodeName, true
			if family == discoveryv1.AddressTypeIPv6 {
				at = c.backends[name].v6
			}
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{
					at.String(),
				},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				Zone:       &c.zone,
				NodeName:   &node,
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: svc.Namespace, Name: name},
			})
		}
		out = append(out, s)
	}
	return out
}

func export(svc *corev1.Service) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
}

// exports makes a Service with these backends, and exports it.
func (c *cluster) exports(t *testing.T, svc *corev1.Service, backends ...string) {
	t.Helper()
	c.create(t, svc)
	c.create(t, c.endpoints(svc, backends...)...)
	c.create(t, export(svc))
}

func (c *cluster) unexports(t *testing.T, svc *corev1.Service) {
	t.Helper()
	if err := c.Delete(t.Context(), export(svc)); err != nil {
		t.Fatalf("%s: ServiceExport: %v", c.ID, err)
	}
}

// imported waits until the import lists these exporters and is ready.
func (c *cluster) imported(t *testing.T, namespace string, exporters ...string) *mcsv1beta1.ServiceImport {
	t.Helper()
	imp := &mcsv1beta1.ServiceImport{}
	eventually(t, c.ID+": import from "+strings.Join(exporters, ", "), func() error {
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, imp); err != nil {
			return err
		}
		var from []string
		for _, s := range imp.Status.Clusters {
			from = append(from, s.Cluster)
		}
		if !slices.Equal(from, exporters) ||
			!meta.IsStatusConditionTrue(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)) {
			return fmt.Errorf("status %+v", imp.Status)
		}
		return nil
	})
	return imp
}

// vips are the import's addresses, IPv4 and IPv6, once it lists these exporters.
func (c *cluster) vips(t *testing.T, namespace string, exporters ...string) (v4, v6 netip.Addr) {
	t.Helper()
	for _, ip := range c.imported(t, namespace, exporters...).Spec.IPs {
		if a := netip.MustParseAddr(ip); a.Is4() {
			v4 = a
		} else {
			v6 = a
		}
	}
	if !v4.IsValid() || !v6.IsValid() {
		t.Fatalf("%s: the import has not got an address of each family: %v %v", c.ID, v4, v6)
	}
	return v4, v6
}

// asked are the import's VIPs at a port, once it lists these exporters.
func (c *cluster) asked(t *testing.T, namespace string, port uint16, exporters ...string) []netip.AddrPort {
	t.Helper()
	v4, v6 := c.vips(t, namespace, exporters...)
	return []netip.AddrPort{netip.AddrPortFrom(v4, port), netip.AddrPortFrom(v6, port)}
}

// wantAnswers asks from the cluster's pod until these answer, "BACKEND:PORT", and no other does in a round of so
// many questions that
// each of them is asked all but surely. It returns all answers that came meanwhile.
func (c *cluster) wantAnswers(
	t *testing.T,
	protocol string,
	to netip.AddrPort,
	want ...string,
) (all map[string]int) {
	t.Helper()
	all = map[string]int{}
	eventually(t, fmt.Sprintf("%s asks %s %v", c.ID, protocol, to), func() error {
		round := map[string]bool{}
		var errs []error
		for range 20 * len(want) {
			answer, err := c.pod.ask(protocol, netip.Addr{}, to)
			if err != nil {
				errs = append(errs, err)
				break
			}
			round[answer] = true
			all[answer]++
		}
		if got := slices.Sorted(maps.Keys(round)); len(errs) > 0 || !slices.Equal(got, want) {
			errs = append(errs, fmt.Errorf("answers from %v, want %v", got, want))
		}
		return errors.Join(errs...)
	})
	return all
}

// wantRefused asks until nobody takes the question.
func (c *cluster) wantRefused(t *testing.T, protocol string, to netip.AddrPort) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s asks %s %v", c.ID, protocol, to), func() error {
		answer, err := c.pod.ask(protocol, netip.Addr{}, to)
		if !refused(err) {
			return fmt.Errorf("answer %q, error %v, want it refused", answer, err)
		}
		return nil
	})
}
