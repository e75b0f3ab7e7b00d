package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// A CRD may be newer than the program that writes the status.
func TestChangesOfAStatusKeepFieldsThatThisProgramDoesNotKnow(t *testing.T) {
	stored := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": hubv1alpha1.GroupVersion.String(), "kind": "ServiceExportRecord",
		"metadata": map[string]any{"namespace": "blue", "name": "web"},
		"status":   map[string]any{"ofALaterVersion": "stays"},
	}}
	// The server knows no type of the kind, so it keeps every field.
	server := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).
		WithStatusSubresource(stored).WithObjects(stored).Build()
	if err := server.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
		t.Fatal(err)
	}
	was := &hubv1alpha1.ServiceExportRecord{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, was); err != nil {
		t.Fatal(err)
	}
	is := was.DeepCopy()
	meta.SetStatusCondition(&is.Status.Conditions, metav1.Condition{
		Type: hubv1alpha1.ConditionHeld, Status: metav1.ConditionTrue, Reason: "Tested",
	})
	data, err := Changes(was).Data(is)
	if err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(Changes(was).Type(), data)
	if err := server.Status().Patch(t.Context(), stored, patch); err != nil {
		t.Fatal(err)
	}
	if err := server.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
		t.Fatal(err)
	}
	unknown, _, _ := unstructured.NestedString(stored.Object, "status", "ofALaterVersion")
	set, _, _ := unstructured.NestedSlice(stored.Object, "status", "conditions")
	if unknown != "stays" || len(set) != 1 {
		t.Errorf("after %s the status is %v", data, stored.Object["status"])
	}
}
