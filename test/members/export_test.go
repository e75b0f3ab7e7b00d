package members

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const (
	valid    = mcsv1beta1.ServiceExportConditionValid
	exported = mcsv1beta1.ServiceExportConditionReady
	conflict = mcsv1beta1.ServiceExportConditionConflict
)

// TestE1VisibleOnlyWhileExported: a Service alone is seen nowhere else; with its ServiceExport in every member.
func TestE1VisibleOnlyWhileExported(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b", "c")
	svc := service(ns, "web")
	s.members["a"].create(t, svc, slice(svc, "web-1", "10.1.0.1"))
	s.members["a"].exported(t, service(ns, "other"), "10.1.0.2")
	s.members["b"].wantImport(t, ns, "other", ready("a")) // so the agents have looked
	if _, err := s.members["b"].imported(t.Context(), ns, "web"); err == nil {
		t.Fatal("a Service without ServiceExport is imported")
	}
	s.members["a"].create(t, export(ns, "web"))
	for _, id := range []string{"a", "b", "c"} {
		s.members[id].wantImport(t, ns, "web", ready("a"))
		s.members[id].wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")
	}
}

// TestE2UnexportOrServiceGone: either takes this cluster's share away, at once.
func TestE2UnexportOrServiceGone(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	s.members["b"].exported(t, service(ns, "web"), "10.2.0.1")
	s.members["b"].wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080", "b/http/10.2.0.1:8080")
	s.members["a"].remove(t, export(ns, "web"))
	s.members["b"].wantImport(t, ns, "web", ready("b"))
	s.members["b"].wantEndpoints(t, ns, "web", "b/http/10.2.0.1:8080")
	s.members["b"].remove(t, service(ns, "web"))
	s.members["b"].wantCondition(t, ns, "web", valid, metav1.ConditionFalse, "NoService")
	for _, id := range []string{"a", "b"} {
		s.members[id].wantNoImport(t, ns, "web")
		s.members[id].wantEndpoints(t, ns, "web")
	}
}

// TestE3Valid: every reason.
func TestE3Valid(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	a := s.members["a"]
	a.create(t, export(ns, "missing"))
	a.wantCondition(t, ns, "missing", valid, metav1.ConditionFalse, "NoService")
	a.wantEvent(t, ns, "missing", "NoService")
	a.create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "outside"},
		Spec: corev1.ServiceSpec{
			Type:         corev1.ServiceTypeExternalName,
			ExternalName: "example.com",
		},
	}, export(ns, "outside"))
	a.wantCondition(t, ns, "outside", valid, metav1.ConditionFalse, "InvalidServiceType")
	a.create(t, service(ns, "missing"))
	a.wantCondition(t, ns, "missing", valid, metav1.ConditionTrue, "Valid")
	s.members["b"].wantImport(t, ns, "missing", ready("a"))
	if _, err := s.members["b"].imported(t.Context(), ns, "outside"); err == nil {
		t.Error("an ExternalName Service is imported")
	}
}

// TestE4ReadyOnceOnTheHub: Exported means that others can have it.
func TestE4ReadyOnceOnTheHub(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	s.members["a"].wantCondition(t, ns, "web", exported, metav1.ConditionTrue, "Exported")
	s.members["a"].create(t, export(ns, "missing"))
	s.members["a"].wantCondition(t, ns, "missing", exported, metav1.ConditionFalse, "Pending")
}

// TestE5ConflictOnAllExporters: with every reason, on every exporter, and gone when they agree.
func TestE5ConflictOnAllExporters(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b", "c")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	s.members["c"].wantImport(t, ns, "web", ready("a"))
	other := headless(ns, "web", port("http", 81))
	s.members["b"].exported(t, other, "10.2.0.1")
	s.members["c"].exported(t, service(ns, "web"), "10.3.0.1")
	for _, id := range []string{"a", "b", "c"} {
		s.members[id].wantImport(t, ns, "web", ready("a", "b", "c"))
		s.members[id].wantMessage(t, ns, "web", "1/3")
		c := s.members[id].wantCondition(t, ns, "web", conflict, metav1.ConditionTrue, "TypeConflict,PortConflict")
		want := `Conflicting type. Using "ClusterSetIP" from oldest service export in "a". ` +
			`1/3 clusters disagree.`
		if !strings.HasPrefix(c.Message, want) {
			t.Errorf("%s: message %q, want it to begin with %q", id, c.Message, want)
		}
		s.members[id].wantEvent(t, ns, "web", "Conflict")
	}
	s.members["b"].remove(t, export(ns, "web"))
	for _, id := range []string{"a", "c"} {
		s.members[id].wantCondition(t, ns, "web", conflict, metav1.ConditionFalse, "NoConflicts")
	}
}

// TestE6Types: NodePort and LoadBalancer are exported as ClusterSetIP, headless as Headless.
func TestE6Types(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	for name, kind := range map[string]corev1.ServiceType{"node": corev1.ServiceTypeNodePort,
		"balanced": corev1.ServiceTypeLoadBalancer} {
		svc := service(ns, name)
		svc.Spec.Type = kind
		s.members["a"].exported(t, svc, "10.1.0.1")
		s.members["b"].wantImport(t, ns, name, func(imp *mcsv1beta1.ServiceImport) error {
			if imp.Spec.Type != mcsv1beta1.ClusterSetIP || len(imp.Spec.IPs) != 1 {
				return errors.New("not a ClusterSetIP with an address")
			}
			return nil
		})
	}
	s.members["a"].exported(t, headless(ns, "heads"), "10.1.0.1")
	s.members["b"].wantImport(t, ns, "heads", func(imp *mcsv1beta1.ServiceImport) error {
		if imp.Spec.Type != mcsv1beta1.Headless || len(imp.Spec.IPs) != 0 || len(imp.Spec.IPFamilies) != 1 {
			return errors.New("not Headless without addresses, with families")
		}
		return ready("a")(imp)
	})
}

// TestE7OnlyExportedLabelsTravel: never from the Service's or the ServiceExport's own metadata.
func TestE7OnlyExportedLabelsTravel(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	svc := service(ns, "web")
	svc.Labels, svc.Annotations = map[string]string{"svc": "l"}, map[string]string{"svc": "a"}
	e := export(ns, "web")
	e.Labels = map[string]string{"export": "l"}
	e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = map[string]string{
		"team": "shop",
	}, map[string]string{
		"doc": "x",
	}
	s.members["a"].create(t, svc, e)
	s.members["b"].wantImport(t, ns, "web", func(imp *mcsv1beta1.ServiceImport) error {
		if imp.Labels["team"] != "shop" || imp.Annotations["doc"] != "x" || imp.Labels["svc"] != "" ||
			imp.Annotations["svc"] != "" ||
			imp.Labels["export"] != "" {
			return errors.New("labels and annotations are not the exported ones")
		}
		return nil
	})
	change(
		t,
		s.members["a"],
		export(ns, "web"),
		func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedLabels = map[string]string{"other": "1"} },
	)
	s.members["b"].wantImport(t, ns, "web", func(imp *mcsv1beta1.ServiceImport) error {
		if imp.Labels["team"] != "" || imp.Labels["other"] != "1" {
			return errors.New("the old label stays, or the new is missing")
		}
		return nil
	})
}

// TestE8Transitions: a change that flips nothing moves no lastTransitionTime, which is of whole seconds.
func TestE8Transitions(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a")
	a := s.members["a"]
	a.exported(t, service(ns, "web"), "10.1.0.1")
	before := a.wantCondition(t, ns, "web", valid, metav1.ConditionTrue, "Valid").LastTransitionTime
	eventually(t, "the next second", func() error {
		if now := time.Now(); now.Unix() <= before.Unix() {
			return fmt.Errorf("it is %v", now)
		}
		return nil
	})
	change(
		t,
		a,
		export(ns, "web"),
		func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedLabels = map[string]string{"x": "y"} },
	)
	after := a.wantCondition(t, ns, "web", valid, metav1.ConditionTrue, "Valid") // of the new generation
	if !after.LastTransitionTime.Equal(&before) || after.ObservedGeneration < 2 {
		t.Errorf("%+v, before %v", after, before)
	}
}

// TestAnInvalidLocalExportDoesNotStopImports is DESIGN §4: b's own export is no Service, and what a exports comes
// all the same.
func TestAnInvalidLocalExportDoesNotStopImports(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["b"].create(t, export(ns, "web"))
	s.members["b"].wantCondition(t, ns, "web", valid, metav1.ConditionFalse, "NoService")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	s.members["b"].wantImport(t, ns, "web", ready("a"))
}

// TestADerivedServiceIsNeverExported: nor its slices, and nobody hears of it.
func TestADerivedServiceIsNeverExported(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	imp := s.members["b"].wantImport(t, ns, "web", ready("a"))
	derived := s.members["b"].derivedOf(t, imp).Name
	s.members["b"].create(t, export(ns, derived))
	s.members["b"].wantCondition(t, ns, derived, valid, metav1.ConditionFalse, "InvalidServiceType")
	s.members["b"].wantCondition(t, ns, derived, exported, metav1.ConditionFalse, "Pending")
	s.members["b"].exported(t, service(ns, "last"), "10.2.0.1")
	s.members["a"].wantImport(t, ns, "last", ready("b")) // so the agents have looked
	var record hubv1alpha1.ServiceExportRecord
	key := client.ObjectKey{Namespace: lab.HubNamespace, Name: derived + "." + ns + ".b"}
	if err := s.hub.Get(
		t.Context(),
		key,
		&record,
	); err == nil && !record.Spec.Withdrawn ||
		client.IgnoreNotFound(err) != nil {
		t.Errorf("the hub has %s: %v", key.Name, err)
	}
	if _, err := s.members["a"].imported(t.Context(), ns, derived); !apierrors.IsNotFound(err) {
		t.Errorf("a derived Service is imported: %v", err)
	}
}

// TestS1ARelabelledSlice goes from one exported Service to another, and back, in every member: its record cannot
// change whose it is.
func TestS1ARelabelledSlice(t *testing.T) {
	s := three(t)
	a, b := s.members["a"], s.members["b"]
	ns := s.namespace(t, "a", "b")
	a.exported(t, service(ns, "web"), "10.1.0.1")
	a.exported(t, service(ns, "api"), "10.1.0.2")
	moved := slice(service(ns, "web"), "moved", "10.1.0.3")
	a.create(t, moved)
	web, api := "a/http/10.1.0.1:8080", "a/http/10.1.0.2:8080"
	b.wantEndpoints(t, ns, "web", web, "a/http/10.1.0.3:8080")
	for _, to := range []string{"api", "web"} {
		change(t, a, moved, func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = to })
		want := map[string][]string{"web": {web}, "api": {api}}
		want[to] = append(want[to], "a/http/10.1.0.3:8080")
		for name, endpoints := range want {
			b.wantEndpoints(t, ns, name, endpoints...)
		}
	}
}
