package lifecycle

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// runs is a Deployment of one container.
func runs(name, image string, args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: name}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Image: image, Args: args}}
	return d
}

// TestAnUpgradeKeepsTheArgumentsThatSomebodyAdded: --reserved-cidrs guards against peers that lie, and nobody would miss it.
func TestAnUpgradeKeepsTheArgumentsThatSomebodyAdded(t *testing.T) {
	before := []string{"agent", "--hub-kubeconfig=/etc/clusterset/hub/kubeconfig", "--hub-namespace", "old", "--cluster-id=east",
		"--reserved-cidrs", "192.0.2.0/24", "-pprof-bind-address=:6060"}
	o, _ := options(inMemory(interceptor.Funcs{}))
	o.Image = "r/c:v2"
	j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{}, runs("clusterset-controller", "r/c:v1", before...)), ClusterID: "east"}}
	if err := j.render(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(objects []*unstructured.Unstructured, image string, want ...string) {
		t.Helper()
		containers, _, _ := unstructured.NestedSlice(only(objects, "Deployment").Object, "spec", "template", "spec", "containers")
		c := containers[0].(map[string]any)
		args, _, _ := unstructured.NestedStringSlice(c, "args")
		if !slices.Equal(args, want) || c["image"] != image {
			t.Errorf("%v is to run with %q, want %s with %q", c["image"], args, image, want)
		}
	}
	check(j.here, "r/c:v2", "agent", "--hub-kubeconfig=/etc/clusterset/hub/kubeconfig", "--hub-namespace=blue", "--cluster-id=east",
		"--reserved-cidrs", "192.0.2.0/24", "-pprof-bind-address=:6060")

	hub, _ := options(inMemory(interceptor.Funcs{}, runs("blue", "r/c:v1", "hub", "--hub-namespace=blue", "--pprof-bind-address=:6060")))
	objects, err := (&InitOptions{Options: *hub}).render(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check(objects, "r/c:v1", "hub", "--hub-namespace=blue", "--pprof-bind-address=:6060")
}
