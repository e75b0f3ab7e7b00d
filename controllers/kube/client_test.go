package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// An API server's client decodes a page into the list that it is given, and leaves fields alone that JSON omits.
func TestForEachGivesNoObjectWhatAnEarlierPageSaid(t *testing.T) {
	pages := []string{
		`{"metadata":{"continue":"2"},"items":[{"metadata":{"name":"a"},"spec":{"withdrawn":true}}]}`,
		`{"metadata":{},"items":[{"metadata":{"name":"b"},"spec":{}}]}`,
	}
	from := interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			next := new(client.ListOptions).ApplyOptions(opts).Continue
			if len(pages) == 0 || (next == "2") != (len(pages) == 1) {
				t.Fatalf("asked for page %q with %d to come", next, len(pages))
			}
			page := pages[0]
			pages = pages[1:]
			return json.Unmarshal([]byte(page), into)
		},
	})
	var got []string
	err := ForEach(t.Context(), from, &hubv1alpha1.ServiceExportRecordList{}, func(o client.Object) error {
		got = append(got, fmt.Sprint(o.GetName(), o.(*hubv1alpha1.ServiceExportRecord).Spec.Withdrawn))
		return nil
	})
	if want := []string{"atrue", "bfalse"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

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

// TestStatusChangesLeaveForeignConditionsAlone, also one that is not valid any more: an API server accepts it as long
// as nobody writes it.
func TestStatusChangesLeaveForeignConditionsAlone(t *testing.T) {
	foreign := map[string]any{"type": "Synced", "status": "True", "of": "another program"}
	condition := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason}
	}
	for name, edit := range map[string]func(*mcsv1beta1.ServiceImportStatus){
		"add": func(s *mcsv1beta1.ServiceImportStatus) {
			s.Conditions = append(s.Conditions, condition("New", "x"))
		},
		"change": func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions[0].Reason = "y" },
		"remove": func(s *mcsv1beta1.ServiceImportStatus) { meta.RemoveStatusCondition(&s.Conditions, "First") },
		"all": func(s *mcsv1beta1.ServiceImportStatus) {
			meta.RemoveStatusCondition(&s.Conditions, "First")
			s.Conditions[1].Reason, s.Clusters = "y", nil
			s.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsPresent
			s.Conditions = append(s.Conditions, condition("New", "x"))
		},
	} {
		stored := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": mcsv1beta1.GroupVersion.String(), "kind": "ServiceImport",
			"metadata": map[string]any{"namespace": "shop", "name": "web"},
			"status": map[string]any{"clusters": []any{map[string]any{"cluster": "a"}}, "conditions": []any{
				map[string]any{"type": "First", "status": "True", "reason": "x"}, foreign,
				map[string]any{"type": "Last", "status": "True", "reason": "x"},
			}},
		}}
		// The server knows no type of the kind, so it keeps every field.
		server := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).
			WithStatusSubresource(stored).WithObjects(stored).Build()
		if err := server.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
			t.Fatal(err)
		}
		was := &mcsv1beta1.ServiceImport{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, was); err != nil {
			t.Fatal(err)
		}
		is := was.DeepCopy()
		edit(&is.Status)
		patch := StatusChanges(was)
		data, err := patch.Data(is)
		if err != nil {
			t.Fatal(err)
		}
		patch = client.RawPatch(patch.Type(), data)
		if err := server.Status().Patch(t.Context(), stored, patch); err != nil {
			t.Fatalf("%s: %v of %s", name, err, data)
		}
		got := &mcsv1beta1.ServiceImport{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, got); err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(got.Status, is.Status) {
			t.Errorf("%s: %s makes %+v, want %+v", name, data, got.Status, is.Status)
		}
		all, _, _ := unstructured.NestedSlice(stored.Object, "status", "conditions")
		if !slices.ContainsFunc(all, func(c any) bool { return reflect.DeepEqual(c, any(foreign)) }) {
			t.Errorf("%s: %s changes the foreign condition: %v", name, data, all)
		}
	}
}
