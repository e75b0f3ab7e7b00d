package manifest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/deploy"
)

func render(t *testing.T, folder string, v manifest.Values) []*unstructured.Unstructured {
	t.Helper()
	if v.Namespace == "" {
		v.Namespace = "clusterset"
	}
	out, err := manifest.Render(folder, v)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatal("nothing")
	}
	return out
}

func find(t *testing.T, in []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(in, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind &&
			o.GetName() == name
	})
	if i < 0 {
		t.Fatalf("no %s %s", kind, name)
	}
	return in[i]
}

// An id such as 007 or 1e3 is a number for YAML.
func TestAnIDThatLooksLikeANumberStaysAString(t *testing.T) {
	for _, id := range []string{"007", "1e3", "true", "a.b"} {
		all := render(t, manifest.HubMember, manifest.Values{Namespace: "blue", ClusterID: id})
		if got := find(t, all, "ServiceAccount", "mcs-"+id).GetNamespace(); got != "blue" {
			t.Errorf("namespace %q", got)
		}
		for _, o := range all {
			if text, _ := o.MarshalJSON(); strings.Contains(string(text), "CLUSTER-ID") ||
				strings.Contains(string(text), `:"clusterset"`) {
				t.Errorf("%s: a word is left:\n%s", id, text)
			}
		}
	}
}

func TestAClustersetHasTheNameOfItsNamespace(t *testing.T) {
	all := render(t, manifest.ClusterSet, manifest.Values{Namespace: "blue"})
	ns := find(t, all, "Namespace", "blue")
	if all[0] != ns {
		t.Errorf("%s comes before its namespace", all[0].GetKind())
	}
	if find(t, all, "ClusterSet", "blue").GetNamespace() != "blue" ||
		ns.GetLabels()["multicluster.x-k8s.io/clusterset"] != "blue" {
		t.Errorf("%v", ns.GetLabels())
	}
	if find(t, all, "Role", "clusterset-member").GetNamespace() != "blue" {
		t.Error("the Role is elsewhere")
	}
	rules, _, err := unstructured.NestedSlice(find(t, all, "FlowSchema", "blue").Object, "spec", "rules")
	if text := fmt.Sprint(rules); err != nil || strings.Contains(text, "clusterset") ||
		!strings.Contains(text, "namespaces:[blue]") || !strings.Contains(text, "namespace:blue") {
		t.Errorf("the renewals of others are served apart: %s (%v)", text, err)
	}
}

func TestTheHubIsTheSameForEveryClusterset(t *testing.T) {
	want, err := manifest.YAML(render(t, manifest.Hub, manifest.Values{}))
	if err != nil {
		t.Fatal(err)
	}
	all := render(t, manifest.Hub, manifest.Values{Namespace: "blue"})
	got, err := manifest.YAML(all)
	if err != nil || got != want {
		crd := find(t, all, "CustomResourceDefinition", "clustersets.hub.clusterset-dns.io")
		names, _, _ := unstructured.NestedMap(crd.Object, "spec", "names")
		t.Errorf("another name changes the CRDs or policies (%v), such as the CRD's names: %v", err, names)
	}
}

func TestTheDeploymentComesLastWithImageAndArguments(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123456789", 6) + "0123"
	for image, want := range map[string]string{
		"":                           deploy.Image(deploy.Controller, deploy.Version()),
		"registry.example:5000/c":    "registry.example:5000/c",
		"registry.example:5000/c:v1": "registry.example:5000/c:v1",
		"r/c@" + digest:              "r/c@" + digest,
	} {
		all := render(t, manifest.Member, manifest.Values{Namespace: "blue", Image: image,
			Args: []string{"--cluster-id=007"}})
		d := all[len(all)-1]
		if d.GetKind() != "Deployment" || all[0].GetKind() != "CustomResourceDefinition" {
			t.Fatalf("from %s to %s", all[0].GetKind(), d.GetKind())
		}
		containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
		c := containers[0].(map[string]any)
		if c["image"] != want {
			t.Errorf("%s: image %v", image, c["image"])
		}
		if args := c["args"].([]any); !slices.Contains(args, any("--cluster-id=007")) ||
			!slices.Contains(args, any("--hub-namespace=blue")) {
			t.Errorf("args %v", args)
		}
	}
}

// TestWhatHelmLeavesOutStaysOut: values without a priority class leave no field that Helm would manage.
func TestWhatHelmLeavesOutStaysOut(t *testing.T) {
	for name, release := range map[string]string{"of Helm": "agent", "of nobody": ""} {
		runs := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			"meta.helm.sh/release-name": release}}}
		all := render(t, manifest.Member, manifest.Values{Runs: runs})
		class, is, err := unstructured.NestedString(all[len(all)-1].Object, "spec", "template", "spec",
			"priorityClassName")
		if err != nil || is != (release == "") {
			t.Errorf("%s: %q, %v", name, class, err)
		}
	}
}

// A hub may have several ClusterSets: their controllers are apart, and share an account.
func TestControllersOfTwoClustersetsAreApart(t *testing.T) {
	for ns, want := range map[string]string{"clusterset": "clusterset-hub", "blue": "clusterset-hub-blue"} {
		all := render(t, manifest.HubController, manifest.Values{Namespace: ns})
		find(t, all, "Deployment", want)
		find(t, all, "PodDisruptionBudget", want)
		find(t, all, "ServiceAccount", "clusterset-hub")
		if got := manifest.HubDeployment(ns); got != want {
			t.Errorf("HubDeployment(%s) = %s", ns, got)
		}
	}
}

func TestYAMLCanBeAppliedAgain(t *testing.T) {
	text, err := manifest.YAML(render(t, manifest.HubMember, manifest.Values{ClusterID: "007"}))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "---\napiVersion: v1") || !strings.Contains(text, "name: mcs-007\n") {
		t.Error(text)
	}
}

// A CRD that is there already is replaced only by a newer one, and one of others only where it lacks something.
func TestNewerKindsAreLeftAlone(t *testing.T) {
	crds := map[string]*unstructured.Unstructured{}
	for _, o := range render(t, manifest.Member, manifest.Values{}) {
		if o.GetKind() == "CustomResourceDefinition" {
			crds[o.GetName()] = o
		}
	}
	label := func(key, value string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			labels := o.GetLabels()
			labels[key] = value
			o.SetLabels(labels)
		}
	}
	version := func(change func([]any) []any) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			list, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
			_ = unstructured.SetNestedSlice(o.Object, change(list), "spec", "versions")
		}
	}
	for _, c := range []struct {
		name, crd string
		change    func(*unstructured.Unstructured)
		why       string
	}{
		{"a newer release", "serviceimports.multicluster.x-k8s.io", label("multicluster.x-k8s.io/release-version",
			"v0.6.0"), "release v0.6.0 is newer"},
		{"an older release", "serviceimports.multicluster.x-k8s.io", label("multicluster.x-k8s.io/release-version",
			"v0.3.0"), ""},
		{"a newer revision", "serviceimports.multicluster.x-k8s.io", label("multicluster.x-k8s.io/crd-schema-revision",
			"3"), "schema revision 3 is newer"},
		{"an older revision", "serviceimports.multicluster.x-k8s.io", label("multicluster.x-k8s.io/crd-schema-revision",
			"-1"), ""},
		{"no release, so an old one", "serviceimports.multicluster.x-k8s.io",
			func(o *unstructured.Unstructured) { o.SetLabels(nil) }, ""},
		{"the same, by others", "serviceimports.multicluster.x-k8s.io", func(*unstructured.Unstructured) {},
			"others applied it"},
		{"a version of the future", "clusterproperties.about.k8s.io", version(func(l []any) []any {
			return append(l, map[string]any{"name": "v1", "served": true})
		}), "it has version v1"},
		{"a version is not there", "clusterproperties.about.k8s.io", version(func(l []any) []any { return l[:1] }), ""},
		{"the same of another project", "clusterproperties.about.k8s.io", func(*unstructured.Unstructured) {},
			"others applied it"},
		{"our own group", "serviceexportrecords.hub.clusterset-dns.io", func(*unstructured.Unstructured) {}, ""},
		{"our own group, of a newer version", "serviceexportrecords.hub.clusterset-dns.io",
			label("app.kubernetes.io/version", "v0.2.0"), "version v0.2.0 is newer than v0.1.0"},
		{"our own group, of an older version", "serviceexportrecords.hub.clusterset-dns.io",
			label("app.kubernetes.io/version", "v0.0.9"), ""},
		{"our own group, from the future", "serviceexportrecords.hub.clusterset-dns.io", version(func(l []any) []any {
			return append(l, map[string]any{"name": "v1", "served": true})
		}), "it has version v1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours := crds[c.crd]
			if ours == nil {
				t.Fatalf("no CRD %s", c.crd)
			}
			there := ours.DeepCopy()
			c.change(there)
			got := manifest.Keep(there, ours)
			if (c.why == "") != (got == "") || !strings.Contains(got, c.why) {
				t.Errorf("%q, want %q", got, c.why)
			}
		})
	}
}

func TestAnImageThatNoKubeletParsesIsRefused(t *testing.T) {
	for image, good := range map[string]bool{
		"registry.example:5000/team/coredns:v1.0.0": true, "coredns": true,
		"r.example/c@sha256:" + strings.Repeat("0", 64): true,
		"REGISTRY/coredns:VERSION":                      false, "r.example/c:v1:v2": false, "": false,
		"r.example/c d": false,
	} {
		if err := manifest.CheckImage(image); (err == nil) != good {
			t.Errorf("%q: %v", image, err)
		}
	}
}
