package members

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// hidesOurSlices is the line of corefile.example that this file tests.
const hidesOurSlices = "       labels endpointslice.kubernetes.io/managed-by " +
	"notin (clusterset-controller.clusterset-dns.io)\n"

// TestExportsChangeNoAnswerOfClusterLocal: A, SRV and PTR of all Services and Pods of cluster.local stay, in the
// exporter and in an importer, if CoreDNS has the Corefile that we ship. Without our line in it, they do not.
func TestExportsChangeNoAnswerOfClusterLocal(t *testing.T) {
	t.Parallel()
	s := three(t)
	a, b := s.members["a"], s.members["b"]
	ns := s.namespace(t, "a", "b")
	for m, pods := range map[*member]string{a: "10.65.1.", b: "10.65.2."} {
		db, web, own := headless(ns, "db"), service(ns, "web"), service(ns, "own")
		named := slice(db, "db-1", pods+"1", pods+"2") // a StatefulSet's Pod, and one without a hostname
		named.Endpoints[0].Hostname = new("db-0")
		named.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: "db-0"}
		all := headless(ns, "all")
		m.create(t, db, named, web, slice(web, "web-1", pods+"3"), own, slice(own, "own-1", pods+"4"),
			all, slice(all, "all-1", pods+"1", pods+"3")) // which have two names in either case
	}
	var questions []dns.Question
	for _, m := range []*member{a, b} {
		questions = append(questions, m.questions(t, ns)...)
	}
	// Each answer is of a CoreDNS of its own: its cache would keep the ones before.
	ask := func(m *member, corefile string) map[string]string { return m.answers(t, corefile, questions) }
	shipped := shippedCorefile(t)
	before := map[*member]map[string]string{a: ask(a, shipped), b: ask(b, shipped)}
	if first := before[a]["1.1.65.10.in-addr.arpa. PTR"]; !strings.Contains(first, "db-0.db.") {
		t.Fatalf("a Pod has the name %q", first)
	}

	a.create(t, export(ns, "db"), export(ns, "web"))
	b.create(t, export(ns, "db"))
	for _, m := range []*member{a, b} {
		m.wantImport(t, ns, "db", ready("a", "b"))
		m.wantEndpoints(t, ns, "db", "a/http/10.65.1.1:8080", "a/http/10.65.1.2:8080", "b/http/10.65.2.1:8080",
			"b/http/10.65.2.2:8080")
		m.wantEndpoints(t, ns, "web", "a/http/10.65.1.3:8080")
		vip := m.derivedOf(t, m.wantImport(t, ns, "web", ready("a")))
		name := vip.Name + "." + ns + ".svc.cluster.local."
		reverse, err := dns.ReverseAddr(vip.Spec.ClusterIP)
		if err != nil {
			t.Fatal(err)
		}
		own := []dns.Question{{Name: name, Qtype: dns.TypeA}, {Name: name, Qtype: dns.TypeSRV},
			{Name: reverse, Qtype: dns.TypePTR}}
		got := m.answers(t, shipped, append(slices.Clone(questions), own...))
		for i, want := range []string{"NOERROR [" + vip.Spec.ClusterIP + "]", "NOERROR [0 100 80 " + name + "]",
			"NOERROR [" + name + "]"} {
			if is := got[asked(own[i])]; is != want {
				t.Errorf("%s: the derived Service: %s: %s, want %s", m.ID, asked(own[i]), is, want)
			}
		}
		for q, was := range before[m] {
			if got[q] != was {
				t.Errorf("%s: %s was %s, and is %s after the exports", m.ID, q, was, got[q])
			}
		}
		without, changed := m.answers(t, strings.Replace(shipped, hidesOurSlices, "", 1), questions), 0
		for q, was := range before[m] {
			if without[q] != was {
				changed++
			}
		}
		if changed == 0 {
			t.Errorf("%s: without our line, no answer changes: CoreDNS does not need it any more", m.ID)
		}
	}
}

// questions returns all that one can ask of a member's Services and Pods in a namespace.
func (m *member) questions(t *testing.T, ns string) (out []dns.Question) {
	t.Helper()
	add := func(name string, types ...uint16) {
		for _, kind := range types {
			out = append(out, dns.Question{Name: name, Qtype: kind})
		}
	}
	reverse := func(address string) {
		name, err := dns.ReverseAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		add(name, dns.TypePTR)
	}
	var services corev1.ServiceList
	var endpoints discoveryv1.EndpointSliceList
	if err := errors.Join(m.List(t.Context(), &services, client.InNamespace(ns)),
		m.List(t.Context(), &endpoints, client.InNamespace(ns))); err != nil {
		t.Fatal(err)
	}
	for _, svc := range services.Items {
		name := svc.Name + "." + ns + ".svc.cluster.local."
		add(name, dns.TypeA, dns.TypeAAAA, dns.TypeSRV)
		add("_http._tcp."+name, dns.TypeSRV)
		if svc.Spec.ClusterIP != corev1.ClusterIPNone {
			reverse(svc.Spec.ClusterIP)
		}
	}
	for _, s := range endpoints.Items {
		name := s.Labels[discoveryv1.LabelServiceName] + "." + ns + ".svc.cluster.local."
		for _, e := range s.Endpoints {
			dashed := strings.ReplaceAll(e.Addresses[0], ".", "-")
			add(dashed+"."+ns+".pod.cluster.local.", dns.TypeA)
			add(dashed+"."+name, dns.TypeA)
			if e.Hostname != nil {
				add(*e.Hostname+"."+name, dns.TypeA)
			}
			reverse(e.Addresses[0])
		}
	}
	return out
}

// shippedCorefile is corefile.example, with what a process outside of a Pod needs.
func shippedCorefile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../corefile.example")
	if err != nil {
		t.Fatal(err)
	}
	out := string(text)
	for _, c := range [][2]string{
		{":53 {\n", ":DNS_PORT {\n    bind 127.0.0.1\n"},
		{"    health {\n", "    health HEALTH_ADDR {\n"},
		{"    ready\n", "    ready READY_ADDR\n"},
		{"    prometheus :9153\n", "    prometheus METRICS_ADDR\n"},
		{"    multicluster\n", "    multicluster {\n        kubeconfig KUBECONFIG\n    }\n"},
		{"ip6.arpa {\n", "ip6.arpa {\n       kubeconfig KUBECONFIG\n"},
		{"/etc/resolv.conf", "127.0.0.1:1"},
		{hidesOurSlices, hidesOurSlices},
	} {
		if !strings.Contains(out, c[0]) {
			t.Fatalf("corefile.example has no %q", c[0])
		}
		out = strings.ReplaceAll(out, c[0], c[1])
	}
	return out
}

// answers starts CoreDNS in a member, and returns its response codes and data. Records have no order.
func (m *member) answers(t *testing.T, corefile string, questions []dns.Question) map[string]string {
	t.Helper()
	server, err := lab.ServeDNS(t.Context(), m.Cluster, func(kubeconfig string) (string, error) {
		return strings.ReplaceAll(corefile, "KUBECONFIG", kubeconfig), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	out := map[string]string{}
	for _, q := range questions {
		ask := new(dns.Msg).SetQuestion(q.Name, q.Qtype)
		reply, _, err := (&dns.Client{Net: "tcp", Timeout: time.Minute}).ExchangeContext(
			t.Context(),
			ask,
			server.Addr(),
		)
		if err != nil {
			t.Fatalf("%s: %s: %v", m.ID, asked(q), err)
		}
		var data []string
		for _, rr := range reply.Answer {
			data = append(data, strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
		slices.Sort(data)
		out[asked(q)] = fmt.Sprint(dns.RcodeToString[reply.Rcode], " ", data)
	}
	return out
}

func asked(q dns.Question) string { return q.Name + " " + dns.TypeToString[q.Qtype] }
