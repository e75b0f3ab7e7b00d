package members

import (
	"fmt"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestI8BothVersions: v1beta1 is stored, and who still speaks v1alpha1 can export and reads imports and conditions.
func TestI8BothVersions(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	a, b := s.members["a"], s.members["b"]
	old := func(kind string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Kind: kind})
		u.SetNamespace(ns)
		u.SetName("web")
		return u
	}
	svc := service(ns, "web")
	a.create(t, svc, slice(svc, "web-1", "10.1.0.1"), old("ServiceExport"))
	vip := b.wantImport(t, ns, "web", ready("a")).Spec.IPs[0]

	imp := old("ServiceImport")
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(imp), imp); err != nil {
		t.Fatal(err)
	}
	ips, _, _ := unstructured.NestedStringSlice(imp.Object, "spec", "ips")
	kind, _, _ := unstructured.NestedString(imp.Object, "spec", "type")
	if !slices.Equal(ips, []string{vip}) || kind != "ClusterSetIP" {
		t.Errorf("v1alpha1 shows %v %s, want %s ClusterSetIP", ips, kind, vip)
	}
	export := old("ServiceExport")
	eventually(t, "v1alpha1 shows the conditions", func() error {
		if err := a.Get(t.Context(), client.ObjectKeyFromObject(export), export); err != nil {
			return err
		}
		if conditions, _, _ := unstructured.NestedSlice(
			export.Object,
			"status",
			"conditions",
		); len(conditions) != 3 {
			return fmt.Errorf("%v", conditions)
		}
		return nil
	})
	a.remove(t, export)
	b.wantNoImport(t, ns, "web")

	known := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	c, err := a.Cluster.Client(known)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"serviceexports", "serviceimports"} {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := c.Get(t.Context(), client.ObjectKey{Name: name + ".multicluster.x-k8s.io"}, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			if !v.Served || v.Storage != (v.Name == "v1beta1") {
				t.Errorf("%s %s: served %v, stored %v", name, v.Name, v.Served, v.Storage)
			}
		}
	}
}
