// Package coredns tests what users apply for DNS.
package coredns

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

func TestPermissionsAreOnlyToListAndWatch(t *testing.T) {
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	for file, into := range map[string]any{"role/role.yaml": &role, "binding.yaml": &binding} {
		if err := yaml.UnmarshalStrict(read(t, file), into); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, r := range role.Rules {
		if !slices.Equal(r.Verbs, []string{"list", "watch"}) {
			t.Errorf("%v: %v: DNS only reads", r.Resources, r.Verbs)
		}
		for _, g := range r.APIGroups {
			for _, resource := range r.Resources {
				got = append(got, resource+"."+g)
			}
		}
	}
	want := []string{"serviceimports.multicluster.x-k8s.io", "endpointslices.discovery.k8s.io", "namespaces."}
	if !slices.Equal(got, want) {
		t.Errorf("reads %v, want %v", got, want)
	}
	if binding.RoleRef.Name != role.Name || len(binding.Subjects) != 1 ||
		binding.Subjects[0].Namespace+"/"+binding.Subjects[0].Name != "kube-system/coredns" {
		t.Errorf(
			"binds %s to %v, want %s to kube-system/coredns only",
			binding.RoleRef.Name,
			binding.Subjects,
			role.Name,
		)
	}
}

// Deleting what README.md says to delete must not take away what the cluster's DNS had before.
func TestKustomizationHoldsNothingOfKubeadms(t *testing.T) {
	var k struct {
		Resources []string `json:"resources"`
	}
	if err := yaml.Unmarshal(read(t, "kustomization.yaml"), &k); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(k.Resources, []string{"role", "binding.yaml"}) {
		t.Errorf("resources %v: kubectl delete -k would delete what is not ours", k.Resources)
	}
}

// TestPatchIsTheImageAndNothingElse, applied as kubectl patch does to what kubeadm sets up.
func TestPatchIsTheImageAndNothingElse(t *testing.T) {
	patch, err := yaml.YAMLToJSONStrict(read(t, "patch.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := yaml.YAMLToJSON(read(t, "testdata/kubeadm.deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, appsv1.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	var got, want appsv1.Deployment
	if err := errors.Join(yaml.UnmarshalStrict(after, &got), yaml.UnmarshalStrict(before, &want)); err != nil {
		t.Fatal(err)
	}
	want.Spec.Template.Spec.Containers[0].Image = "REGISTRY/coredns:VERSION"
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("patched:\n%+v\nwant kubeadm's with our image:\n%+v", got, want)
	}
	if !strings.Contains(
		string(read(t, "README.md")),
		"patch deployment coredns --patch-file deploy/coredns/patch.yaml",
	) {
		t.Error("README.md does not say how patch.yaml is applied")
	}
}

func TestExampleIsKubeadmsCorefileWithALineAndABlock(t *testing.T) {
	const labels = "       labels endpointslice.kubernetes.io/managed-by " +
		"notin (clusterset-controller.clusterset-dns.io)\n"
	var got strings.Builder
	for line := range strings.Lines(string(read(t, "../../corefile.example"))) {
		if !strings.HasPrefix(line, "#") && line != labels {
			got.WriteString(line)
		}
	}
	if !strings.Contains(string(read(t, "../../corefile.example")), labels) {
		t.Error("corefile.example does not keep imported slices out of cluster.local")
	}
	block, found := strings.CutPrefix(got.String(), string(read(t, "testdata/kubeadm.corefile")))
	if !found {
		t.Fatalf("corefile.example without comments does not begin with kubeadm's Corefile:\n%s", got.String())
	}
	want := "clusterset.local:53 {\n    errors\n    ready\n    prometheus :9153\n    multicluster\n}\n"
	if block != want {
		t.Errorf("corefile.example adds\n%s\nwant\n%s", block, want)
	}
	readme := strings.ReplaceAll(string(read(t, "README.md")), "\n   ", "\n")
	if !strings.Contains(readme, want) || !strings.Contains(readme, strings.TrimSpace(labels)) {
		t.Error("README.md does not have the block and the line")
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
