//go:build interop

package interop

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	outside "github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/dnsendpoint"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// churn is how many changes of one address follow each other.
const churn = 90

const (
	gslb   = "gslb.example.com"
	secret = "c2VjcmV0LW9mLXRoZS10ZXN0LTEyMzQ1Njc4OTAxMg=="
)

// clusters are the members of a clusterset on real control planes, with an admin's client each.
type clusters struct {
	t       *testing.T
	members map[string]client.Client
	set     *lab.ClusterSet
}

func startClusters(t *testing.T) *clusters {
	t.Helper()
	set, err := lab.StartClusterSet(t.Context(), lab.ClusterSetOptions{
		Members: []string{"east", "west"}, AgentArgs: map[string][]string{"east": {"--dnsendpoint-zone", gslb}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Stop)
	c := &clusters{t, map[string]client.Client{}, set}
	for _, m := range set.Members {
		cfg, err := m.Cluster.RESTConfig()
		if err != nil {
			t.Fatal(err)
		}
		if c.members[m.ID], err = client.New(cfg, client.Options{Scheme: agent.Scheme()}); err != nil {
			t.Fatal(err)
		}
		c.create(m.ID, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop.Namespace}})
	}
	return c
}

var shop = types.NamespacedName{Namespace: "eu", Name: "shop"}

func (c *clusters) create(in string, o client.Object) {
	c.t.Helper()
	if err := c.members[in].Create(c.t.Context(), o); err != nil {
		c.t.Fatal(err)
	}
}

// export makes shop, with a ready endpoint and an export for clients outside the clusters.
func (c *clusters) export(in string) {
	c.t.Helper()
	meta := metav1.ObjectMeta{Namespace: shop.Namespace, Name: shop.Name}
	svc := &corev1.Service{ObjectMeta: meta}
	svc.Spec.Type, svc.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Name: "http", Port: 80}}
	c.create(in, svc)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: shop.Name}
	slice.Ports = []discoveryv1.EndpointPort{
		{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)},
	}
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.9.0.1"}}}
	c.create(in, slice)
	export := &mcsv1beta1.ServiceExport{ObjectMeta: meta}
	export.Annotations = map[string]string{outside.Label: "true"}
	c.create(in, export)
}

// update changes an object of shop.
func update[T client.Object](c *clusters, in string, o T, change func(T)) {
	c.t.Helper()
	eventually(c.t, "a write", func() bool {
		if err := c.members[in].Get(c.t.Context(), shop, o); err != nil {
			return false
		}
		change(o)
		if svc, is := any(o).(*corev1.Service); is {
			return c.members[in].Status().Update(c.t.Context(), svc) == nil
		}
		return c.members[in].Update(c.t.Context(), o) == nil
	})
}

func (c *clusters) balance(in string, ingress ...corev1.LoadBalancerIngress) {
	update(c, in, &corev1.Service{}, func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = ingress })
}

func (c *clusters) ready(in string, ready bool) {
	update(c, in, &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[0].Conditions.Ready = &ready
	})
}

func (c *clusters) weigh(in, weight string) {
	update(c, in, &mcsv1beta1.ServiceExport{}, func(e *mcsv1beta1.ServiceExport) {
		e.Annotations[outside.AnnotationWeight] = weight
	})
}

// decided returns what the records of east's slices are: "name type data" each, sorted.
func (c *clusters) decided() (out []string) {
	var list discoveryv1.EndpointSliceList
	of := client.MatchingLabels{outside.Label: shop.Name}
	if err := c.members["east"].List(c.t.Context(), &list, client.InNamespace(shop.Namespace), of); err != nil {
		c.t.Fatal(err)
	}
	for _, r := range dnsendpoint.Records(gslb, shop, list.Items) {
		for _, target := range r.Targets {
			out = append(out, r.DNSName+" "+r.RecordType+" "+target)
		}
	}
	slices.Sort(out)
	return out
}

// transferred returns what a name server has of the zone, except for SOA and NS.
func transferred(t *testing.T, at int) (out []string) {
	t.Helper()
	transfer := &dns.Transfer{TsigSecret: map[string]string{"test.": secret}}
	q := new(dns.Msg).SetAxfr(gslb + ".")
	q.SetTsig("test.", dns.HmacSHA256, 300, time.Now().Unix())
	parts, err := transfer.In(q, fmt.Sprintf("127.0.0.1:%d", at))
	if err != nil {
		return []string{err.Error()}
	}
	for part := range parts {
		if part.Error != nil {
			return []string{part.Error.Error()}
		}
		for _, rr := range part.RR {
			if h := rr.Header(); h.Rrtype != dns.TypeSOA && h.Rrtype != dns.TypeNS {
				data := strings.TrimPrefix(rr.String(), h.String())
				out = append(out, strings.TrimSuffix(h.Name, ".")+" "+dns.TypeToString[h.Rrtype]+" "+
					strings.TrimSuffix(data, "."))
				if h.Ttl != 30 {
					t.Errorf("TTL of %v", rr)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestF6ExternalDNS: the real external-dns brings what the agent decides into BIND, through a churn of changes.
func TestF6ExternalDNS(t *testing.T) {
	program, err := filepath.Abs(cmp.Or(os.Getenv("EXTERNAL_DNS"), "../../bin/external-dns"))
	if err != nil {
		t.Fatal(err)
	}
	c := startClusters(t)
	east := c.set.Members[0]
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"test/lab/externaldns", "deploy/member/dnsendpoint"} {
		if err := east.Cluster.ApplyFolder(t.Context(), filepath.Join(root, folder)); err != nil {
			t.Fatal(err)
		}
	}
	at := port(t)
	named(t, at, "key \"test\" { algorithm hmac-sha256; secret \"%s\"; };\n"+
		"zone \"%s\" { type primary; file \"%s\"; allow-transfer { key \"test\"; };"+
		" allow-update { key \"test\"; }; };\n",
		secret, gslb, file(t, "$TTL 60\n@ SOA ns hostmaster 1 60 60 600 60\n@ NS ns.example.net.\n"))
	run(t, program, "--kubeconfig", east.Cluster.Kubeconfig(), "--source=crd", "--provider=rfc2136",
		"--rfc2136-host=127.0.0.1", fmt.Sprint("--rfc2136-port=", at), "--rfc2136-zone="+gslb,
		"--rfc2136-tsig-keyname=test", "--rfc2136-tsig-secret="+secret, "--rfc2136-tsig-secret-alg=hmac-sha256",
		"--rfc2136-tsig-axfr", "--registry=noop", "--policy=sync", "--interval=1s", "--min-event-sync-interval=1s",
		fmt.Sprint("--metrics-address=127.0.0.1:", port(t)))

	c.export("east")
	c.export("west")
	// follow waits until BIND has what is decided, and that is what the change must lead to.
	follow := func(what string, want ...string) {
		t.Helper()
		for i := range want {
			name, rest, _ := strings.Cut(want[i], " ")
			want[i] = strings.TrimPrefix(name+".shop.eu."+gslb+" "+rest, "@.")
		}
		slices.Sort(want)
		began := time.Now()
		deadline := began.Add(3 * limit)
		for {
			decided, got := c.decided(), transferred(t, at)
			if slices.Equal(decided, want) && slices.Equal(got, want) {
				t.Logf("%s: %d records after %v", what, len(got), time.Since(began).Round(10*time.Millisecond))
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: BIND has\n%s\ndecided is\n%s\nwant\n%s", what, strings.Join(got, "\n"),
					strings.Join(decided, "\n"), strings.Join(want, "\n"))
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	c.balance("east", corev1.LoadBalancerIngress{IP: "192.0.2.1"}, corev1.LoadBalancerIngress{IP: "2001:db8::1"})
	eastOnly := []string{"@ A 192.0.2.1", "@ AAAA 2001:db8::1", "east A 192.0.2.1", "east AAAA 2001:db8::1"}
	follow("the first load balancer", slices.Clone(eastOnly)...)
	c.balance("west", corev1.LoadBalancerIngress{IP: "198.51.100.1"})
	both := append(slices.Clone(eastOnly), "@ A 198.51.100.1", "west A 198.51.100.1")
	follow("a second cluster", slices.Clone(both)...)
	c.ready("west", false)
	follow("west is down", append(slices.Clone(eastOnly), "west A 198.51.100.1")...)
	c.ready("west", true)
	follow("west is up", slices.Clone(both)...)
	c.weigh("east", "0")
	follow("east is drained", "@ A 198.51.100.1", "east A 192.0.2.1", "east AAAA 2001:db8::1", "west A 198.51.100.1")
	c.balance("west", corev1.LoadBalancerIngress{Hostname: "lb.example.net"})
	c.ready("east", false)
	follow("a host name in place of addresses", "@ CNAME lb.example.net", "east A 192.0.2.1", "east AAAA 2001:db8::1",
		"west CNAME lb.example.net")
	c.ready("east", true)
	c.weigh("east", "100")
	c.balance("west", corev1.LoadBalancerIngress{IP: "198.51.100.2"})
	follow("another address", append(slices.Clone(eastOnly), "@ A 198.51.100.2", "west A 198.51.100.2")...)
	for i := range churn {
		moved := fmt.Sprintf("203.0.113.%d", i+1)
		c.balance("west", corev1.LoadBalancerIngress{IP: moved})
		follow("a move of many", append(slices.Clone(eastOnly), "@ A "+moved, "west A "+moved)...)
	}
	for in, left := range map[string][]string{"west": eastOnly} {
		if err := c.members[in].Delete(context.WithoutCancel(t.Context()), &mcsv1beta1.ServiceExport{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop.Namespace, Name: shop.Name},
		}); err != nil {
			t.Fatal(err)
		}
		follow("no export from "+in, slices.Clone(left)...)
	}
	update(c, "east", &mcsv1beta1.ServiceExport{}, func(e *mcsv1beta1.ServiceExport) {
		delete(e.Annotations, outside.Label)
	})
	follow("nobody asks any more")
}
