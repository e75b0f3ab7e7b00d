package dns

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
)

var (
	manifests = regexp.MustCompile("`([a-z0-9-]+\\.yaml)`")
	tests     = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
)

// TestEachRowOfThePageIsProven, or says that it is not: docs/corefile.md's tables of platforms and of caches. A row
// names manifests on which this program finds that platform, tests by name, or a command; and each manifest has a row.
func TestEachRowOfThePageIsProven(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/corefile.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, named := 0, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		name, proof := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[len(cells)-1])
		if !strings.HasPrefix(line, "| ") || !slices.Contains(platform.Names(), name) {
			continue
		}
		rows++
		files, functions := manifests.FindAllStringSubmatch(proof, -1), tests.FindAllStringSubmatch(proof, -1)
		if len(files)+len(functions) == 0 && !strings.Contains(proof, "unproven") {
			t.Errorf("%s: %q names no test, and does not say that it is unproven", name, proof)
		}
		for _, f := range files {
			named[f[1]] = true
			s, err := Read(t.Context(), load(t, filepath.Join("testdata", f[1])))
			if err != nil {
				t.Fatal(err)
			}
			if cache := platform.CacheOf(&s.Objects); platform.Of(&s.Objects).Name != name &&
				(cache == nil || cache.Name != name) {
				t.Errorf("%s: on %s it finds %s and %+v", name, f[1], platform.Of(&s.Objects).Name, cache)
			}
		}
		for _, f := range functions {
			if !defined(t, f[1]) {
				t.Errorf("%s: there is no test %s", name, f[1])
			}
		}
	}
	if rows != len(platform.Names()) {
		t.Errorf("the page has %d rows for %d platforms and caches", rows, len(platform.Names()))
	}
	all, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if !named[filepath.Base(file)] {
			t.Errorf("no row of the page names %s", file)
		}
	}
}

// defined reports whether a test of that name is in this package or among those of coredns.
func defined(t *testing.T, name string) bool {
	t.Helper()
	for _, pattern := range []string{"*_test.go", "../../../coredns/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "\nfunc "+name+"(") {
				return true
			}
		}
	}
	return false
}

// TestNodeLocalWithoutStubDomainsIsLeftToItsOwner, who may have given it the zone.
func TestNodeLocalWithoutStubDomainsIsLeftToItsOwner(t *testing.T) {
	for _, mode := range []Mode{Replace, Beside} {
		s, err := Read(t.Context(), load(t, "testdata/nodelocal.yaml", besideService()))
		if err != nil {
			t.Fatal(err)
		}
		volumes := &s.NodeLocal.Spec.Template.Spec.Volumes
		*volumes = (*volumes)[1:]
		p, err := Install(s, Wanted{Mode: mode, Image: image})
		if err != nil || !strings.Contains(strings.Join(p.Notes, "\n"),
			"NodeLocal DNS of its own: add a server block clusterset.local:53") {
			t.Errorf("%s: %+v, %v", mode, p, err)
		}
		s.NodeFile += "clusterset.local:53 {\n forward . 10.96.99.1\n}\n"
		if p, err = Install(s, Wanted{Mode: mode, Image: image}); err != nil ||
			strings.Contains(strings.Join(p.Notes, "\n"), "NodeLocal") {
			t.Errorf("%s, with a block: %+v, %v", mode, p, err)
		}
	}
}

// TestAStepHasNoPlaceholder: our CoreDNS in place of the cluster's has no address of its own. What the step is for
// stays.
func TestAStepHasNoPlaceholder(t *testing.T) {
	for name, warning := range map[string]string{
		"kubespray": "\nthe next run of the playbook restores the Corefile: run this command again after it",
		"nodelocal": "",
	} {
		s, err := Read(t.Context(), load(t, "testdata/"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s.Upstream = nil
		p, err := Install(s, Wanted{Mode: Replace, Image: image})
		notes := strings.Join(p.Notes, "\n")
		if err != nil || strings.Contains(notes, noAddress) || strings.Contains(notes, "external_zones") ||
			!strings.HasSuffix(notes, warning) ||
			!strings.Contains(notes, ": send clusterset.local where it sends the cluster's own domain; https://") {
			t.Errorf("%s: %s, %v", name, notes, err)
		}
	}
}

// TestKopsGetsNoCorefileOfReplace: it would apply that with its own image, which refuses our plugin.
func TestKopsGetsNoCorefileOfReplace(t *testing.T) {
	s, err := Read(t.Context(), load(t, "testdata/kops.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[Mode]bool{Replace: false, Beside: true} {
		p, err := Install(s, Wanted{Mode: mode, Image: image})
		if got := strings.Join(p.Notes, "\n"); err != nil || strings.Contains(got, "externalCoreFile") != want ||
			!strings.Contains(got, "run this command again after it") {
			t.Errorf("%s: %s, %v", mode, got, err)
		}
	}
}

// TestACoreDNSOfHelmOrGitOpsIsTheirs, whatever the nodes are: its owner restores the Corefile, not the distribution.
func TestACoreDNSOfHelmOrGitOpsIsTheirs(t *testing.T) {
	for mark, want := range map[string]string{
		"app.kubernetes.io/managed-by":   "its next upgrade may remove the block",
		"argocd.argoproj.io/tracking-id": "its owner may restore what it has",
	} {
		for _, name := range []string{"eks-self-managed", "talos", "k0s"} {
			s, err := Read(t.Context(), load(t, "testdata/"+name+".yaml", besideService()))
			if err != nil {
				t.Fatal(err)
			}
			metav1.SetMetaDataLabel(&s.Deployment.ObjectMeta, mark, "Helm")
			p, err := Install(s, Wanted{Image: image})
			if notes := strings.Join(p.Notes, "\n"); err != nil || !strings.Contains(notes, want) {
				t.Errorf("%s, %s: %s: %q, %v", name, mark, p.Distribution.Name, notes, err)
			}
		}
	}
}

// TestACacheOnOneOfManyNodesIsSeen: not all nodes are read, and node pools differ.
func TestACacheOnOneOfManyNodesIsSeen(t *testing.T) {
	last := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "z", Labels: map[string]string{
		"kubernetes.azure.com/localdns-state": "enabled"}}}
	here := load(t, "testdata/aks.yaml", last)
	here.Client = interceptor.NewClient(here.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if nodes, is := list.(*corev1.NodeList); is { // a fake API server knows no limit
				nodes.Items = nodes.Items[:min(len(nodes.Items), 1)]
			}
			return err
		},
	})
	s, err := Read(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := s.Cache(); c == nil || c.Name != platform.LocalDNS || platform.Of(&s.Objects).Name != "AKS" {
		t.Errorf("it finds %+v", c)
	}
}

// TestAStubDomainIsTheUsersStep, as one command that keeps those that are there, until the zone is one of them.
func TestAStubDomainIsTheUsersStep(t *testing.T) {
	const before = "NodeLocal DNS: kubectl -n kube-system "
	const replaced = before + `patch configmap kube-dns --type=merge -p '{"data": {"stubDomains": ` +
		`"{\"clusterset.local\":[\"10.96.7.7\"]}"}}'`
	for stubs, want := range map[string]string{
		"": before + `create configmap kube-dns '--from-literal=stubDomains={"clusterset.local":["10.96.7.7"]}'`,
		`{"a.example":["10.0.0.1"]}`: before + `patch configmap kube-dns --type=merge -p '{"data": {"stubDomains": ` +
			`"{\"a.example\":[\"10.0.0.1\"],\"clusterset.local\":[\"10.96.7.7\"]}"}}'`,
		"null":                                           replaced,
		`{"clusterset.local":["10.96.7.7"]}`:             "",
		`{"clusterset.local":["10.96.99.1"]}`:            "",       // the cluster's DNS, which forwards it
		`{"clusterset.local":["10.96.7.6"]}`:             replaced, // of an earlier install
		`{"clusterset.local":["10.96.7.7","10.96.7.6"]}`: replaced,
		`{"clusterset.local":[]}`:                        replaced,
	} {
		s, err := Read(t.Context(), load(t, "testdata/nodelocal.yaml", besideService()))
		if err != nil {
			t.Fatal(err)
		}
		if s.KubeDNS = nil; stubs != "" {
			s.KubeDNS = &corev1.ConfigMap{Data: map[string]string{"stubDomains": stubs}}
		}
		p, err := Install(s, Wanted{Mode: Beside, Image: image})
		if got := strings.Join(p.Notes, "\n"); err != nil || !strings.HasPrefix(got, want) ||
			want == "" && strings.Contains(got, "NodeLocal") {
			t.Errorf("%s: %s, %v, want %s", stubs, got, err, want)
		}
	}
}

// TestAZoneThatItsOwnerForwardsIsDone: a playbook, a chart, an add-on or a person has put it where it lasts. What it is
// forwarded to is not deleted.
func TestAZoneThatItsOwnerForwardsIsDone(t *testing.T) {
	inCorefile := func(s *State, to []string) {
		s.Config.Data[s.ConfigKey] = "clusterset.local {\n forward . " + strings.Join(to, " ") + "\n cache 5\n}\n" +
			s.Corefile()
	}
	for name, forward := range map[string]func(s *State, to []string){
		"kubespray": inCorefile, "rke2": inCorefile, "eks-addon": inCorefile, "kops": inCorefile,
		"gke": func(s *State, to []string) {
			s.KubeDNS.Data["stubDomains"] = `{"corp.example": ["10.1.1.1"], "clusterset.local": ["` +
				strings.Join(to, `", "`) + `"]}`
		},
		"openshift": func(s *State, to []string) {
			servers, _, _ := unstructured.NestedSlice(s.Operator.Object, "spec", "servers")
			var upstreams []any
			for _, u := range to {
				upstreams = append(upstreams, u)
			}
			servers = append(servers, map[string]any{"name": "clusterset", "zones": []any{"clusterset.local"},
				"forwardPlugin": map[string]any{"upstreams": upstreams}})
			_ = unstructured.SetNestedSlice(s.Operator.Object, servers, "spec", "servers") // it was there
		},
	} {
		by := map[string]string{"gke": "key stubDomains of ConfigMap kube-dns\n"}[name]
		for _, c := range []struct {
			to         []string
			done, used bool
		}{
			{[]string{"10.96.7.7"}, true, true}, {[]string{"10.96.7.8"}, false, false},
			{[]string{"10.96.7.7:53"}, false, true}, {[]string{"dns://10.96.7.7"}, false, true},
			{[]string{"10.96.7.8", "10.96.7.7"}, false, true},
		} {
			s, err := Read(t.Context(), load(t, "testdata/"+name+".yaml", besideService(), besideDeployment()))
			if err != nil {
				t.Fatal(err)
			}
			to := c.to
			forward(s, to)
			p, err := Install(s, Wanted{Image: image})
			if left := err != nil || p.Forward != nil || p.ByHand != ""; left == c.done {
				t.Errorf("%s, to %s: %+v, %v", name, to, p, err)
			}
			p, err = Uninstall(s)
			if c.used && (err == nil || !strings.Contains(err.Error(), "is still forwarded to our CoreDNS by "+by)) ||
				!c.used && (err != nil || p.ByHand != "") {
				t.Errorf("%s, to %s, is uninstalled: %+v, %v", name, to, p, err)
			}
		}
	}
}
