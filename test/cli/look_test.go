package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestDryRunsPrintWhatWouldBeWrittenAndWriteNothing: what is printed, kubectl can apply.
func TestDryRunsPrintWhatWouldBeWrittenAndWriteNothing(t *testing.T) {
	e := setUp(t)
	kinds := func(args ...string) map[string]int {
		t.Helper()
		out := map[string]int{}
		for _, doc := range strings.Split(e.ok(t, args...).stdout, "\n---\n") {
			var o struct {
				Kind     string `json:"kind"`
				Metadata struct{ Name, Namespace string }
			}
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatalf("%v in\n%s", err, doc)
			}
			out[o.Kind]++
			if strings.Contains(doc, "CLUSTER-ID") {
				t.Errorf("a word is left in\n%s", doc)
			}
		}
		return out
	}
	e.untouched(t, "hub", func() {
		got := kinds("init", "--context", "hub", "--dry-run")
		if got["ClusterSet"] != 1 || got["Deployment"] != 1 || got["ValidatingAdmissionPolicy"] == 0 ||
			got["ValidatingAdmissionPolicy"] != got["ValidatingAdmissionPolicyBinding"] {
			t.Errorf("init --dry-run: %v", got)
		}
	})
	e.ok(t, "init", "--context", "hub", "--wait=false") // so that nothing runs there that writes
	e.untouched(t, "hub", func() {
		if got := kinds("init", "--context", "hub", "--dry-run"); got["ClusterSet"] != 1 {
			t.Errorf("init --dry-run again: %v", got)
		}
	})
	for _, c := range []string{"hub", "east"} {
		e.untouched(t, c, func() {
			got := kinds("join", "--context", "east", "--hub-context", "hub", "--cluster-id", "007", "--dry-run")
			if got["ClusterProfile"] != 1 || got["Secret"] != 1 || got["ClusterProperty"] != 1 ||
				got["Deployment"] != 1 {
				t.Errorf("join --dry-run: %v", got)
			}
		})
	}
}

// TestItIsAPluginOfKubectl: kubectl finds it, and completes its words with kubectl_complete-clusterset.
func TestItIsAPluginOfKubectl(t *testing.T) {
	e := setUp(t)
	bin, err := lab.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nexec kubectl-clusterset __complete \"$@\"\n" // as docs/reference.md has it
	if err := os.WriteFile(filepath.Join(dir, "kubectl_complete-clusterset"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	kubectl := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), bin.Kubectl, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+e.kubeconfig, "PATH="+filepath.Join(e.root, "bin")+":"+dir+":"+
			os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if code := exitCode(err); code != 0 && (code < 0 || !slices.Contains(args, "status")) {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := kubectl("clusterset", "--version"); !strings.HasPrefix(out, "kubectl-clusterset ") {
		t.Errorf("--version: %s", out)
	}
	out := kubectl("clusterset", "status", "--context", "east")
	if !strings.HasPrefix(out, "No ClusterSet: 0 names, ") || !strings.Contains(out,
		"x this cluster is a member of no ClusterSet") {
		t.Errorf("status of no member:\n%s", out)
	}
	for words, want := range map[string][]string{"": {"init\t", "join\t", "leave\t", "status\t", "explain\t",
		"doctor\t"}, "status -o ": {"json", "yaml", "wide"}} {
		out := kubectl(append([]string{"__complete", "clusterset"}, strings.Split(words, " ")...)...)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("completion of %q: no %q in\n%s", words, w, out)
			}
		}
	}
}

func TestReportsAreForProgramsToo(t *testing.T) {
	e := setUp(t)
	for _, command := range [][]string{{"status"}, {"explain", "web.shop"}} {
		var fromJSON, fromYAML map[string]any
		args := append(command, "--context", "east", "-o")
		if err := json.Unmarshal([]byte(e.run(t, append(args, "json")...).stdout), &fromJSON); err != nil {
			t.Errorf("%v: %v", command, err)
		}
		if err := yaml.Unmarshal([]byte(e.run(t, append(args, "yaml")...).stdout), &fromYAML); err != nil {
			t.Errorf("%v: %v", command, err)
		}
		if len(fromJSON) == 0 || len(fromJSON) != len(fromYAML) || fromJSON["findings"] == nil ||
			fromJSON["apiVersion"] != "cli.clusterset-dns.io/v1alpha1" || fromJSON["kind"] == nil {
			t.Errorf("%v: %v and %v", command, fromJSON, fromYAML)
		}
	}
	e.refused(t, []string{"json|yaml|jsonpath=|wide|name|html"}, "status", "-o", "xml")
	e.refused(t, []string{"SERVICE.NAMESPACE"}, "explain", "web.shop.example", "--context", "east")
}

// TestKindsThatOthersBroughtAreLeftAlone: upstream's CRDs may be there already, and newer; or older, and then join
// brings them up to date, and leave does not take them away. Whoever brought one may have left no word of it.
func TestKindsThatOthersBroughtAreLeftAlone(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub")
	e.ok(t, "init", "--context", "hub")
	kubectl := func(input string, args ...string) {
		t.Helper()
		if _, err := e.planes["east"].Kubectl(t.Context(), input, args...); err != nil {
			t.Fatal(err)
		}
	}
	name, older := "serviceimports.multicluster.x-k8s.io", "serviceexports.multicluster.x-k8s.io"
	kubectl("", "apply", "-k", filepath.Join(e.root, "deploy/crds"))
	kubectl("", "label", "crd", older, "multicluster.x-k8s.io/release-version-")
	kubectl("", "patch", "crd", older, "--type=merge", "-p", `{"metadata": {"managedFields": [{}]}}`)
	kubectl("", "label", "crd", name, "multicluster.x-k8s.io/release-version=v9.0.0", "--overwrite")
	version := func() string {
		t.Helper()
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := e.admin["east"].Get(t.Context(), client.ObjectKey{Name: name}, crd); err != nil {
			t.Fatal(err)
		}
		return crd.ResourceVersion
	}
	before := version()
	r := e.ok(t, "join", "--context", "east", "--hub-context", "hub", "--cluster-id", "east", "--wait=false")
	if !strings.Contains(r.stderr, "kept CustomResourceDefinition "+name+": its release v9.0.0 is newer than") {
		t.Errorf("it does not say so:\n%s", r.stderr)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := e.admin["east"].Get(t.Context(), client.ObjectKey{Name: older}, crd); err != nil ||
		crd.Labels["multicluster.x-k8s.io/release-version"] == "" {
		t.Errorf("%s was not brought up to date: %v, labels %v", older, err, crd.Labels)
	}
	e.ok(t, "leave", "--yes", "--context", "east", "--hub-context", "hub")
	if version() != before {
		t.Error("it was changed")
	}
	kubectl("", "delete", "-k", filepath.Join(e.root, "deploy/crds"))
}

// TestAHubMayBeAMember: leaving takes nothing of the hub away.
func TestAHubMayBeAMember(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub")
	e.ok(t, "init", "--context", "hub")
	before := e.snapshot(t, "hub")
	e.ok(t, "join", "--context", "hub", "--hub-context", "hub", "--cluster-id", "hub")
	e.ok(t, "leave", "--yes", "--context", "hub", "--hub-context", "hub")
	after := e.snapshot(t, "hub")
	for _, name := range gone(before, after) {
		t.Errorf("it took %s away", name)
	}
	for _, name := range gone(after, before) {
		if !strings.HasPrefix(name, "CustomResourceDefinition ") {
			t.Errorf("it left %s", name)
		}
	}
	for _, name := range gone(after, before) {
		if _, err := e.planes["hub"].Kubectl(t.Context(), "", "delete", "crd", strings.Fields(name)[1]); err != nil {
			t.Error(err)
		}
	}
}
