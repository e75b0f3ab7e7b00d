package members

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const (
	external       = "clusterset-dns.io/external"
	externalWeight = "clusterset-dns.io/external-weight"
)

// wantExternal waits until the slices of a name for clients outside are these: "type address ready" each.
func (m *member) wantExternal(t *testing.T, ns, name string, want ...string) (slice []discoveryv1.EndpointSlice) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: slices for clients outside of %s/%s", m.ID, ns, name), func() error {
		var list discoveryv1.EndpointSliceList
		of := client.MatchingLabels{external: name}
		if err := m.List(t.Context(), &list, client.InNamespace(ns), of); err != nil {
			return err
		}
		var got []string
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				got = append(
					got,
					fmt.Sprint(s.AddressType, " ", e.Addresses[0], " ", ptr.Deref(e.Conditions.Ready, true)),
				)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		slice = list.Items
		return nil
	})
	return slice
}

// balanced makes a Service with a load balancer of these addresses, and exports it for clients outside.
func (m *member) balanced(t *testing.T, ns, endpoint string, ingress ...corev1.LoadBalancerIngress) {
	t.Helper()
	svc := service(ns, "web")
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	e := export(ns, "web")
	e.Annotations = map[string]string{external: "true", externalWeight: "30"}
	m.create(t, svc, slice(svc, "web-1", endpoint), e)
	svc.Status.LoadBalancer.Ingress = ingress
	if err := m.Status().Update(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
}

// TestF5NamesForClientsOutside: members have the load balancers of others, ready while there is a ready endpoint.
// What another program made stays. A dead member is not ready, and its import stays.
func TestF5NamesForClientsOutside(t *testing.T) {
	t.Parallel()
	m := mortals(t)
	a, b, c := m.members["a"], m.members["b"], m.members["c"]
	ns := "outside"
	for _, in := range m.members {
		in.create(t, &corev1.Namespace{ObjectMeta: objectMeta(ns)})
	}
	for name, value := range map[string]string{"region": "eu", "location": "50.1,8.7", "continent": "Europe"} {
		property := &aboutv1beta1.ClusterProperty{ObjectMeta: objectMeta(name)}
		property.Spec.Value = value
		a.create(t, property)
	}
	theirs := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: ns, Name: "web.a.external-ipv4"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.99"}}},
	}
	c.create(t, theirs)

	a.balanced(t, ns, "10.1.0.1", corev1.LoadBalancerIngress{IP: "192.0.2.1"},
		corev1.LoadBalancerIngress{IP: "2001:db8::1"}, corev1.LoadBalancerIngress{Hostname: "lb.example.com"})
	all := []string{"FQDN lb.example.com true", "IPv4 192.0.2.1 true", "IPv6 2001:db8::1 true"}
	a.wantExternal(t, ns, "web", all...)
	imp := b.wantImport(t, ns, "web", ready("a"))
	a.wantMessage(t, ns, "web", "continent")
	for _, s := range b.wantExternal(t, ns, "web", all...) {
		owner := s.OwnerReferences[0]
		if s.Labels[mcsv1beta1.LabelSourceCluster] != "a" || s.Labels[discoveryv1.LabelServiceName] != "" ||
			s.Labels[mcsv1beta1.LabelServiceName] != "" || s.Annotations[externalWeight] != "30" ||
			s.Annotations["clusterset-dns.io/region"] != "eu" ||
			s.Annotations["clusterset-dns.io/location"] != "50.1,8.7" ||
			s.Annotations["clusterset-dns.io/continent"] != "" || owner.UID != imp.UID || *owner.Controller {
			t.Errorf("%+v", s.ObjectMeta)
		}
	}
	c.wantExternal(t, ns, "web", all[0], all[2])
	c.wantEvent(t, ns, "web", "NotOwned", theirs.Name)
	b.wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")

	// An edit is reverted (I9), also one that would give the addresses to a Service.
	change(t, b, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web.a.external-ipv6"}},
		func(s *discoveryv1.EndpointSlice) {
			s.Labels[external], s.Labels[discoveryv1.LabelServiceName] = "other", "web"
			s.Endpoints = nil
		})
	b.wantExternal(t, ns, "web", all...)

	web := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-1"}}
	change(t, a, web, func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
	down := []string{"FQDN lb.example.com false", "IPv4 192.0.2.1 false", "IPv6 2001:db8::1 false"}
	for _, in := range []*member{a, b} {
		in.wantExternal(t, ns, "web", down...)
	}
	change(t, a, web, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}}
	})
	b.wantExternal(t, ns, "web", all...)

	// b exports as well. Then the ClusterSet forbids it all, and allows it again.
	b.balanced(t, ns, "10.2.0.1", corev1.LoadBalancerIngress{IP: "192.0.2.2"})
	two := []string{all[0], all[1], "IPv4 192.0.2.2 true", all[2]}
	a.wantExternal(t, ns, "web", two...)
	forbid := func(rule hubv1alpha1.ExternalNames) {
		t.Helper()
		set := &hubv1alpha1.ClusterSet{}
		set.Namespace, set.Name = lab.HubNamespace, lab.HubNamespace
		change(t, &member{&lab.Member{ID: "hub"}, m.hub}, set,
			func(s *hubv1alpha1.ClusterSet) { s.Spec.ExternalNames = rule })
	}
	forbid(hubv1alpha1.ExternalNamesForbid)
	for _, in := range []*member{a, b, c} {
		in.wantExternal(t, ns, "web")
	}
	a.wantMessage(t, ns, "web", "spec.externalNames")
	b.wantImport(t, ns, "web", ready("a", "b"))
	forbid(hubv1alpha1.ExternalNamesAllow)
	for _, in := range []*member{a, b} {
		in.wantExternal(t, ns, "web", two...)
	}

	a.Agent.Kill() // agents of this laboratory do not answer: its Lease decides, and b and c say so
	killed := time.Now()
	b.wantExternal(t, ns, "web", down[0], down[1], two[2], down[2])
	t.Logf("down after %v", time.Since(killed))
	if err := a.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantExternal(t, ns, "web", two...)

	change(t, a, export(ns, "web"), func(e *mcsv1beta1.ServiceExport) { delete(e.Annotations, external) })
	b.wantExternal(t, ns, "web", two[2])
	b.remove(t, export(ns, "web"))
	for _, in := range []*member{a, b, c} {
		in.wantExternal(t, ns, "web")
	}
	change(t, a, export(ns, "web"), func(e *mcsv1beta1.ServiceExport) { e.Annotations[external] = "true" })
	b.wantExternal(t, ns, "web", all...)

	// b leaves, and its slices go; those of others stay.
	membership := &aboutv1beta1.ClusterProperty{ObjectMeta: objectMeta("clusterset.k8s.io")}
	change(t, b, membership, func(p *aboutv1beta1.ClusterProperty) {
		p.Annotations = map[string]string{"clusterset-dns.io/leaving": "true"}
	})
	b.wantExternal(t, ns, "web")
	c.wantExternal(t, ns, "web", all[0], all[2])
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil ||
		theirs.Endpoints[0].Addresses[0] != "192.0.2.99" || len(theirs.Labels) > 0 {
		t.Errorf("the slice of another program: %+v, %v", theirs, err)
	}
}
