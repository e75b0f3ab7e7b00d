package serviceimport

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// declaredImport is what an operator declares that writes ServiceImports itself.
func declaredImport() *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", Labels: map[string]string{derived.LabelManagedBy: "redpanda-operator"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1"}},
		},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Protocol: "TCP", Port: 80}},
		},
	}
}

// annotate sets an annotation of the namespace, or removes it if the value is empty.
func (m *member) annotate(key, value string) {
	m.t.Helper()
	ns := m.read(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	ns.SetAnnotations(map[string]string{key: value})
	if value == "" {
		ns.SetAnnotations(nil)
	}
	if err := m.local.Update(m.t.Context(), ns); err != nil {
		m.t.Fatal(err)
	}
}

// set has the ClusterSet say this of declared imports and missing namespaces.
func (m *member) set(declared hubv1alpha1.DeclaredImports, missing hubv1alpha1.MissingNamespaces, deny ...string) {
	m.t.Helper()
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	if err := client.IgnoreNotFound(m.hub.Delete(m.t.Context(), set.DeepCopy())); err != nil {
		m.t.Fatal(err)
	}
	set.Spec.DeclaredImports, set.Spec.Namespaces.Missing, set.Spec.Namespaces.Deny = declared, missing, deny
	if err := m.hub.Create(m.t.Context(), set); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) mustPass() {
	m.t.Helper()
	for range 2 { // what the first one writes requests the second
		if err := m.pass(); err != nil {
			m.t.Fatal(err)
		}
	}
}

// wantFilled checks that the import has the VIP, slices and a status, or nothing of the agent's. In both cases the rest
// of it is as it was declared.
func (m *member) wantFilled(want bool) *mcsv1beta1.ServiceImport {
	m.t.Helper()
	was := declaredImport()
	imp := m.read(was).(*mcsv1beta1.ServiceImport)
	filled := slices.Equal(imp.Spec.IPs, []string{"10.96.0.9"}) && len(imp.Status.Clusters) == 1 &&
		imp.Annotations[imports.AnnotationFilled] == "10.96.0.9" && m.imported()["c"] != nil &&
		meta.IsStatusConditionTrue(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
	empty := len(imp.Spec.IPs)+len(imp.Annotations)+len(imp.Status.Conditions)+len(m.imported()) == 0 &&
		equality.Semantic.DeepEqual(imp.Status, mcsv1beta1.ServiceImportStatus{})
	if want && !filled || !want && !empty {
		m.t.Fatalf("filled %v, want %v: %+v, slices %v", filled, want, imp, m.imported())
	}
	rest := imp.DeepCopy()
	rest.Spec.IPs = nil
	if !equality.Semantic.DeepEqual(rest.Spec, was.Spec) || !equality.Semantic.DeepEqual(rest.Labels, was.Labels) ||
		!equality.Semantic.DeepEqual(rest.OwnerReferences, was.OwnerReferences) {
		m.t.Errorf("another program's fields changed: %+v", imp)
	}
	return imp
}

// TestI11ADeclaredImportIsFilled where the namespace or the ClusterSet asks for it, and emptied when that ends.
func TestI11ADeclaredImportIsFilled(t *testing.T) {
	m := beside(t, declaredImport())
	const fill = "Fill"
	for i, step := range []struct {
		namespace string
		set       hubv1alpha1.DeclaredImports
		hub       bool
		want      bool
	}{
		{"", "", true, false}, {fill, "", true, true}, {"", "", true, false}, {"", fill, true, true},
		{"", "", false, true}, {"Ignore", fill, true, false}, {fill, fill, true, true}, {"other", fill, true, false},
	} {
		m.annotate(clusterset.AnnotationNamespaceDeclared, step.namespace)
		m.set(step.set, "")
		m.seesHub = step.hub
		m.mustPass()
		t.Logf("step %d", i)
		if m.wantFilled(step.want); (m.reason() == "NotOwned") == step.want {
			t.Errorf("condition Imported %q", m.reason())
		}
		m.writes = 0
		if m.mustPass(); m.writes > 0 {
			t.Errorf("%d writes although nothing has changed", m.writes)
		}
	}
}

// TestI11TheObjectStays when nobody exports the name any more, and the same VIP returns.
func TestI11TheObjectStays(t *testing.T) {
	m := beside(t, declaredImport())
	m.annotate(clusterset.AnnotationNamespaceDeclared, string(hubv1alpha1.DeclaredImportsFill))
	m.mustPass()
	for _, withdrawn := range []bool{false, true, false} {
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = withdrawn })
		m.mustPass()
		m.wantFilled(!withdrawn)
	}
	m.annotate(clusterset.AnnotationNamespaceImport, "false")
	m.mustPass()
	m.wantFilled(false)
}

// TestI11ADeclaredImportIsEmptiedWhole, though a pass fails on the way: its mark goes last, also after the slices of
// the controller external. The derived Service goes after its quarantine.
func TestI11ADeclaredImportIsEmptiedWhole(t *testing.T) {
	m := beside(t, declaredImport())
	m.annotate(clusterset.AnnotationNamespaceDeclared, string(hubv1alpha1.DeclaredImportsFill))
	m.mustPass()
	m.wantFilled(true)
	m.annotate(clusterset.AnnotationNamespaceDeclared, "Ignore")
	m.keep = errors.New("not now")
	outside := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: external.SliceName("web", "c", discoveryv1.AddressTypeIPv4),
			Labels: map[string]string{discoveryv1.LabelManagedBy: kube.Manager},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if err := m.local.Create(t.Context(), outside); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.pass(), m.pass()); !errors.Is(err, m.keep) {
		t.Fatal(err)
	}
	if imp := m.read(declaredImport()).(*mcsv1beta1.ServiceImport); len(imp.Spec.IPs) > 0 {
		t.Errorf("it has VIPs while its slices go: %+v", imp)
	}
	m.keep = nil
	m.annotate(clusterset.AnnotationNamespaceDeclared, "")
	for _, sees := range []bool{false, true} { // the agent restarts, and does not know what the ClusterSet wants
		m.seesHub, m.reconciler = sees, newReconciler(m.Config)
		m.mustPass()
		imp := m.read(declaredImport()).(*mcsv1beta1.ServiceImport)
		if !kube.Emptied(imp) || len(imp.Spec.IPs)+len(imp.Status.Clusters) > 0 {
			t.Fatalf("not emptied, or the mark is gone before a slice of the controller external: %+v", imp)
		}
	}
	if err := m.local.Delete(t.Context(), outside); err != nil {
		t.Fatal(err)
	}
	m.mustPass()
	m.wantFilled(false)

	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web")}}
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	result, err := m.Reconcile(t.Context(), reconcile.Request{NamespacedName: name})
	if err != nil || m.read(svc) == nil || result.RequeueAfter <= 0 || result.RequeueAfter > derived.Quarantine {
		t.Errorf("in the quarantine: Service %v, again after %v: %v", m.read(svc), result.RequeueAfter, err)
	}
	m.later = derived.Quarantine + time.Second
	if m.mustPass(); m.read(svc) != nil {
		t.Errorf("after the quarantine: %+v", m.read(svc))
	}
}

// TestI11TheStatusIsClearedOnce: what comes back is the other program's.
func TestI11TheStatusIsClearedOnce(t *testing.T) {
	m := beside(t, declaredImport())
	m.annotate(clusterset.AnnotationNamespaceDeclared, string(hubv1alpha1.DeclaredImportsFill))
	m.mustPass()
	m.annotate(clusterset.AnnotationNamespaceDeclared, "Ignore")
	for range 4 {
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		imp := m.read(declaredImport()).(*mcsv1beta1.ServiceImport)
		if len(imp.Status.Clusters) == 0 {
			imp.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "theirs"}}
			if err := m.local.Status().Update(t.Context(), imp); err != nil {
				t.Fatal(err)
			}
		}
	}
	imp := m.read(declaredImport()).(*mcsv1beta1.ServiceImport)
	if kube.Filled(imp) || len(m.imported()) > 0 || len(imp.Spec.IPs) > 0 || len(imp.Status.Clusters) != 1 {
		t.Errorf("%+v, slices %v", imp, m.imported())
	}
}

// TestI11IPsOfOthersStay, whether they were there first or came later.
func TestI11IPsOfOthersStay(t *testing.T) {
	for _, later := range []bool{false, true} {
		theirs := declaredImport()
		if !later {
			theirs.Spec.IPs = []string{"192.0.2.1"}
		}
		m := beside(t, theirs)
		m.annotate(clusterset.AnnotationNamespaceDeclared, string(hubv1alpha1.DeclaredImportsFill))
		m.mustPass()
		if later {
			imp := m.wantFilled(true)
			imp.Spec.IPs = []string{"192.0.2.1"}
			if err := m.local.Update(t.Context(), imp); err != nil {
				t.Fatal(err)
			}
			m.mustPass()
		}
		imp := m.read(theirs).(*mcsv1beta1.ServiceImport)
		if !slices.Equal(imp.Spec.IPs, []string{"192.0.2.1"}) || m.reason() != "NotOwned" || kube.Filled(imp) {
			t.Errorf("later %v: condition %q, %+v", later, m.reason(), imp)
		}
	}
}

// TestI11AnImportThatIsTakenOverKeepsItsVIP: the agent made it before the other program applied its declaration.
func TestI11AnImportThatIsTakenOverKeepsItsVIP(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	m.mustPass()
	imp := m.read(declaredImport()).(*mcsv1beta1.ServiceImport)
	imp.Labels = declaredImport().Labels
	if err := m.local.Update(t.Context(), imp); err != nil {
		t.Fatal(err)
	}
	for _, fill := range []bool{false, true} {
		if fill {
			m.annotate(clusterset.AnnotationNamespaceDeclared, string(hubv1alpha1.DeclaredImportsFill))
		}
		m.mustPass()
		imp := m.read(imp).(*mcsv1beta1.ServiceImport)
		if !slices.Equal(imp.Spec.IPs, []string{"10.96.0.9"}) || kube.Filled(imp) != fill ||
			(m.reason() == "NotOwned") == fill {
			t.Errorf("fill %v: condition %q, %+v", fill, m.reason(), imp)
		}
	}
}

// TestI11ADeclarationThatDiffers is named in Ready; slices and derived Service follow the exports.
func TestI11ADeclarationThatDiffers(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*mcsv1beta1.ServiceImportSpec)
		reason string
		says   string
		ips    int
	}{
		{"not", func(*mcsv1beta1.ServiceImportSpec) {}, "Ready", "", 1},
		{"without a protocol", func(s *mcsv1beta1.ServiceImportSpec) { s.Ports[0].Protocol = "" }, "Ready", "", 1},
		{"port", func(s *mcsv1beta1.ServiceImportSpec) { s.Ports[0].Port = 81 }, "Ready", "[81/TCP]", 1},
		{"type", func(s *mcsv1beta1.ServiceImportSpec) { s.Type = mcsv1beta1.Headless }, imports.ReasonDeclaredType,
			"Headless", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			declared := declaredImport()
			c.change(&declared.Spec)
			m := beside(t, declared)
			m.annotate(clusterset.AnnotationNamespaceDeclared, string(hubv1alpha1.DeclaredImportsFill))
			m.mustPass()
			imp := m.read(declared).(*mcsv1beta1.ServiceImport)
			ready := meta.FindStatusCondition(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
			if ready == nil || ready.Reason != c.reason || !strings.Contains(ready.Message, c.says) ||
				strings.Contains(ready.Message, "differ") != (c.name == "port") || len(imp.Spec.IPs) != c.ips {
				t.Errorf("%+v, IPs %v", ready, imp.Spec.IPs)
			}
			svc := m.read(&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web")},
			}).(*corev1.Service)
			if svc.Spec.Ports[0].Port != 80 || m.imported()["c"] == nil {
				t.Errorf("%+v, slices %v", svc.Spec, m.imported())
			}
		})
	}
}

// TestI12AMissingNamespaceIsCreated for what another cluster exports to this one, if the ClusterSet says so.
func TestI12AMissingNamespaceIsCreated(t *testing.T) {
	const create = hubv1alpha1.MissingNamespacesCreate
	for name, c := range map[string]struct {
		missing hubv1alpha1.MissingNamespaces
		change  func(*member)
		want    bool
	}{
		"created":      {create, func(*member) {}, true},
		"not wanted":   {"", func(*member) {}, false},
		"excluded":     {create, func(m *member) { m.set("", create, "sho*") }, false},
		"hub not seen": {create, func(m *member) { m.seesHub = false }, false},
		"no ClusterSet": {create, func(m *member) {
			set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
			if err := m.hub.Delete(m.t.Context(), set); err != nil {
				m.t.Fatal(err)
			}
		}, false},
		"withdrawn": {create, func(m *member) {
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
		}, false},
		"to others": {create, func(m *member) {
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.ExportTo = "cluster=d" })
		}, false},
		"of this cluster": {create, func(m *member) {
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
			m.export("a", "10.1.0.1")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(t)
			m.export("c", "10.3.0.1")
			if err := m.pass(); err != nil { // so that there is a copy
				t.Fatal(err)
			}
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			if err := m.local.Delete(t.Context(), ns.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			m.set("", c.missing)
			c.change(m)
			m.mustPass()
			is := m.read(ns)
			if (is != nil) != c.want || is != nil && !kube.Owned(is) {
				t.Errorf("the namespace is %+v", is)
			}
		})
	}
}

// TestI12AnEndingNamespaceIsLeft until it is gone.
func TestI12AnEndingNamespaceIsLeft(t *testing.T) {
	m := newMember(t)
	m.export("c", "10.3.0.1")
	m.set("", hubv1alpha1.MissingNamespacesCreate)
	ns := m.read(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	ns.SetFinalizers([]string{"example.org/keep"})
	if err := m.local.Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	if err := m.local.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	created := m.writes
	m.mustPass()
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	if imp, err := kube.Get[*mcsv1beta1.ServiceImport](t.Context(), m.local, name); err != nil || imp != nil {
		t.Errorf("%v %v", imp, err)
	}
	if m.writes != created+1 { // the copy of the record
		t.Errorf("%d writes", m.writes-created)
	}
}
