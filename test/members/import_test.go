package members

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestI1WhereTheNamespaceIs: an import in every member that has the namespace, exporters included; it comes and
// goes with it.
func TestI1WhereTheNamespaceIs(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	s.members["a"].wantImport(t, ns, "web", ready("a"))
	s.members["b"].wantImport(t, ns, "web", ready("a"))
	if _, err := s.members["c"].imported(t.Context(), ns, "web"); err == nil {
		t.Error("an import without a namespace")
	}
	s.namespace(t, "c")
	was := s.members["c"].wantImport(t, ns, "web", ready("a"))
	s.members["c"].wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")
	stop := s.members["c"].throughout(
		t,
		ns,
		"web",
		func(got map[string]bool) bool { return !got["a/http/10.1.0.1:8080"] },
	)
	s.members["b"].withoutNamespace(t, ns)
	s.namespace(t, "b")
	s.members["b"].wantImport(t, ns, "web", ready("a"))
	s.members["b"].wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")
	if bad := stop(); len(bad) > 0 {
		t.Errorf("c, when b deleted its namespace: %v", bad)
	}
	if is := s.members["c"].wantImport(
		t,
		ns,
		"web",
		ready("a"),
	); is.UID != was.UID ||
		!slices.Equal(is.Spec.IPs, was.Spec.IPs) {
		t.Errorf("c: the import was %s with %v, and is %s with %v", was.UID, was.Spec.IPs, is.UID, is.Spec.IPs)
	}
	s.members["a"].withoutNamespace(t, ns)
	s.members["b"].wantNoImport(t, ns, "web")
	s.members["c"].wantNoImport(t, ns, "web")
}

// withoutNamespace deletes a namespace, and waits until it is gone: nothing that the agent makes or keeps may hold
// it.
func (m *member) withoutNamespace(t *testing.T, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.remove(t, ns)
	eventually(t, m.ID+": namespace "+name+" is gone", func() error {
		if err := m.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v, %+v", err, ns.Status)
		}
		return nil
	})
}

// TestI2AsLongAsOneExports: one of two leaves only its share behind.
func TestI2AsLongAsOneExports(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b", "c")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	s.members["b"].exported(t, service(ns, "web"), "10.2.0.1")
	before := s.members["c"].wantImport(t, ns, "web", ready("a", "b"))
	s.members["a"].remove(t, export(ns, "web"))
	after := s.members["c"].wantImport(t, ns, "web", ready("b"))
	s.members["c"].wantEndpoints(t, ns, "web", "b/http/10.2.0.1:8080")
	if before.UID != after.UID || !slices.Equal(before.Spec.IPs, after.Spec.IPs) {
		t.Errorf(
			"the import is another: %v %v, before %v %v",
			after.UID,
			after.Spec.IPs,
			before.UID,
			before.Spec.IPs,
		)
	}
	s.members["b"].remove(t, export(ns, "web"))
	s.members["c"].wantNoImport(t, ns, "web")
}

// TestI3Spec: what the import says comes from the export, and ips are the derived Service's.
func TestI3Spec(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	svc := service(ns, "web", port("http", 80), port("metrics", 9090))
	timeout, local, near, app := int32(
		77,
	), corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceTrafficDistributionPreferClose, "kubernetes.io/h2c"
	svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
		ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout},
	}
	svc.Spec.InternalTrafficPolicy, svc.Spec.TrafficDistribution, svc.Spec.Ports[0].AppProtocol = &local, &near, &app
	s.members["a"].exported(t, svc, "10.1.0.1")
	imp := s.members["b"].wantImport(t, ns, "web", ready("a"))
	spec := imp.Spec
	if spec.Type != mcsv1beta1.ClusterSetIP || len(spec.Ports) != 2 || spec.Ports[0].Name != "http" ||
		*spec.Ports[0].AppProtocol != app || spec.Ports[1].Port != 9090 ||
		spec.SessionAffinity != corev1.ServiceAffinityClientIP ||
		*spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != timeout ||
		*spec.InternalTrafficPolicy != local ||
		*spec.TrafficDistribution != near ||
		len(spec.IPFamilies) != 1 {
		t.Errorf("spec %+v", spec)
	}
	derived := s.members["b"].derivedOf(t, imp)
	if !slices.Equal(derived.Spec.ClusterIPs, spec.IPs) || derived.Spec.SessionAffinity != spec.SessionAffinity ||
		*derived.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != timeout ||
		*derived.Spec.InternalTrafficPolicy != local ||
		*derived.Spec.TrafficDistribution != near || len(derived.Spec.Ports) != 2 || len(derived.OwnerReferences) != 0 {
		t.Errorf("derived Service %+v", derived)
	}
}

// TestI4I5StatusOfAnImport lists exporters, sorted, is Ready, and says that slices are published.
func TestI4I5StatusOfAnImport(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b", "c")
	for _, id := range []string{"c", "a", "b"} {
		s.members[id].exported(t, service(ns, "web"), "10.1.0.1")
	}
	imp := s.members["b"].wantImport(t, ns, "web", ready("a", "b", "c"))
	if imp.Status.EndpointSliceObjects != mcsv1beta1.EndpointSliceObjectsPresent {
		t.Errorf("status %+v", imp.Status)
	}
}

// TestI6TheVIPStays: through the derived Service's deletion (by who may), a headless flip and back, the import's
// deletion by a user, and
// the last exporter gone and back.
func TestI6TheVIPStays(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	a, b := s.members["a"], s.members["b"]
	a.exported(t, service(ns, "web"), "10.1.0.1")
	vip := b.wantImport(t, ns, "web", ready("a")).Spec.IPs
	same := func(what string) {
		t.Helper()
		b.wantImport(t, ns, "web", func(imp *mcsv1beta1.ServiceImport) error {
			if len(imp.Spec.IPs) == 0 {
				return errors.New("no VIP")
			}
			return ready("a")(imp)
		})
		if imp, err := b.imported(t.Context(), ns, "web"); err != nil || !slices.Equal(imp.Spec.IPs, vip) {
			t.Fatalf("%s: VIP %v (%v), before %v", what, imp.Spec.IPs, err, vip)
		}
	}
	b.remove(t, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}})
	same("import deleted")
	b.wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")

	cfg, err := b.Cluster.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Impersonate.UserName = "system:serviceaccount:clusterset-system:clusterset-controller"
	who, err := client.New(cfg, client.Options{Scheme: agent.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		was := b.derivedOf(t, b.wantImport(t, ns, "web", ready("a")))
		if err := who.Delete(t.Context(), was); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the derived Service is made again", func() error {
			var is corev1.Service
			if err := b.Get(t.Context(), client.ObjectKeyFromObject(was), &is); err != nil {
				return err
			}
			if is.UID == was.UID {
				return errors.New("it is still the first")
			}
			return nil
		})
		same("derived Service deleted")
	}

	a.remove(t, export(ns, "web"))
	b.wantNoImport(t, ns, "web")
	a.create(t, export(ns, "web"))
	same("last exporter gone and back")

	a.remove(t, service(ns, "web"))
	a.create(t, headless(ns, "web"))
	b.wantImport(t, ns, "web", func(imp *mcsv1beta1.ServiceImport) error {
		if imp.Spec.Type != mcsv1beta1.Headless || len(imp.Spec.IPs) > 0 {
			return errors.New("not Headless")
		}
		return nil
	})
	eventually(t, "slices of a headless import are hidden from kube-proxy", func() error {
		var list discoveryv1.EndpointSliceList
		if err := b.List(
			t.Context(),
			&list,
			client.InNamespace(ns),
			client.MatchingLabels{mcsv1beta1.LabelServiceName: "web"},
		); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("there is none")
		}
		for _, s := range list.Items {
			if _, ok := s.Labels[corev1.IsHeadlessService]; !ok {
				return fmt.Errorf("%s is not", s.Name)
			}
		}
		return nil
	})
	a.remove(t, service(ns, "web"))
	a.create(t, service(ns, "web"))
	same("headless flip and back")
}

// TestI9EditsArePutRight: of import, derived Service and imported slice, and deletions, too.
func TestI9EditsArePutRight(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	b := s.members["b"]
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	imp := b.wantImport(t, ns, "web", ready("a"))
	want := imp.Spec
	b.wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")

	change(t, b, imp, func(i *mcsv1beta1.ServiceImport) {
		i.Spec.Ports[0].Port, i.Spec.IPs, i.Spec.Type = 99, []string{"10.99.99.99"}, mcsv1beta1.Headless
		i.Annotations["multicluster.kubernetes.io/derived-service"] = "other"
	})
	b.wantImport(t, ns, "web", func(i *mcsv1beta1.ServiceImport) error {
		if i.Spec.Ports[0].Port != 80 || !slices.Equal(i.Spec.IPs, want.IPs) || i.Spec.Type != want.Type ||
			i.Annotations["multicluster.kubernetes.io/derived-service"] == "other" {
			return errors.New("the edit stays")
		}
		return nil
	})
	imp = b.wantImport(t, ns, "web", ready("a"))
	derived := b.derivedOf(t, imp)
	// The policies refuse that to others, and to everybody that the Service loses its label.
	if _, err := b.Cluster.Kubectl(
		t.Context(),
		"",
		"-n",
		ns,
		"patch",
		"service",
		derived.Name,
		"--type=merge",
		"--as=system:serviceaccount:clusterset-system:clusterset-controller",
		"--as-group=system:masters",
		"-p",
		`{"metadata":{"annotations":null},"spec":{"selector":{"app":"x"},`+
			`"ports":[{"name":"x","port":99}]}}`,
	); err != nil {
		t.Fatal(err)
	}
	eventually(t, "derived Service is restored", func() error {
		svc := b.derivedOf(t, imp)
		if svc.Spec.Ports[0].Port != 80 || svc.Labels["app.kubernetes.io/managed-by"] != kube.Manager ||
			len(svc.Spec.Selector) > 0 {
			return fmt.Errorf("%+v", svc)
		}
		return nil
	})
	var list discoveryv1.EndpointSliceList
	if err := b.List(
		t.Context(),
		&list,
		client.InNamespace(ns),
		client.MatchingLabels{mcsv1beta1.LabelServiceName: "web"},
	); err != nil ||
		len(list.Items) != 1 {
		t.Fatalf("%v, %v", list.Items, err)
	}
	change(t, b, &list.Items[0], func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.9.9.9" })
	b.wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")
	change(t, b, &list.Items[0], func(s *discoveryv1.EndpointSlice) {
		s.Labels = map[string]string{discoveryv1.LabelManagedBy: kube.Manager}
	})
	b.wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")
	b.remove(t, &list.Items[0])
	b.wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")
}

// TestI9I10ASliceOfAnotherProgramStays at a derived Service, to which its VIP leads as well. An Event says so.
func TestI9I10ASliceOfAnotherProgramStays(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	b := s.members["b"]
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	svc := b.derivedOf(t, b.wantImport(t, ns, "web", ready("a")))
	stray := slice(svc, "stray", "10.9.9.9")
	stray.Labels = map[string]string{
		discoveryv1.LabelServiceName: svc.Name,
		discoveryv1.LabelManagedBy:   "endpointslice-controller.k8s.io",
	}
	b.create(t, stray)
	b.wantEvent(t, ns, svc.Name, "NotOwned")
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(stray), stray); err != nil {
		t.Error(err)
	}
	b.wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")
}

// TestS1S2Slices: one source cluster each, our labels, an owner that is no controller; conditions, host names and
// zones as at home;
// nothing of the source's nodes; gone with the slice at home.
func TestS1S2Slices(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	svc := headless(ns, "web")
	home := slice(
		svc,
		"web.with.dots-"+strings.Repeat("x", 253-len("web.with.dots-")),
		"10.1.0.1",
		"10.1.0.2",
		"10.1.0.3",
		"10.1.0.4",
	)
	no, yes, host, zone, node, protocol := false, true, "web-0", "z1", "node-1", "kubernetes.io/h2c"
	home.Ports[0].AppProtocol = &protocol
	home.Endpoints[0].Hostname, home.Endpoints[0].Zone, home.Endpoints[0].NodeName = &host, &zone, &node
	home.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "web-0", Namespace: ns}
	home.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}
	home.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	home.Endpoints[2].Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no}
	// What publishNotReadyAddresses makes of a pod that is being terminated and does not serve: ready all the same.
	home.Endpoints[3].Conditions = discoveryv1.EndpointConditions{Ready: &yes, Serving: &no, Terminating: &yes}
	s.members["a"].create(t, svc, home, export(ns, "web"))
	for _, id := range []string{"a", "b"} {
		imp := s.members[id].wantImport(t, ns, "web", ready("a"))
		s.members[id].wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080", "a/http/10.1.0.4:8080")
		var list discoveryv1.EndpointSliceList
		if err := s.members[id].List(
			t.Context(),
			&list,
			client.InNamespace(ns),
			client.MatchingLabels{mcsv1beta1.LabelServiceName: "web"},
		); err != nil ||
			len(list.Items) != 1 {
			t.Fatalf("%v, %v", list.Items, err)
		}
		got := list.Items[0]
		if got.Labels[mcsv1beta1.LabelSourceCluster] != "a" || got.Labels[discoveryv1.LabelManagedBy] != kube.Manager ||
			len(got.OwnerReferences) != 1 ||
			got.OwnerReferences[0].UID != imp.UID ||
			*got.OwnerReferences[0].Controller {
			t.Errorf("%s: metadata %+v", id, got.ObjectMeta)
		}
		e := got.Endpoints
		if len(e) != len(home.Endpoints) {
			t.Fatalf("%s: endpoints %+v", id, e)
		}
		if *e[0].Hostname != host || *e[0].Zone != zone {
			t.Errorf("%s: endpoint %+v", id, e[0])
		}
		for i := range e {
			if is, want := e[i].Conditions,
				home.Endpoints[i].Conditions; e[i].Addresses[0] != home.Endpoints[i].Addresses[0] ||
				holds(is.Ready) != holds(want.Ready) ||
				holds(is.Serving) != holds(want.Serving) ||
				holds(is.Terminating) != holds(want.Terminating) {
				t.Errorf("%s: endpoint %d is %+v, and at home %+v", id, i, e[i], home.Endpoints[i])
			}
		}
		for _, p := range got.Ports {
			if p.AppProtocol == nil || *p.AppProtocol != protocol {
				t.Errorf("%s: port %+v, want appProtocol %s as at home", id, p, protocol)
			}
		}
		if remote := id == "b"; (e[0].NodeName == nil) != remote || (e[0].TargetRef == nil) != remote {
			t.Errorf("%s: node %v, target %v", id, e[0].NodeName, e[0].TargetRef)
		}
	}
	s.members["a"].remove(t, home)
	s.members["b"].wantEndpoints(t, ns, "web")
	s.members["b"].wantImport(t, ns, "web", ready("a"))
}

// TestE2E10S1WhatWentWhileAnAgentWasAwayGoes: a slice, and a name. No event tells the agent that starts of either.
func TestE2E10S1WhatWentWhileAnAgentWasAwayGoes(t *testing.T) {
	s := three(t)
	a, b := s.members["a"], s.members["b"]
	ns := s.namespace(t, "a", "b")
	a.exported(t, service(ns, "web"), "10.1.0.1")
	a.exported(t, service(ns, "gone"), "10.1.0.2")
	var addresses []string // more than a page
	want := []string{"a/http/10.1.0.1:8080"}
	for i := range 150 {
		addresses = append(addresses, fmt.Sprintf("10.1.1.%d", i+1))
		want = append(want, "a/http/"+addresses[i]+":8080")
	}
	more := slice(service(ns, "web"), "more", addresses...)
	a.create(t, more)
	b.wantEndpoints(t, ns, "web", want...)
	b.wantEndpoints(t, ns, "gone", "a/http/10.1.0.2:8080")
	b.Agent.Kill()
	a.remove(t, more, export(ns, "gone"))
	a.wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")
	a.wantNoImport(t, ns, "gone")
	if err := b.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")
	b.wantNoImport(t, ns, "gone")
	b.wantEndpoints(t, ns, "gone")
}

// TestNamesThatLookAlike: a-b/c and a/b-c are two imports, and equal node names in two clusters are two nodes.
func TestNamesThatLookAlike(t *testing.T) {
	s := three(t)
	one, two := "alike-b", "alike"
	for _, id := range []string{"a", "b"} {
		s.members[id].create(
			t,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: one}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: two}},
		)
	}
	s.members["a"].exported(t, service(one, "c"), "10.1.0.1")
	s.members["a"].exported(t, service(two, "b-c"), "10.1.0.2")
	s.members["b"].wantEndpoints(t, one, "c", "a/http/10.1.0.1:8080")
	s.members["b"].wantEndpoints(t, two, "b-c", "a/http/10.1.0.2:8080")

	ns, node := s.namespace(t, "a", "b", "c"), "node-1"
	for id, address := range map[string]string{"a": "10.1.0.1", "b": "10.2.0.1"} {
		svc := headless(ns, "web")
		home := slice(svc, "web-1", address)
		home.Endpoints[0].NodeName = &node
		s.members[id].create(t, svc, home, export(ns, "web"))
	}
	for _, id := range []string{"a", "b", "c"} {
		s.members[id].wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080", "b/http/10.2.0.1:8080")
	}
}

// holds reports whether a condition is there and true.
func holds(condition *bool) bool { return condition != nil && *condition }

// TestASliceOfAThousandEndpoints comes through whole, in two members.
func TestASliceOfAThousandEndpoints(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	var addresses, want []string
	for i := range 1000 {
		a := fmt.Sprintf("10.1.%d.%d", i/250+1, i%250+1)
		addresses, want = append(addresses, a), append(want, "a/http/"+a+":8080")
	}
	s.members["a"].exported(t, service(ns, "web"), addresses...)
	s.members["b"].wantEndpoints(t, ns, "web", want...)
}

// TestACopyThatDoesNotParseRetiresNothing: as after a downgrade, when the records that a newer agent had followed
// are not understood.
// Nobody has withdrawn them: imports, VIPs and slices stay, and this cluster's admin is told.
func TestACopyThatDoesNotParseRetiresNothing(t *testing.T) {
	s := three(t)
	a, b, c := s.members["a"], s.members["b"], s.members["c"]
	ns := s.namespace(t, "a", "b", "c")
	a.exported(t, service(ns, "lonely"), "10.1.0.1")
	a.exported(t, service(ns, "shared"), "10.1.0.2")
	c.exported(t, service(ns, "shared"), "10.3.0.2")
	was := b.wantImport(t, ns, "lonely", ready("a"))
	shared := []string{"a/http/10.1.0.2:8080", "c/http/10.3.0.2:8080"}
	b.wantEndpoints(t, ns, "shared", shared...)
	a.Agent.Kill() // it would repair its records on the hub
	for _, name := range []string{"lonely", "shared"} {
		record := func(namespace string) *hubv1alpha1.ServiceExportRecord {
			r := &hubv1alpha1.ServiceExportRecord{ObjectMeta: objectMeta(name + "." + ns + ".a")}
			r.Namespace = namespace
			return r
		}
		newer := func(r *hubv1alpha1.ServiceExportRecord) {
			r.Spec.ExportedLabels = map[string]string{"k": strings.Repeat("x", 64)}
		}
		change(t, &member{&lab.Member{ID: "hub"}, s.hub}, record(lab.HubNamespace), newer)
		own := record("clusterset-system")
		eventually(t, "b does not follow it", func() error {
			if err := b.Get(t.Context(), client.ObjectKeyFromObject(own), own); err != nil {
				return err
			}
			if c := meta.FindStatusCondition(
				own.Status.Conditions,
				hubv1alpha1.ConditionHeld,
			); c == nil ||
				c.Reason != "Refused" {
				return fmt.Errorf("%+v", own.Status)
			}
			return nil
		})
		change(t, b, own, newer)
		b.wantEvent(t, "clusterset-system", name+"."+ns+".a", "RecordUnreadable")
	}
	c.create(t, slice(service(ns, "shared"), "more", "10.3.0.3")) // the others go on
	b.wantEndpoints(t, ns, "shared", append(shared, "c/http/10.3.0.3:8080")...)
	b.wantEndpoints(t, ns, "lonely", "a/http/10.1.0.1:8080")

	if err := a.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantImport(t, ns, "shared", ready("a", "c"))
	if is := b.wantImport(t, ns, "lonely", ready("a")); is.UID != was.UID || is.Spec.IPs[0] != was.Spec.IPs[0] {
		t.Errorf("the import was %s with %v, and is %s with %v", was.UID, was.Spec.IPs, is.UID, is.Spec.IPs)
	}
}
