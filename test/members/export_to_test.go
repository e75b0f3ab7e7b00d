package members

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
)

// TestE11ExportToSomeClusters: by ID and by a ClusterProperty, which comes and goes. In others it has no effect, and
// what cannot be read changes nothing.
func TestE11ExportToSomeClusters(t *testing.T) {
	const annotation = "clusterset-dns.io/export-to"
	s := three(t)
	a, b, c := s.members["a"], s.members["b"], s.members["c"]
	ns := s.namespace(t, "a", "b", "c")
	exported := func(m *member, e *mcsv1beta1.ServiceExport, to, address string) {
		t.Helper()
		svc := service(ns, "web")
		if m == c {
			svc = headless(ns, "web")
		}
		e.Annotations = map[string]string{annotation: to}
		m.create(t, svc, slice(svc, "web-1", address), e)
	}
	exported(a, export(ns, "web"), "cluster=b, e11.example=yes", "10.1.0.1")
	for _, m := range []*member{a, b} {
		m.wantImport(t, ns, "web", ready("a"))
		m.wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080")
	}
	property := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: "e11.example"}}
	property.Spec.Value = "yes"
	a.exported(t, service(ns, "other"), "10.1.0.2")
	c.wantImport(t, ns, "other", ready("a")) // so c has seen the record of web
	if _, err := c.imported(t.Context(), ns, "web"); !apierrors.IsNotFound(err) {
		t.Errorf("c, to which web is not exported, imports it: %v", err)
	}
	c.create(t, property)
	c.wantImport(t, ns, "web", ready("a"))
	c.remove(t, property)
	c.wantNoImport(t, ns, "web")

	// c exports another type, to itself only: nobody is told of a conflict, and c's clients get c's.
	exported(c, export(ns, "web"), "cluster=c", "10.3.0.1")
	c.wantImport(t, ns, "web", ready("c"))
	for _, m := range []*member{a, c} {
		m.wantCondition(t, ns, "web", conflict, metav1.ConditionFalse, "NoConflicts")
	}
	b.wantImport(t, ns, "web", ready("a"))

	// Now a's goes to c, which is told; a is not, because it does not import c's.
	change(t, a, export(ns, "web"), func(e *mcsv1beta1.ServiceExport) { e.Annotations[annotation] = "cluster=c" })
	c.wantCondition(t, ns, "web", conflict, metav1.ConditionTrue, "TypeConflict")
	a.wantCondition(t, ns, "web", conflict, metav1.ConditionFalse, "NoConflicts")
	b.wantNoImport(t, ns, "web")

	change(t, a, export(ns, "web"), func(e *mcsv1beta1.ServiceExport) { e.Annotations[annotation] = "everybody" })
	a.wantCondition(t, ns, "web", valid, metav1.ConditionTrue, "Valid")
	a.wantMessage(t, ns, "web", annotation)
	c.wantImport(t, ns, "web", ready("a", "c"))
	b.wantNoImport(t, ns, "web")
	change(t, a, export(ns, "web"), func(e *mcsv1beta1.ServiceExport) { delete(e.Annotations, annotation) })
	b.wantImport(t, ns, "web", ready("a"))
}
