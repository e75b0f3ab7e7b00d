package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
)

var (
	ids     = []string{"a", "b"}
	cluster = corev1.ServiceInternalTrafficPolicyCluster
)

// hidden keeps kube-proxy from a slice, and so does the label of another proxy.
const (
	hidden       = "service.kubernetes.io/headless"
	standby      = "clusterset-dns.io/standby"
	anotherProxy = "service.kubernetes.io/service-proxy-name"
)

func derivedService(name, vip string) corev1.Service {
	svc := corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: resolution.DerivedName(ns, name),
		Labels: map[string]string{
			"app.kubernetes.io/managed-by": kube.Manager,
		},
		Annotations: map[string]string{"clusterset-dns.io/import": ns + "/" + name},
	}}
	svc.Spec = corev1.ServiceSpec{
		Type:                  corev1.ServiceTypeClusterIP,
		ClusterIP:             vip,
		InternalTrafficPolicy: &cluster,
		SessionAffinity:       corev1.ServiceAffinityNone,
		Ports: []corev1.ServicePort{
			{Name: "clusterset-tcp-80", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(80)},
		},
	}
	if name == "steady" {
		svc.Spec.Ports = append(
			svc.Spec.Ports,
			corev1.ServicePort{
				Name:       "clusterset-tcp-443",
				Protocol:   corev1.ProtocolTCP,
				Port:       443,
				TargetPort: intstr.FromInt32(443),
			},
		)
	}
	return svc
}

// settled is what a and b, which export every name, come to, and the truth of it.
func settled() (*state, *truth) {
	t := &truth{members: ids, exporters: map[string]map[string][]string{}, vips: map[pair]string{}}
	s := &state{members: map[string]*objects{"a": {}, "b": {}}}
	for _, name := range names {
		t.exporters[name] = map[string][]string{"a": {"10.1.0.1"}, "b": {"10.2.0.1"}}
		for _, id := range ids {
			m := s.members[id]
			svc, slice := service(name, id)
			svc.Spec.InternalTrafficPolicy, svc.Spec.SessionAffinity, svc.Spec.IPFamilies = &cluster,
				corev1.ServiceAffinityNone, []corev1.IPFamily{
					corev1.IPv4Protocol,
				}
			if svc.Spec.ClusterIP == corev1.ClusterIPNone {
				svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, corev1.IPv6Protocol)
			}
			m.services, m.slices = append(m.services, *svc), append(m.slices, *slice)
			imp := mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Name: name}}
			imp.Spec = mcsv1beta1.ServiceImportSpec{
				Type:                  mcsv1beta1.Headless,
				InternalTrafficPolicy: &cluster,
				SessionAffinity:       corev1.ServiceAffinityNone,
				IPFamilies: []corev1.IPFamily{
					corev1.IPv4Protocol,
				},
				Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			}
			if slices.Contains(vips, name) {
				vip := "10.96.0." + id
				t.vips[pair{name, id}] = vip
				imp.Spec.Type, imp.Spec.IPs = mcsv1beta1.ClusterSetIP, []string{vip}
				m.services = append(m.services, derivedService(name, vip))
			}
			imp.UID, imp.Annotations = types.UID(name+"-in-"+id), map[string]string{
				"multicluster.kubernetes.io/derived-service": resolution.DerivedName(ns, name),
			}
			imp.Status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsPresent
			imp.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "a"}, {Cluster: "b"}}
			imp.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True"}}
			export := serviceExport(name)
			export.Status.Conditions = []metav1.Condition{
				{Type: "Valid", Status: "True", Reason: "Valid"},
				{Type: "Ready", Status: "True", Reason: "Exported"},
				{Type: "Conflict", Status: "False", Reason: "NoConflicts"},
			}
			if name == "steady" { // a was first
				imp.Spec.Ports = append(
					imp.Spec.Ports,
					mcsv1beta1.ServicePort{Name: "tls-of-a", Protocol: corev1.ProtocolTCP, Port: 443},
				)
				imp.Annotations[resolution.Annotation] = string(hubv1alpha1.PreferLocal)
				export.Status.Conditions[2].Status, export.Status.Conditions[2].Reason = "True", "PortConflict"
			}
			m.imports = append(m.imports, imp)
			m.exports = append(m.exports, *export)
			for _, source := range ids {
				_, of := service(name, "a")
				of.Name, of.Labels = name+"-of-"+source, map[string]string{
					mcsv1beta1.LabelServiceName:   name,
					mcsv1beta1.LabelSourceCluster: source,
					discoveryv1.LabelServiceName: resolution.DerivedName(
						ns,
						name,
					),
					discoveryv1.LabelManagedBy: kube.Manager,
				}
				of.Labels[hidden], of.Labels[anotherProxy] = "", "none"
				if name == "steady" && source != id { // which all want near
					of.Labels[standby] = "true"
				}
				of.OwnerReferences = []metav1.OwnerReference{
					{
						APIVersion: "multicluster.x-k8s.io/v1beta1",
						Kind:       "ServiceImport",
						Name:       name,
						UID:        imp.UID,
						Controller: new(bool),
					},
				}
				of.Endpoints = []discoveryv1.Endpoint{{Addresses: t.exporters[name][source]}}
				m.slices = append(m.slices, *of)
				m.records = append(
					m.records,
					hubv1alpha1.ServiceExportRecord{
						ObjectMeta: metav1.ObjectMeta{Name: name + "." + ns + "." + source},
					},
				)
			}
			rec := hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{Name: name + "." + ns + "." + id}}
			rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{{
				Endpoints: []hubv1alpha1.Endpoint{{Address: t.exporters[name][id][0]}},
			}}
			s.hub.records = append(s.hub.records, rec)
		}
	}
	for _, id := range ids {
		p := inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: id}}
		p.Status.Conditions = []metav1.Condition{{Type: "ControlPlaneHealthy", Status: "True"}}
		s.hub.profiles = append(s.hub.profiles, p)
	}
	for _, name := range names {
		merged, _, _ := s.merged(t, name)
		for _, m := range s.members {
			for i := range m.slices {
				if of := &m.slices[i]; of.Labels[mcsv1beta1.LabelServiceName] == name {
					if read, ok := resolution.ForKubeProxy(
						&merged, ns, name, of.Labels[mcsv1beta1.LabelSourceCluster], kube.Manager, of,
					); ok {
						read.Name = of.Name + trafficSuffix
						m.slices = append(m.slices, *read)
					}
				}
			}
		}
	}
	return s, t
}

// trafficSuffix is what a slice for kube-proxy has behind the name of the imported one.
const trafficSuffix = "-traffic"

// TestPlantedStatesAreFound: each differs from what is right in one way.
func TestPlantedStatesAreFound(t *testing.T) {
	if s, truth := settled(); len(s.check(truth)) > 0 {
		t.Fatalf("what is right is found wrong: %v", s.check(truth))
	}
	for name, c := range map[string]struct {
		plant func(*state, *truth)
		want  string
	}{
		"another VIP": {func(s *state, _ *truth) {
			s.members["b"].imports[0].Spec.IPs = []string{"10.96.9.9"}
		}, "the VIP that it had at first"},
		"no VIP": {func(s *state, _ *truth) {
			s.members["b"].imports[0].Spec.IPs = nil
		}, "the VIP that it had at first"},
		"another derived Service": {func(s *state, _ *truth) {
			s.members["b"].services[1].Spec.ClusterIP = "10.96.9.9"
		}, "the derived Service has not the VIP"},
		"no derived Service": {func(s *state, _ *truth) {
			s.members["b"].services[1].Name = "derived"
		}, "the derived Service has not the VIP"},
		"no import": {func(s *state, _ *truth) {
			s.members["a"].imports = s.members["a"].imports[1:]
		}, "no ServiceImport steady in a"},
		"import without an export": {func(_ *state, t *truth) {
			delete(t.exporters, "steady")
		}, "nobody exports it"},
		"imports that differ": {func(s *state, _ *truth) {
			s.members["b"].imports[0].Spec.SessionAffinity = "ClientIP"
		}, "ServiceImport steady in b says"},
		"not ready": {func(s *state, _ *truth) {
			s.members["a"].imports[0].Status.Conditions[0].Status = "False"
		}, "not Ready"},
		"exporters": {func(s *state, _ *truth) {
			s.members["a"].imports[0].Status.Clusters = nil
		}, "clusters [], want [a b]"},
		"type": {func(s *state, _ *truth) {
			s.members["a"].imports[3].Spec.Type = mcsv1beta1.ClusterSetIP
		}, "ServiceImport heads in a says"},
		"stale endpoints": {func(s *state, _ *truth) {
			s.members["a"].slices[10].Endpoints[0].Addresses = []string{"10.1.0.9"}
		}, "want [10.1.0.1] (S1, S2)"},
		"stale behind a VIP": {func(s *state, _ *truth) {
			s.members["a"].slices[1].Endpoints[0].Addresses = []string{"10.1.0.9"}
		}, "a has [10.1.0.9] of steady of a, want [10.1.0.1]"},
		"endpoints gone": {func(s *state, _ *truth) {
			s.members["a"].slices = s.members["a"].slices[:17]
		}, "has [] of coming of b"},
		"endpoints of no export": {func(s *state, t *truth) {
			delete(t.exporters["coming"], "b")
		}, "coming of b, which is not exported"},
		"a conflict unsaid": {func(s *state, _ *truth) {
			s.members["b"].services[4].Spec.SessionAffinity = "ClientIP"
		}, "ServiceExport quarrel in a: Conflict"},
		"a conflict that is none": {func(s *state, _ *truth) {
			s.members["a"].exports[2].Status.Conditions[2].Status = "True"
		}, "ServiceExport quarrel in a: Conflict"},
		"an export that is refused": {func(s *state, _ *truth) {
			s.members["a"].exports[0].Status.Conditions[1].Status = "False"
		}, "ServiceExport steady in a: Ready"},
		"a record lost": {func(s *state, _ *truth) {
			s.hub.records = s.hub.records[1:]
		}, "records in effect in the hub"},
		"a copy lost": {func(s *state, _ *truth) {
			s.members["b"].records[0].Spec.Withdrawn = true
		}, "records in effect in b"},
		"a word unpublished": {func(s *state, _ *truth) {
			s.members["a"].records[0].Spec.Revision = 2
		}, "in a, of revision 2, differs from the hub's, of 0"},
		"a fact unpublished": {func(s *state, _ *truth) {
			s.members["a"].records[0].Spec.SessionAffinity = "ClientIP"
		}, "in a, of revision 0, differs from the hub's, of 0"},
		"endpoints lost on the hub": {func(s *state, _ *truth) {
			s.hub.records[0].Spec.Endpoints = nil
		}, "endpoints of steady.soak.a in effect on the hub: [], want"},
		"endpoints on the hub that are stale": {func(s *state, _ *truth) {
			s.hub.records[0].Spec.Endpoints[0].Endpoints[0].Address = "10.1.0.9"
		}, "endpoints of steady.soak.a in effect on the hub: [\"10.1.0.9\"], want"},
		"endpoints on the hub of no export": {func(s *state, _ *truth) {
			rec := s.hub.records[0].DeepCopy()
			rec.Name = "steady.soak.c"
			s.hub.records = append(s.hub.records, *rec)
		}, "endpoints of steady.soak.c are in effect"},
		"a page of no export": {func(s *state, _ *truth) {
			s.hub.pages = []hubv1alpha1.EndpointPage{{ObjectMeta: metav1.ObjectMeta{Name: "0.steady.soak.a"}}}
		}, "EndpointPage 0.steady.soak.a is on the hub"},
		"others that are not silent": {func(s *state, _ *truth) {
			delete(s.members["a"].slices[2].Labels, standby)
		}, "slice steady-of-b of steady of b in a: labels (S1, T2)"},
		"its own that are silent": {func(s *state, _ *truth) {
			s.members["a"].slices[1].Labels[standby] = "true"
		}, "slice steady-of-a of steady of a in a: labels (S1, T2)"},
		"a headless slice for kube-proxy": {func(s *state, _ *truth) {
			delete(s.members["a"].slices[10].Labels, hidden)
		}, "slice heads-of-a of heads of a in a: labels (S1, T2)"},
		"a slice that kube-proxy does not find": {func(s *state, _ *truth) {
			s.members["b"].slices[1].Labels[discoveryv1.LabelServiceName] = "steady"
		}, "of steady of a in b: labels (S1, T2)"},
		"endpoints that kube-proxy still reads": {func(s *state, _ *truth) {
			slice := find(s.members["a"].slices, func(s *discoveryv1.EndpointSlice) bool {
				return s.Name == "steady-of-a"+trafficSuffix
			})
			slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.9"}}}
		}, "kube-proxy reads"},
		"endpoints that kube-proxy does not get": {func(s *state, _ *truth) {
			s.members["b"].slices = slices.DeleteFunc(s.members["b"].slices, func(s discoveryv1.EndpointSlice) bool {
				return strings.HasSuffix(s.Name, trafficSuffix)
			})
		}, "kube-proxy reads [] of steady in b"},
		"a slice of nobody's": {func(s *state, _ *truth) {
			delete(s.members["b"].slices[1].Labels, discoveryv1.LabelManagedBy)
		}, "of steady of a in b: labels (S1, T2)"},
		"a slice of another import": {func(s *state, _ *truth) {
			s.members["b"].slices[1].OwnerReferences[0].UID = "earlier"
		}, "of steady of a in b: owners (S1)"},
		"a slice that nobody owns": {func(s *state, _ *truth) {
			s.members["b"].slices[1].OwnerReferences = nil
		}, "of steady of a in b: owners (S1)"},
		"a slice of another family": {func(s *state, _ *truth) {
			s.members["b"].slices[1].AddressType = discoveryv1.AddressTypeIPv6
		}, "of steady of a in b: addresses' types (S2)"},
		"a derived Service's port lost": {func(s *state, _ *truth) {
			s.members["b"].services[1].Spec.Ports = nil
		}, "the derived Service of steady in b is"},
		"a derived Service's affinity": {func(s *state, _ *truth) {
			s.members["b"].services[1].Spec.SessionAffinity = "ClientIP"
		}, "the derived Service of steady in b is"},
		"a derived Service's policy": {func(s *state, _ *truth) {
			s.members["b"].services[1].Spec.InternalTrafficPolicy = nil
		}, "the derived Service of steady in b is"},
		"a derived Service of nobody's": {func(s *state, _ *truth) {
			s.members["b"].services[1].Labels = nil
		}, "the derived Service of steady in b is managed by"},
		"slices that are not promised": {func(s *state, _ *truth) {
			s.members["b"].imports[0].Status.EndpointSliceObjects = ""
		}, "EndpointSlices are"},
		"a derived Service unnamed": {func(s *state, _ *truth) {
			delete(s.members["b"].imports[3].Annotations, "multicluster.kubernetes.io/derived-service")
		}, "ServiceImport heads in b: names"},
		"a member ill": {func(s *state, _ *truth) {
			s.hub.profiles[0].Status.Conditions[0].Status = "Unknown"
		}, "ClusterProfile a"},
		"wrong everywhere alike": {func(s *state, _ *truth) {
			for _, id := range ids {
				s.members[id].imports[0].Spec.Ports = s.members[id].imports[0].Spec.Ports[:1]
			}
		}, "ServiceImport steady in a says"},
		"a port that is not renamed": {func(s *state, _ *truth) {
			s.members["a"].slices[2].Ports = s.members["b"].slices[0].Ports
		}, `does not serve tls-of-b/8443 as "tls-of-a"`},
		"a preference lost": {func(s *state, _ *truth) {
			s.members["b"].imports[0].Annotations = nil
		}, `ServiceImport steady in b prefers ""`},
		"a reason that is not the one": {func(s *state, _ *truth) {
			s.members["b"].exports[0].Status.Conditions[2].Reason = "TypeConflict"
		}, "want True/PortConflict"},
		"a condition of another day": {func(s *state, _ *truth) {
			s.members["b"].exports[1].Generation = 2
		}, "of generation 2"},
		"a record held of another name than the refused one": {func(s *state, t *truth) {
			t.refused = map[string]bool{"shop": true}
			s.members["b"].records[0].Status.Conditions = []metav1.Condition{{Type: hubv1alpha1.ConditionHeld,
				Status: "True"}}
		}, "is held"},
		"a record held": {func(s *state, _ *truth) {
			s.members["b"].records[0].Status.Conditions = []metav1.Condition{{Type: hubv1alpha1.ConditionHeld,
				Status: "True"}}
		}, "is held"},
	} {
		t.Run(name, func(t *testing.T) {
			s, truth := settled()
			c.plant(s, truth)
			if wrong := strings.Join(s.check(truth), "\n"); !strings.Contains(wrong, c.want) {
				t.Errorf("found %q, want %q", wrong, c.want)
			}
		})
	}
}

func TestWritesAreFound(t *testing.T) {
	s, _ := settled()
	before := s.versions()
	if w := written(before, s.versions()); len(w) > 0 {
		t.Errorf("nobody wrote %v", w)
	}
	s.members["a"].imports[0].ResourceVersion = "2"
	s.hub.records = s.hub.records[1:]
	s.members["b"].slices = append(
		s.members["b"].slices,
		discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "new", ResourceVersion: "3"}},
	)
	if w := written(before, s.versions()); len(w) != 3 {
		t.Errorf("three objects were written, and found are %v", w)
	}
}

// TestAnAgentAtRest: one that is killed during a renewal says everything again, which is no fault.
func TestAnAgentAtRest(t *testing.T) {
	now, half := time.Now(), 5*time.Second
	lease := func(version string, ago time.Duration) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: version}}
		l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now.Add(-ago)))
		return l
	}
	note := func(of *coordinationv1.Lease) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{clusterset.AnnotationRenewed: kube.Version(of)},
			},
		}
	}
	fresh, due := lease("2", time.Second), lease("2", 6*time.Second)
	if err := resting(fresh, note(fresh), now, half); err != nil {
		t.Error(err)
	}
	for what, c := range map[string][2]*coordinationv1.Lease{
		"a renewal that is not noted":                  {fresh, note(lease("1", 0))},
		"no note at all":                               {fresh, {}},
		"a renewal that is due, and waits for the hub": {due, note(due)},
		"a Lease that nobody has renewed":              {{}, note(&coordinationv1.Lease{})},
	} {
		if resting(c[0], c[1], now, half) == nil {
			t.Errorf("%s: is taken for rest", what)
		}
	}
}

// TestForbiddenWrites: who may write what in whose name (S1, I7; docs/spec/DESIGN.md §3).
func TestForbiddenWrites(t *testing.T) {
	one := func(user, verb, resource, sub, name string) (w write) {
		w.User.Username, w.Verb = user, verb
		w.ObjectRef.Resource, w.ObjectRef.Subresource, w.ObjectRef.Name = resource, sub, name
		return w
	}
	for _, w := range []write{
		one(peers+"a", "update", "leases", "", "a"), one(peers+"a", "update", "serviceexportrecords", "",
			"steady.soak.a"),
		one(peers+"a", "delete", "endpointpages", "", "0.steady.soak.a"), one(peers+"a", "update", "clusterprofiles",
			"status",
			"a"),
		one(agents, "update", "serviceexports", "status", "steady"), one(agents, "update", "services", "", "derived-x"),
		one(agents, "delete", "endpointslices", "", "derived-x-y"), one(agents, "update", "serviceimports", "",
			"steady"),
		one("admin", "delete", "services", "", "steady"), one(hubs, "update", "clusterprofiles", "status", "a"),
		one(agents, "delete", "serviceimports", "", "shop"),
		one(agents, "delete", "services", "", resolution.DerivedName(ns, "shop")),
	} {
		if why := forbidden(w); why != "" {
			t.Errorf("%v: %s", w, why)
		}
	}
	for _, w := range []write{
		one(peers+"a", "update", "leases", "", "b"), one(peers+"a", "update", "serviceexportrecords", "",
			"steady.soak.b"),
		one(peers+"a", "delete", "endpointpages", "", "0.steady.soak.b"), one(peers+"a", "update", "clusterprofiles",
			"status",
			"b"),
		one(peers+"a", "update", "clustersets", "", "a"), one(agents, "update", "serviceexports", "", "steady"),
		one(agents, "update", "services", "", "steady"), one(agents, "delete", "endpointslices", "",
			sliceName("steady")),
		one(agents, "update", "configmaps", "", "x"), one(hubs, "delete", "endpointpages", "", "0.steady.soak.a"),
		one(agents, "delete", "serviceimports", "", "steady"),
		one(agents, "delete", "services", "", resolution.DerivedName(ns, "steady")),
	} {
		if forbidden(w) == "" {
			t.Errorf("%v is not forbidden", w)
		}
	}
}

// TestU6RefusalsAreStated: each by its own condition or Event, of the right object, and nowhere else.
func TestU6RefusalsAreStated(t *testing.T) {
	one := func(where, user, verb, resource, name, message string) *refusal {
		r := &refusal{where: where}
		r.User.Username, r.Verb, r.ResponseStatus.Message = user, verb, message
		r.ObjectRef.Resource, r.ObjectRef.Name = resource, name
		return r
	}
	derived := resolution.DerivedName(ns, "steady")
	said := []statement{
		{"a", "", "Permitted False RightsMissingOnHub", "This member may not get/create futures on the hub. …"},
		{"a", "steady.soak", "Ready False Failed", "Publishing failed, and is retried: too much"},
		{"b", "steady.soak.a", "Held True Refused", "Copying the record failed. …: spec.new is invalid"},
		{"b", "head-1.soak.a", "Event RecordRefused", "Copying the record failed. …: spec.new is invalid"},
		{"b", "shop.soak.a", "Imported True ChangeRefused", "this cluster's API server refuses …"},
		{"b", "steady.soak.a", "Imported False ImportRefused", "this cluster's API server refuses …"},
		{"b", "steady.soak.a", "EndpointsImported False SliceRefused", "writing endpoints of cluster a …"},
		{"b", "steady", "Event DNSEndpointRefused", "This cluster's API server refuses …"},
	}
	const rights = `futures is forbidden: User "x" cannot create resource "futures"`
	for _, r := range []*refusal{
		one("hub", peers+"a", "create", "futures", "", rights),
		one("hub", peers+"a", "patch", "serviceexportrecords", "steady.soak.a", "too much\nof it"),
		one("a", agents, "create", "serviceexportrecords", "steady.soak.a", "too much"),
		one("b", agents, "update", "serviceexportrecords", "steady.soak.a", "spec.new is invalid"),
		one("b", agents, "create", "serviceexportrecords", "head-1.soak.a", "spec.new is invalid"),
		one("b", agents, "update", "serviceimports", "shop", "no"),
		one("b", agents, "create", "namespaces", ns, "no"),
		one("b", agents, "update", "services", derived, "no"),
		one("b", agents, "create", "endpointslices", derived+"-x", "no"),
		one("b", agents, "create", "dnsendpoints", "clusterset-steady", "no"),
	} {
		if len(unstated([]*refusal{r}, said)) > 0 || !r.stated {
			t.Errorf("%s: is stated", r)
		}
	}
	for _, r := range []*refusal{
		one("hub", peers+"b", "create", "futures", "", rights),
		one("hub", peers+"a", "delete", "futures", "a", strings.ReplaceAll(rights, "create", "delete")),
		one("hub", peers+"a", "patch", "serviceexportrecords", "shop.soak.a", "too much"),
		one("hub", peers+"a", "patch", "serviceexportrecords", "steady.soak.a", "another reason"),
		one("a", agents, "update", "serviceexportrecords", "steady.soak.b", "spec.new is invalid"),
		one("b", agents, "update", "serviceexportrecords", "steady.soak.a", "another reason"),
		one("a", agents, "update", "serviceimports", "shop", "no"),
		one("b", agents, "update", "serviceimports", "quarrel", "no"),
		one("b", agents, "create", "endpointslices", resolution.DerivedName(ns, "shop")+"-x", "no"),
		one("b", agents, "patch", "memberships", "membership", "no"),
		one("hub", hubs, "create", "leases", "", rights),
	} {
		if len(unstated([]*refusal{r}, said)) == 0 || len(unstated([]*refusal{r}, nil)) == 0 {
			t.Errorf("%s: is not stated", r)
		}
	}
}

// TestU7BrokenCommandsAreFound: what begins as a report may have ended otherwise.
func TestU7BrokenCommandsAreFound(t *testing.T) {
	ended := func(code string) error { return exec.Command("sh", "-c", "exit "+code).Run() }
	const report = "ClusterSet clusterset: 2 members, 1 error\n"
	for _, c := range []struct {
		out  string
		err  error
		want string
	}{
		{report, nil, ""}, {report, ended("1"), ""}, {"Cluster a of ClusterSet clusterset: well", ended("2"), ""},
		{report + "panic: index out of range\n\ngoroutine 1 [running]:", ended("2"), "it panics"},
		{report, ended("3"), "it ends with another code"}, {report, context.Canceled, "it ends with another code"},
		{"Error: no such host", ended("1"), "it reports nothing"},
		{"Cluster b of ClusterSet clusterset: well", ended("2"), "it reports nothing"},
	} {
		if why := broken(c.out, c.err, "a"); why != c.want && (c.want == "" || !strings.HasPrefix(why, c.want)) {
			t.Errorf("%q, %v: %q, want %q", c.out, c.err, why, c.want)
		}
	}
}

// TestU7FindingsOfDoctorAreFound, other than those that the laboratory always has.
func TestU7FindingsOfDoctorAreFound(t *testing.T) {
	const one = `{"outcomes":[{"check":"x","findings":[%s]}]}`
	const conflict = `{"check":"conflict","about":["steady.soak"%s]}`
	for finding, want := range map[string]int{
		``: 0, `{"check":"credentials"}`: 0, fmt.Sprintf(conflict, ""): 0, fmt.Sprintf(conflict, `,"quarrel.soak"`): 0,
		`{"check":"drift"}`: 1, fmt.Sprintf(conflict, `,"shop.soak"`): 1,
	} {
		if got, err := findings(fmt.Sprintf(one, finding)); err != nil || len(got) != want {
			t.Errorf("%s: %q, %v; want %d", finding, got, err, want)
		}
	}
	for _, report := range []string{"{}", "Error: no such host"} {
		if _, err := findings(report); err == nil {
			t.Errorf("%q is a report", report)
		}
	}
}

// TestWhatIsTakenIsRefusedNoMore: for rights, only the same verb shows that.
func TestWhatIsTakenIsRefusedNoMore(t *testing.T) {
	w := &world{tape: &tape{reel: &reel{out: bufio.NewWriter(io.Discard), say: func(string) {}}}}
	write := func(verb, name string, code int, message string) {
		one := write{Verb: verb}
		one.ObjectRef.Resource, one.ObjectRef.Name = "serviceexportrecords", name
		one.ResponseStatus.Code, one.ResponseStatus.Message = code, message
		w.answered("hub", one)
	}
	const rights = `User "x" cannot create resource "serviceexportrecords"`
	for _, c := range []struct {
		do   func()
		want string
	}{
		{func() { write("update", "x.soak.a", 422, "too much") }, "x"},
		{func() { write("update", "x.soak.a", 409, "conflict") }, "x"},
		{func() { write("create", "", 403, rights) }, "x 403"},
		{func() { write("update", "y.soak.a", 200, "") }, "x 403"},
		{func() { write("create", "z.soak.a", 409, "exists") }, "x"},
		{func() { write("create", "x.soak.a", 201, "") }, ""},
		{func() { write("update", "x.soak.a", 403, strings.ReplaceAll(rights, "create", "update")) }, "x 403"},
		{func() { write("update", "y.soak.a", 200, "") }, "x 403 stated"},
		{func() { write("update", "x.soak.a", 403, strings.ReplaceAll(rights, "create", "update")) }, "x 403"},
	} {
		c.do()
		have := ""
		for name := range w.refusedNames() {
			have = name + have
		}
		if slices.ContainsFunc(w.refusals, (*refusal).byRights) {
			have += " 403"
		}
		if len(w.refusals) > 0 && len(unstated(w.refusals, nil)) == 0 {
			have += " stated"
		}
		if have != c.want {
			t.Errorf("refused are %q, want %q", have, c.want)
		}
	}
}

// TestT3OneLongDeathIsNoFlapping: a member that never came back costs few writes, which is no merit.
func TestT3OneLongDeathIsNoFlapping(t *testing.T) {
	for _, c := range []struct {
		came   int
		writes float64
		want   bool
	}{{2, 5, true}, {0, 1, false}, {1, 3, false}, {3, 21, false}} {
		if got := flapped(c.came, c.writes); got != c.want {
			t.Errorf("came back %d times for %.0f writes: %v", c.came, c.writes, got)
		}
	}
}

// TestT1TheLongRunIsCheckedAgainstItsPage: the bounds of docs/reliability.md are T1's and ours, without what
// TestSoak adds for shared machines.
func TestT1TheLongRunIsCheckedAgainstItsPage(t *testing.T) {
	b := bounds(byDefault, false)
	if b.Gone != 65*time.Second || b.Converge != 65*time.Second {
		t.Errorf(
			"dead members' endpoints have to be gone after %v, and all has to follow in %v",
			b.Gone,
			b.Converge,
		)
	}
	r := &results{
		raw:  "docs/reliability.log.gz",
		sum:  "f00d",
		size: 2e5,
		tape: &tape{reel: &reel{}},
		gone: []time.Duration{50 * time.Second, 66 * time.Second},
	}
	for _, want := range []string{"65.0 s after its last renewal (T1)", "missing after 65.0 s", "within 75.0 s",
		"beside other trouble: 1 of 2. While the hub is away nobody's silence counts",
		"the quiet checks look at the endpoints of VIPs.", "is in `reliability.log.gz`: 0.2 MB, SHA-256 `f00d`.\n"} {
		if text := r.text(); !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
}

// TestI6TheShortRunForgivesDurationsOnly: what must hold on every machine is no question of a busy one.
func TestI6TheShortRunForgivesDurationsOnly(t *testing.T) {
	for _, c := range []struct {
		what    string
		hurried bool
		find    func(*stage)
		failed  int
	}{
		{"too slow, in the long run", false, func(s *stage) { s.took("A", "back", soon+1, soon) }, 1},
		{"too slow, in the short run", true, func(s *stage) { s.took("A", "back", soon+1, soon) }, 0},
		{"in time", false, func(s *stage) { s.took("A", "back", soon, soon) }, 0},
		{"another VIP, in the long run", false, func(s *stage) {
			s.found("A", "VIPs", "unchanged", false, "others")
		}, 1},
		{"another VIP, in the short run", true, func(s *stage) {
			s.found("A", "VIPs", "unchanged", false, "others")
		}, 1},
		{"the same VIP", true, func(s *stage) { s.found("A", "VIPs", "unchanged", true, "unchanged") }, 0},
	} {
		reel := &reel{out: bufio.NewWriter(io.Discard), say: func(string) {}}
		s := &stage{world: &world{tape: &tape{reel: reel}, hurried: c.hurried}, finds: func(finding) {}}
		if c.find(s); len(reel.failures) != c.failed {
			t.Errorf("%s: %q", c.what, reel.failures)
		}
	}
}
