package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unsteady kinds change by themselves.
var unsteady = []string{"Event", "Lease", "APIService", "ComponentStatus", "IPAddress", "Pod"}

// snapshot is every object of a cluster, by kind and name, with its resourceVersion.
func (e *environment) snapshot(t *testing.T, cluster string) map[string]string {
	t.Helper()
	cfg, err := e.planes[cluster].RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfigOrDie(cfg).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, group := range kinds {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group.APIResources {
			if slices.Contains(unsteady, r.Kind) || !slices.Contains(r.Verbs, "list") {
				continue
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gv.WithKind(r.Kind + "List"))
			err := e.admin[cluster].List(t.Context(), list, &client.ListOptions{Raw: &metav1.ListOptions{}})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) {
				continue // it has just gone
			}
			if err != nil {
				t.Fatalf("%s: %s: %v", cluster, r.Kind, err)
			}
			for _, o := range list.Items {
				out[strings.Join([]string{r.Kind, o.GetNamespace(), o.GetName()}, " ")] = o.GetResourceVersion()
			}
		}
	}
	return out
}

// changed are the objects that only one of two snapshots has, or that were written between them.
func changed(before, after map[string]string) (out []string) {
	out = append(gone(before, after), gone(after, before)...)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now, there := after[name]; there && now != before[name] {
			out = append(out, name)
		}
	}
	return out
}

// in is what of a snapshot is in a namespace, and the namespace itself.
func in(snapshot map[string]string, namespace string) map[string]string {
	out := map[string]string{}
	for name, version := range snapshot {
		if part := strings.Split(name, " "); part[1] == namespace || part[0] == "Namespace" && part[2] == namespace {
			out[name] = version
		}
	}
	return out
}

// gone is what one snapshot has and the other has not.
func gone(before, after map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, there := after[name]; !there {
			out = append(out, name)
		}
	}
	return out
}
