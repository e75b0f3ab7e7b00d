// Package members proves the rules E, I, S and C of docs/spec/SPEC.md on real control planes: a hub and its
// members, each with its own agent, which runs with its own ServiceAccounts and the manifests of deploy/. The agent
// is bin/clusterset-controller, which make builds.
package members

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// limit is far more than anything takes: machines are shared.
const limit = 4 * time.Minute

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients
	code := m.Run()
	for _, s := range []*set{shared.set, chaos.set} {
		if s != nil {
			s.Stop()
		}
	}
	os.Exit(code)
}

var shared struct {
	sync.Once
	set *set
	err error
}

// reserved is where no peer may have endpoints as seen from c.
const reserved = "10.77.0.0/16"

// three is one clusterset of members a, b and c, shared by the tests that keep to a namespace of their own.
func three(t *testing.T) *set {
	t.Helper()
	shared.Do(func() {
		shared.set, shared.err = startWith(context.Background(), lab.ClusterSetOptions{
			Members: []string{"a", "b", "c"}, AgentArgs: map[string][]string{
				"a": {"--dnsendpoint-zone", dnsEndpointZone}, "c": {"--reserved-cidrs", reserved},
			},
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	shared.set.logAgents(t)
	return shared.set
}

// logAgents shows what the agents said, if the test fails.
func (s *set) logAgents(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range s.members {
				t.Logf("agent %s:\n%s", m.ID, tail(m.Agent.Log(), 60))
			}
		}
	})
}

// set is a clusterset with an admin's client on each cluster.
type set struct {
	*lab.ClusterSet
	hub     client.Client
	members map[string]*member
	lives   sync.Once // the liar
	asLiar  client.Client
}

type member struct {
	*lab.Member
	client.Client
}

func start(ctx context.Context, ids ...string) (*set, error) {
	return startWith(ctx, lab.ClusterSetOptions{Members: ids})
}

func startWith(ctx context.Context, o lab.ClusterSetOptions) (*set, error) {
	cs, err := lab.StartClusterSet(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &set{ClusterSet: cs, members: map[string]*member{}}
	if s.hub, err = cs.Hub.Client(agent.Scheme()); err != nil {
		return s, err
	}
	for _, m := range cs.Members {
		c, err := m.Cluster.Client(agent.Scheme())
		if err != nil {
			return s, err
		}
		s.members[m.ID] = &member{m, c}
	}
	return s, nil
}

func tail(s string, lines int) string {
	all := strings.Split(s, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// namespace makes one namespace in the given members, and is the test's own.
func (s *set) namespace(t *testing.T, ids ...string) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	name = strings.TrimPrefix(name, "test")
	if len(name) > 50 {
		name = name[:50]
	}
	for _, id := range ids {
		s.members[id].create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return name
}

func (m *member) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := m.Create(t.Context(), o); err != nil {
			t.Fatalf("%s: %T %s/%s: %v", m.ID, o, o.GetNamespace(), o.GetName(), err)
		}
	}
}

// change reads an object and writes what f makes of it, until nobody has written in between.
func change[T client.Object](t *testing.T, m *member, o T, f func(T)) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: write of %T %s/%s", m.ID, o, o.GetNamespace(), o.GetName()), func() error {
		if err := m.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		f(o)
		return m.Update(t.Context(), o)
	})
}

func (m *member) remove(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := m.Delete(t.Context(), o); err != nil {
			t.Fatalf("%s: %T %s/%s: %v", m.ID, o, o.GetNamespace(), o.GetName(), err)
		}
	}
}

// eventually asks until there is no error.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	if err := lab.Until(t.Context(), limit, what, ask); err != nil {
		t.Fatal(err)
	}
}

// service is a ClusterIP Service without a selector; its endpoints are the test's.
func service(ns, name string, ports ...corev1.ServicePort) *corev1.Service {
	if ports == nil {
		ports = []corev1.ServicePort{port("http", 80)}
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       corev1.ServiceSpec{Ports: ports},
	}
}

func headless(ns, name string, ports ...corev1.ServicePort) *corev1.Service {
	svc := service(ns, name, ports...)
	svc.Spec.ClusterIP = corev1.ClusterIPNone
	return svc
}

func port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolTCP}
}

func export(ns, name string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// slice is one EndpointSlice of the Service, with the Service's port names at the given ports.
func slice(svc *corev1.Service, name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace,
			Name:      name,
			Labels:    map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range svc.Spec.Ports {
		target := 8000 + p.Port
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &target})
	}
	ready := true
	for _, a := range addresses {
		s.Endpoints = append(
			s.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}},
		)
	}
	return s
}

// exported makes a Service with one slice and exports it.
func (m *member) exported(t *testing.T, svc *corev1.Service, addresses ...string) {
	t.Helper()
	m.create(t, svc, slice(svc, svc.Name+"-1", addresses...), export(svc.Namespace, svc.Name))
}

func (m *member) imported(ctx context.Context, ns, name string) (*mcsv1beta1.ServiceImport, error) {
	imp := &mcsv1beta1.ServiceImport{}
	return imp, m.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, imp)
}

// wantImport waits until the import is as check wants it, and returns it.
func (m *member) wantImport(
	t *testing.T,
	ns, name string,
	check func(*mcsv1beta1.ServiceImport) error,
) *mcsv1beta1.ServiceImport {
	t.Helper()
	var imp *mcsv1beta1.ServiceImport
	eventually(t, fmt.Sprintf("%s: ServiceImport %s/%s", m.ID, ns, name), func() (err error) {
		if imp, err = m.imported(t.Context(), ns, name); err != nil {
			return err
		}
		if check == nil {
			return nil
		}
		if err := check(imp); err != nil {
			return fmt.Errorf("%w: spec %+v, status %+v", err, imp.Spec, imp.Status)
		}
		return nil
	})
	return imp
}

// wantNoImport waits until there is none.
func (m *member) wantNoImport(t *testing.T, ns, name string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: no ServiceImport %s/%s", m.ID, ns, name), func() error {
		if imp, err := m.imported(t.Context(), ns, name); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it is there: %v %v", imp.Status, err)
		}
		return nil
	})
}

// ready is I4 with these exporters.
func ready(clusters ...string) func(*mcsv1beta1.ServiceImport) error {
	return func(imp *mcsv1beta1.ServiceImport) error {
		var got []string
		for _, c := range imp.Status.Clusters {
			got = append(got, c.Cluster)
		}
		if strings.Join(got, " ") != strings.Join(clusters, " ") {
			return fmt.Errorf("clusters %v, want %v", got, clusters)
		}
		if !meta.IsStatusConditionTrue(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)) {
			return errors.New("it is not Ready")
		}
		return nil
	}
}

// endpoints are the addresses imported from each cluster, as "cluster/port name/address:port", of the ready
// endpoints. Ports are named as
// the import names them.
func (m *member) endpoints(ctx context.Context, ns, name string) (map[string]bool, error) {
	var list discoveryv1.EndpointSliceList
	err := m.List(ctx, &list, client.InNamespace(ns), client.MatchingLabels{mcsv1beta1.LabelServiceName: name})
	out := map[string]bool{}
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			for _, p := range s.Ports {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					out[fmt.Sprintf("%s/%s/%s:%d", s.Labels[mcsv1beta1.LabelSourceCluster], *p.Name, e.Addresses[0],
						*p.Port)] = true
				}
			}
		}
	}
	return out, err
}

// wantEndpoints waits until exactly these are imported.
func (m *member) wantEndpoints(t *testing.T, ns, name string, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: endpoints of %s/%s", m.ID, ns, name), func() error {
		got, err := m.endpoints(t.Context(), ns, name)
		if err != nil {
			return err
		}
		for _, w := range want {
			if !got[w] {
				return fmt.Errorf("%v, want %v", got, want)
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// wantCondition waits until the ServiceExport has the condition.
func (m *member) wantCondition(
	t *testing.T,
	ns, name string,
	kind mcsv1beta1.ServiceExportConditionType,
	status metav1.ConditionStatus,
	reason string,
) *metav1.Condition {
	t.Helper()
	var c *metav1.Condition
	eventually(
		t,
		fmt.Sprintf("%s: ServiceExport %s/%s: %s=%s/%s", m.ID, ns, name, kind, status, reason),
		func() error {
			e := export(ns, name)
			if err := m.Get(t.Context(), client.ObjectKeyFromObject(e), e); err != nil {
				return err
			}
			c = meta.FindStatusCondition(e.Status.Conditions, string(kind))
			if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != e.Generation {
				return fmt.Errorf("conditions %+v", e.Status.Conditions)
			}
			return nil
		},
	)
	return c
}

// wantMessage waits until the message of a condition holds this.
func (m *member) wantMessage(t *testing.T, ns, name, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: message of ServiceExport %s/%s", m.ID, ns, name), func() error {
		e := export(ns, name)
		if err := m.Get(t.Context(), client.ObjectKeyFromObject(e), e); err != nil {
			return err
		}
		if !slices.ContainsFunc(e.Status.Conditions, func(c metav1.Condition) bool {
			return strings.Contains(c.Message, text)
		}) {
			return fmt.Errorf("conditions %+v", e.Status.Conditions)
		}
		return nil
	})
}

// derivedOf is the derived Service of an import.
func (m *member) derivedOf(t *testing.T, imp *mcsv1beta1.ServiceImport) *corev1.Service {
	t.Helper()
	svc := &corev1.Service{}
	name := imp.Annotations["multicluster.kubernetes.io/derived-service"]
	if err := m.Get(t.Context(), client.ObjectKey{Namespace: imp.Namespace, Name: name}, svc); err != nil {
		t.Fatalf("%s: derived Service %q: %v", m.ID, name, err)
	}
	return svc
}

// wantEvent waits until there is one about an object of this name, whose note holds all of the words.
func (m *member) wantEvent(t *testing.T, ns, name, reason string, words ...string) {
	t.Helper()
	lacks := func(e *corev1.Event) bool {
		return slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Message, word) })
	}
	eventually(t, fmt.Sprintf("%s: Event %s about %s/%s", m.ID, reason, ns, name), func() error {
		var events corev1.EventList
		if err := m.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
			return err
		}
		var seen []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name == name && e.Reason == reason && !lacks(&e) {
				if !strings.HasPrefix(e.ReportingInstance, lab.HubNamespace+"/") { // ID6
					t.Errorf("Event %s is reported by %q", e.Reason, e.ReportingInstance)
				}
				return nil
			}
			seen = append(seen, e.InvolvedObject.Name+" "+e.Reason+": "+e.Message)
		}
		return fmt.Errorf("only %v", seen)
	})
}

// wantMembership waits until a condition of the Membership has this status and reason, and all of words.
func (m *member) wantMembership(
	t *testing.T, condition string, status metav1.ConditionStatus, reason string, words ...string,
) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: condition %s is %s: %s", m.ID, condition, status, reason), func() error {
		known := &hubv1alpha1.Membership{}
		if err := m.Get(t.Context(), client.ObjectKey{Name: hubv1alpha1.MembershipName}, known); err != nil {
			return err
		}
		c := meta.FindStatusCondition(known.Status.Conditions, condition)
		if c == nil || c.Status != status || c.Reason != reason ||
			slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) }) {
			return fmt.Errorf("%+v", known.Status.Conditions)
		}
		return nil
	})
}

func objectMeta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// length is how many objects a list holds.
func length(t *testing.T, list client.ObjectList) int {
	t.Helper()
	n := meta.LenList(list)
	if n < 0 {
		t.Fatalf("%T is no list", list)
	}
	return n
}
