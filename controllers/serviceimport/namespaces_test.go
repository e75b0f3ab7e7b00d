package serviceimport

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestS5ANamespaceRefusesImports by its annotation: what was imported goes, and returns when the annotation goes.
func TestS5ANamespaceRefusesImports(t *testing.T) {
	m := newMember(t)
	m.export("d", "10.4.0.1")
	for _, c := range []struct {
		annotation string
		imported   bool
	}{{"", true}, {"true", true}, {"false", false}, {"", true}} {
		ns := &corev1.Namespace{}
		if err := m.local.Get(t.Context(), types.NamespacedName{Name: "shop"}, ns); err != nil {
			t.Fatal(err)
		}
		ns.Annotations = map[string]string{clusterset.AnnotationNamespaceImport: c.annotation}
		if err := m.local.Update(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		m.wantImported(c.imported)
	}
}

// TestS5AnExcludedNamespaceLosesItsImports, although the hub shows the record. While the hub is not seen, nothing goes.
func TestS5AnExcludedNamespaceLosesItsImports(t *testing.T) {
	m := newMember(t)
	m.export("d", "10.4.0.1")
	if err := m.pass(); err != nil {
		t.Fatal(err)
	}
	set := &hubv1alpha1.ClusterSet{}
	set.Namespace, set.Name, set.Spec.Namespaces.Deny = "set", "set", []string{"sho*"}
	if err := m.hub.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	for _, sees := range []bool{false, true} {
		m.seesHub = sees
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		m.wantImported(!sees)
	}
}

func (m *member) wantImported(want bool) {
	m.t.Helper()
	imp, err := kube.Get[*mcsv1beta1.ServiceImport](
		m.t.Context(), m.local, types.NamespacedName{Namespace: "shop", Name: "web"})
	if err != nil || (imp != nil) != want || (len(m.imported()) > 0) != want {
		m.t.Errorf("import %v, slices %v, want any: %v; %v", imp != nil, m.imported(), want, err)
	}
}
