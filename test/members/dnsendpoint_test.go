package members

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// dnsEndpointZone is that of a's DNSEndpoints.
const dnsEndpointZone = "gslb.example.com"

// wantDNSEndpoint waits until the DNSEndpoint of a Service has these records, without the zone: "name type targets"
// each. Without any, there must be no object.
func (m *member) wantDNSEndpoint(t *testing.T, ns, name string, want ...string) *externaldnsv1alpha1.DNSEndpoint {
	t.Helper()
	e := &externaldnsv1alpha1.DNSEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "external-" + name}}
	eventually(t, fmt.Sprintf("%s: DNSEndpoint of %s/%s", m.ID, ns, name), func() error {
		err := m.Get(t.Context(), client.ObjectKeyFromObject(e), e)
		if client.IgnoreNotFound(err) != nil || err != nil && len(want) > 0 {
			return err
		}
		var got []string
		if err == nil {
			for _, r := range e.Spec.Endpoints {
				got = append(got, strings.TrimSuffix(r.DNSName, "."+ns+"."+dnsEndpointZone)+" "+r.RecordType+" "+
					strings.Join(r.Targets, " "))
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
	return e
}

// TestF6DNSEndpoints by a's agent, with its own ServiceAccount: it finds the CRD of external-dns when it comes, and
// has what external names answer. An edit is reverted, and what others made stays.
func TestF6DNSEndpoints(t *testing.T) {
	s := three(t)
	a, b := s.members["a"], s.members["b"]
	ns := s.namespace(t, "a", "b")
	b.balanced(t, ns, "10.2.0.1", corev1.LoadBalancerIngress{IP: "192.0.2.2"},
		corev1.LoadBalancerIngress{IP: "2001:db8::2"})
	a.wantExternal(t, ns, "web", "IPv4 192.0.2.2 true", "IPv6 2001:db8::2 true")
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"test/lab/externaldns", "deploy/member/dnsendpoint"} {
		if err := a.Cluster.ApplyFolder(t.Context(), filepath.Join(root, what)); err != nil {
			t.Fatal(err)
		}
	}
	onlyB := []string{"b.web A 192.0.2.2", "b.web AAAA 2001:db8::2", "web A 192.0.2.2", "web AAAA 2001:db8::2"}
	e := a.wantDNSEndpoint(t, ns, "web", onlyB...)
	if owner := e.OwnerReferences[0]; owner.Kind != "ServiceImport" || owner.Name != "web" || *owner.Controller {
		t.Errorf("owner %+v", owner)
	}

	a.balanced(t, ns, "10.1.0.1", corev1.LoadBalancerIngress{Hostname: "lb.example.com"})
	both := append([]string{"a.web CNAME lb.example.com"}, onlyB...)
	a.wantDNSEndpoint(t, ns, "web", both...)
	change(t, a, e, func(e *externaldnsv1alpha1.DNSEndpoint) { e.Spec.Endpoints[0].Targets = []string{"192.0.2.9"} })
	a.wantDNSEndpoint(t, ns, "web", both...)
	endpoints := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-1"}}
	change(t, b, endpoints, func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
	a.wantDNSEndpoint(t, ns, "web", "a.web CNAME lb.example.com", onlyB[0], onlyB[1], "web CNAME lb.example.com")

	// Another program's stay: the agent does not touch them, and whoever has its token cannot.
	a.remove(t, export(ns, "web"))
	b.remove(t, export(ns, "web"))
	a.wantDNSEndpoint(t, ns, "web")
	theirs := &externaldnsv1alpha1.DNSEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "external-web"}}
	a.create(t, theirs)
	path, err := a.Cluster.ServiceAccountKubeconfig(t.Context(), "clusterset-system", "clusterset-controller", nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	asAgent, err := client.New(cfg, client.Options{Scheme: agent.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := asAgent.Delete(t.Context(), theirs); err == nil || !strings.Contains(err.Error(), "did not make") {
		t.Errorf("with the agent's token, another program's DNSEndpoint: %v", err)
	}
	again := export(ns, "web")
	again.Annotations = map[string]string{external: "true"}
	a.create(t, again)
	a.wantEvent(t, ns, "external-web", "DNSEndpointNotOwned", "belongs to another program")
	if err := a.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil ||
		len(theirs.Spec.Endpoints)+len(theirs.Labels) > 0 {
		t.Errorf("another program's DNSEndpoint: %+v, %v", theirs, err)
	}
}
