package members

import (
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestE8ConditionsOfOtherPrograms as an earlier version of the API had them, without a reason: the API server accepts
// them as long as nobody writes them. The agent's conditions and clusters follow the Services all the same.
func TestE8ConditionsOfOtherPrograms(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "b", "c")
	b, c := s.members["b"], s.members["c"]
	c.create(t, export(ns, "web"))
	b.exported(t, service(ns, "web"), "10.2.0.1")
	c.wantCondition(t, ns, "web", valid, metav1.ConditionFalse, "NoService")
	c.wantImport(t, ns, "web", ready("b"))
	kinds := map[string]string{"ServiceExport": "serviceexports", "ServiceImport": "serviceimports"}
	for kind, plural := range kinds {
		c.addConditionWithoutReason(t, kind, plural, ns, "web")
	}
	svc := service(ns, "web")
	c.create(t, svc, slice(svc, "web-1", "10.3.0.1"))
	c.wantCondition(t, ns, "web", valid, metav1.ConditionTrue, "Valid")
	c.wantCondition(t, ns, "web", exported, metav1.ConditionTrue, "Exported")
	c.wantImport(t, ns, "web", ready("b", "c"))
	c.remove(t, svc)
	c.wantCondition(t, ns, "web", valid, metav1.ConditionFalse, "NoService")
	c.wantImport(t, ns, "web", ready("b"))
	seen := &mcsv1beta1.ServiceExport{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, seen); err != nil {
		t.Fatal(err)
	}
	for _, conflicts := range []bool{false, true} { // the second writer has not seen what the first one wrote
		o := seen.DeepCopy()
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
			Type: fmt.Sprint("Test-", conflicts), Status: metav1.ConditionTrue, Reason: "Tested",
		})
		if err := c.Status().Patch(t.Context(), o, kube.StatusChanges(seen)); apierrors.IsConflict(err) != conflicts {
			t.Errorf("conflicts %v: %v", conflicts, err)
		}
	}
	for kind := range kinds {
		o, conditions := c.statusOf(t, kind, ns, "web")
		for _, x := range conditions {
			if is := x.(map[string]any); is["type"] == "Synced" {
				_, has := is["reason"]
				if has || is["message"] != "m" {
					t.Errorf("%s: the other program's condition has become %v", kind, is)
				}
				o = nil
			}
		}
		if o != nil {
			t.Errorf("%s: the other program's condition is gone: %v", kind, conditions)
		}
	}
}

// statusOf returns an object and its conditions as stored.
func (m *member) statusOf(t *testing.T, kind, ns, name string) (*unstructured.Unstructured, []any) {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: mcsv1beta1.GroupName, Version: "v1beta1", Kind: kind})
	if err := m.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, o); err != nil {
		t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return o, conditions
}

// addConditionWithoutReason stores a condition while the CRD accepts it.
func (m *member) addConditionWithoutReason(t *testing.T, kind, plural, ns, name string) {
	t.Helper()
	known := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	admin, err := m.Cluster.Client(known)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: plural + "." + mcsv1beta1.GroupName}, crd); err != nil {
		t.Fatal(err)
	}
	tight := crd.DeepCopy()
	for i := range crd.Spec.Versions {
		status := crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["status"]
		condition := status.Properties["conditions"].Items.Schema
		condition.Required = []string{"type", "status"}
	}
	if err := admin.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	add := func(kindOfCondition string, opts ...client.SubResourceUpdateOption) error {
		o, conditions := m.statusOf(t, kind, ns, name)
		conditions = append(conditions, map[string]any{
			"type": kindOfCondition, "status": "True", "message": "m", "lastTransitionTime": "2024-01-01T00:00:00Z",
		})
		if err := unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions"); err != nil {
			return err
		}
		return m.Status().Update(t.Context(), o, opts...)
	}
	eventually(t, "the CRD needs no reason", func() error { return add("Synced") })
	tight.ResourceVersion = crd.ResourceVersion
	if err := admin.Update(t.Context(), tight); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the CRD needs a reason", func() error {
		if err := add("Another", client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("a condition without a reason: %v", err)
		}
		return nil
	})
}
