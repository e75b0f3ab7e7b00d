package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const redpanda = "cluster.redpanda.com/operator"

// declaration is a ServiceImport of the shape that Redpanda's operator declares for each broker of another cluster
// (redpanda-data/redpanda-operator, operator/multicluster/mcs.go at 0ab8019): v1alpha1, type and ports, no ips.
func declaration(ns, name string, port int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
		"metadata": map[string]any{"namespace": ns, "name": name, "labels": map[string]any{
			"app.kubernetes.io/name": "redpanda", "app.kubernetes.io/managed-by": "redpanda-operator",
		}},
		"spec": map[string]any{"type": "ClusterSetIP", "ports": []any{
			map[string]any{"name": "http", "protocol": "TCP", "port": port},
		}},
		"status": map[string]any{},
	}}
}

// declare applies a declaration as that operator does, and returns what the API server made of it.
func (m *member) declare(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	applied := o.DeepCopy()
	if err := m.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(redpanda),
		client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	return applied
}

// wantFields compares who has which fields of an import: the agent, and the program that declared it.
func wantFields(t *testing.T, imp *mcsv1beta1.ServiceImport, want map[string][]string) {
	t.Helper()
	got := map[string][]string{}
	for _, e := range imp.ManagedFields {
		var fields map[string]any
		if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
			t.Fatal(err)
		}
		who := strings.TrimSpace(e.Manager + " " + e.Subresource)
		for parent, of := range fields {
			for field := range of.(map[string]any) {
				if in := of.(map[string]any)[field].(map[string]any); parent == "f:metadata" {
					for key := range in {
						got[who] = append(got[who], strings.TrimPrefix(key, "f:"))
					}
				} else {
					got[who] = append(got[who], strings.TrimPrefix(field, "f:"))
				}
			}
		}
	}
	for who := range got {
		got[who] = slices.DeleteFunc(got[who], func(field string) bool { return field == "." })
		slices.Sort(got[who])
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("fields of import %s: %v, want %v", imp.Name, got, want)
	}
}

// asker asks for the VIP of a name again and again.
type asker struct {
	asked int
	lost  []string
	done  chan struct{}
	end   context.CancelFunc
}

// ask begins to ask server for name every 20 ms. After the first answer, each must be vip.
func ask(t *testing.T, server, name, vip string) *asker {
	t.Helper()
	eventually(t, "an answer for "+name, func() error {
		got, err := lookup(server, name)
		if err == nil && !slices.Equal(got, []string{vip}) {
			err = fmt.Errorf("%v, want %s", got, vip)
		}
		return err
	})
	a := &asker{done: make(chan struct{})}
	ctx, end := context.WithCancel(t.Context())
	a.end = end
	go func() {
		defer close(a.done)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			a.asked++
			if got, err := lookup(server, name); err != nil || !slices.Equal(got, []string{vip}) {
				a.lost = append(a.lost, fmt.Sprintf("%s: %v %v", time.Now().Format("15:04:05.000"), got, err))
			}
		}
	}()
	return a
}

// stop ends it, and fails the test if an answer was lost.
func (a *asker) stop(t *testing.T) {
	t.Helper()
	a.end()
	<-a.done
	if t.Logf("%d questions", a.asked); len(a.lost) > 0 || a.asked == 0 {
		t.Errorf("%d of %d answers were lost: %v", len(a.lost), a.asked, a.lost[:min(3, len(a.lost))])
	}
}

func lookup(server, name string) (out []string, err error) {
	q := new(dns.Msg).SetQuestion(name, dns.TypeA)
	c := &dns.Client{Timeout: 5 * time.Second}
	r, _, err := c.Exchange(q, server)
	if err != nil {
		return nil, err
	}
	if r.Rcode != dns.RcodeSuccess {
		return nil, errors.New(dns.RcodeToString[r.Rcode])
	}
	for _, rr := range r.Answer {
		if a, ok := rr.(*dns.A); ok {
			out = append(out, net.IP(a.A).String())
		}
	}
	return out, nil
}

// filled is ready, with a VIP.
func filled(clusters ...string) func(*mcsv1beta1.ServiceImport) error {
	return func(imp *mcsv1beta1.ServiceImport) error {
		if err := ready(clusters...)(imp); err != nil {
			return err
		}
		if len(imp.Spec.IPs) != 1 || !kube.Filled(imp) {
			return errors.New("it is not filled")
		}
		return nil
	}
}

// emptied has nothing that the agent filled in. A list of conditions stays, without any.
func emptied(imp *mcsv1beta1.ServiceImport) error {
	if kube.Filled(imp) || len(imp.Spec.IPs)+len(imp.Status.Clusters)+len(imp.Status.Conditions) > 0 ||
		imp.Status.EndpointSliceObjects != "" {
		return fmt.Errorf("%v, %+v", imp.Annotations, imp.Status)
	}
	return nil
}

func (m *member) setAnnotation(t *testing.T, ns, key, value string) {
	t.Helper()
	change(t, m, &corev1.Namespace{ObjectMeta: objectMeta(ns)}, func(n *corev1.Namespace) {
		if delete(n.Annotations, key); value != "" {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
		}
	})
}

// wantRefused waits until the member says that it does not import a's name.
func (m *member) wantRefused(t *testing.T, ns, name string) {
	t.Helper()
	eventually(t, m.ID+" does not import "+name, func() error {
		rec := &hubv1alpha1.ServiceExportRecord{}
		key := client.ObjectKey{Namespace: kube.SystemNamespace, Name: clusterset.RecordName(name, ns, "a")}
		if err := m.Get(t.Context(), key, rec); err != nil {
			return err
		}
		c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionImported)
		if c == nil || c.Reason != hubv1alpha1.ReasonNotOwned {
			return fmt.Errorf("%+v", rec.Status.Conditions)
		}
		return nil
	})
}

// TestI11DeclaredImports: an operator that writes its own ServiceImports, as Redpanda's does, gets them filled, and
// applies them again and again. No answer is lost meanwhile, and neither program writes a field of the other.
func TestI11DeclaredImports(t *testing.T) {
	t.Parallel()
	s := three(t)
	a, b := s.members["a"], s.members["b"]
	ns := s.namespace(t, "a", "b")
	server, err := lab.ServeDNS(t.Context(), b.Cluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	const optIn, fill = clusterset.AnnotationNamespaceDeclared, string(hubv1alpha1.DeclaredImportsFill)
	theirs := []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/name", "ports", "type"}
	ours := map[string][]string{redpanda: theirs, "clusterset-controller": {"clusterset-dns.io/filled", "ips"},
		"clusterset-controller status": {"clusters", "conditions", "endpointSliceObjects"}}
	left := map[string][]string{redpanda: theirs, "clusterset-controller status": {"conditions"}}

	for _, name := range []string{"broker", "ports", "type", "ips"} {
		b.declare(t, declaration(ns, name, 80))
	}
	owned := declaration(ns, "ips", 80)
	if err := unstructured.SetNestedStringSlice(owned.Object, []string{"192.0.2.1"}, "spec", "ips"); err != nil {
		t.Fatal(err)
	}
	owned = b.declare(t, owned)
	b.declare(t, declaration(ns, "ports", 81))
	a.exported(t, headless(ns, "type"), "10.1.0.1")
	for _, name := range []string{"broker", "ports", "taken", "ips"} {
		a.exported(t, service(ns, name), "10.1.0.1")
	}
	b.wantRefused(t, ns, "broker")
	b.wantRefused(t, ns, "ips")
	taken := b.wantImport(t, ns, "taken", ready("a"))
	vip := taken.Spec.IPs[0]
	asks := ask(t, server.Addr(), "taken."+ns+".svc.clusterset.local.", vip)
	b.declare(t, declaration(ns, "taken", 80)) // the agent was first
	b.wantRefused(t, ns, "taken")

	b.setAnnotation(t, ns, optIn, fill)
	if got := b.wantImport(t, ns, "taken", filled("a")).Spec.IPs[0]; got != vip {
		t.Errorf("the VIP was %s and is %s", vip, got)
	}
	imp := b.wantImport(t, ns, "broker", filled("a"))
	wantFields(t, imp, ours)
	b.wantEndpoints(t, ns, "broker", "a/http/10.1.0.1:8080")
	b.wantImport(t, ns, "ports", func(imp *mcsv1beta1.ServiceImport) error {
		c := meta.FindStatusCondition(imp.Status.Conditions, "Ready")
		if err := filled("a")(imp); err != nil || !strings.Contains(c.Message, "[http 81/TCP]") {
			return fmt.Errorf("%w: %+v", err, c)
		}
		return nil
	})
	b.wantImport(t, ns, "type", func(imp *mcsv1beta1.ServiceImport) error {
		c := meta.FindStatusCondition(imp.Status.Conditions, "Ready")
		if c == nil || c.Reason != "DeclaredTypeDiffers" || len(imp.Spec.IPs) > 0 {
			return fmt.Errorf("%+v, %v", c, imp.Spec.IPs)
		}
		return nil
	})
	b.wantRefused(t, ns, "ips")
	asks.stop(t)

	b.applyAgainAndAgain(t, a, server, imp)
	wantFields(t, b.wantImport(t, ns, "broker", filled("a")), ours)

	a.remove(t, export(ns, "broker"))
	wantFields(t, b.wantImport(t, ns, "broker", emptied), left)
	b.wantEndpoints(t, ns, "broker")
	a.create(t, export(ns, "broker"))
	if got := b.wantImport(t, ns, "broker", filled("a")).Spec.IPs[0]; got != imp.Spec.IPs[0] {
		t.Errorf("the VIP was %s and is %s", imp.Spec.IPs[0], got)
	}
	b.setAnnotation(t, ns, optIn, "")
	wantFields(t, b.wantImport(t, ns, "broker", emptied), left)
	b.wantRefused(t, ns, "broker")
	b.wantEndpoints(t, ns, "broker")
	if is, err := b.imported(t.Context(), ns, "ips"); err != nil || is.ResourceVersion != owned.GetResourceVersion() {
		t.Errorf("an import with IPs of others was written: %+v %v", is, err)
	}
}

// applyAgainAndAgain is the operator that applies its declaration of broker for 30 seconds, once a second, while the
// exporter's endpoints change. Each write of the import is the operator's.
func (m *member) applyAgainAndAgain(t *testing.T, exporter *member, server *lab.DNS, imp *mcsv1beta1.ServiceImport) {
	t.Helper()
	ns := imp.Namespace
	asks := ask(t, server.Addr(), "broker."+ns+".svc.clusterset.local.", imp.Spec.IPs[0])
	version := imp.ResourceVersion
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for round := range 30 {
		o, address := declaration(ns, "broker", 80), fmt.Sprintf("10.1.0.%d", round+2)
		if round%2 == 1 { // every second one changes nothing
			o.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "redpanda-operator",
				"app.kubernetes.io/name": "redpanda", "round": strconv.Itoa(round)})
		}
		change(t, exporter, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "broker-1"},
		}, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{address} })
		applied := m.declare(t, o)
		m.wantEndpoints(t, ns, "broker", "a/http/"+address+":8080")
		<-ticker.C
		is, err := m.imported(t.Context(), ns, "broker")
		if err != nil || is.ResourceVersion != applied.GetResourceVersion() {
			t.Fatalf("round %d: somebody else wrote the import: %+v %v", round, is, err)
		}
		if moved := version != is.ResourceVersion; moved && round == 0 {
			t.Fatalf("applying what is there changed it: %+v", is)
		}
		version = is.ResourceVersion
	}
	m.declare(t, declaration(ns, "broker", 80))
	asks.stop(t)
}

// TestI11I12ByTheClusterSet: it asks for declared imports and missing namespaces. What the agent created for others
// stays when the cluster leaves, and what others declared is emptied.
func TestI11I12ByTheClusterSet(t *testing.T) {
	t.Parallel()
	j := joiningSet(t)
	p, r := j.members["p"], j.r
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: lab.HubNamespace}}
	change(t, &member{&lab.Member{ID: "hub"}, j.hub}, set, func(s *hubv1alpha1.ClusterSet) {
		s.Spec.DeclaredImports = hubv1alpha1.DeclaredImportsFill
		s.Spec.Namespaces.Missing = hubv1alpha1.MissingNamespacesCreate
		s.Spec.Namespaces.Deny = []string{"bank", "kube-*"}
	})
	ns := j.namespace(t, "p")
	for _, other := range []string{"bank", "hidden"} {
		p.create(t, &corev1.Namespace{ObjectMeta: objectMeta(other)})
		p.create(t, service(other, "web"))
		e := export(other, "web")
		e.Annotations = map[string]string{"clusterset-dns.io/export-to": "cluster=p"}
		if other == "bank" {
			e.Annotations = nil
		}
		p.create(t, e)
	}
	p.wantImport(t, "hidden", "web", ready("p"))
	p.exported(t, service(ns, "web"), "10.1.0.1")
	p.exported(t, service(ns, "broker"), "10.1.0.1")
	p.wantImport(t, ns, "broker", ready("p"))
	j.claim(t, "r")
	r.Agent = j.agent(t, "r", "r", lab.HubNamespace)
	r.wantImport(t, ns, "web", ready("p"))
	r.declare(t, declaration(ns, "broker", 80))
	r.wantImport(t, ns, "broker", filled("p"))
	var all corev1.NamespaceList
	if err := r.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		n := &all.Items[i]
		if n.Name == "bank" || n.Name == "hidden" || kube.Owned(n) != (n.Name == ns) {
			t.Errorf("namespace %s, labels %v", n.Name, n.Labels)
		}
	}
	p.remove(t, export(ns, "web"))
	r.wantNoImport(t, ns, "web")

	change(t, r, &aboutv1beta1.ClusterProperty{ObjectMeta: objectMeta(clusterset.PropertySet)},
		func(p *aboutv1beta1.ClusterProperty) {
			p.Annotations = map[string]string{clusterset.AnnotationLeaving: "true"}
		})
	eventually(t, "the membership ends", func() error {
		if got := r.property(t, clusterset.PropertySet); got != nil {
			return fmt.Errorf("%+v", got.ObjectMeta)
		}
		return nil
	})
	r.wantImport(t, ns, "broker", emptied)
	n := &corev1.Namespace{}
	if err := r.Get(t.Context(), client.ObjectKey{Name: ns}, n); err != nil || n.DeletionTimestamp != nil {
		t.Errorf("%+v %v", n, err)
	}
}
