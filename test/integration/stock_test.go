package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// Our plugins compile into a stock CoreDNS by the lines of plugin.cfg that their READMEs give, at the place that these
// name, and answer there. They add no package but ours to its build.
func TestItCompilesIntoAnybodysCoreDNS(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	lines, module := "", ""
	for _, name := range []string{"multicluster_external", "multicluster"} {
		line := regexp.MustCompile(`(?m)^` + name + `:.*$`).
			FindString(read(t, filepath.Join(root, "plugin", name, "README.md")))
		var ok bool
		if module, _, ok = strings.Cut(strings.TrimPrefix(line, name+":"), "/plugin/"); !ok {
			t.Fatalf("the README of %s has no line for plugin.cfg: %q", name, line)
		}
		lines += line + "\n"
	}
	tree := filepath.Join(t.TempDir(), "coredns")
	run := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false -trimpath", "CGO_ENABLED=0")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s%s", args, err, out, stderr.String())
		}
		return strings.TrimSpace(string(out))
	}
	stock := run(root, "go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "github.com/coredns/coredns")
	if err := os.CopyFS(tree, os.DirFS(stock)); err != nil {
		t.Fatal(err)
	}
	run(tree, "chmod", "-R", "u+w", ".") // the module cache cannot be written to
	run(tree, "go", "mod", "edit", "-require", module+"@v0.0.0", "-replace", module+"="+root)
	list := filepath.Join(tree, "plugin.cfg")
	stockList := read(t, list)
	packages := func(plugins string) []string {
		if err := os.WriteFile(list, []byte(plugins), 0o600); err != nil {
			t.Fatal(err)
		}
		run(tree, "go", "run", "directives_generate.go")
		return strings.Fields(run(tree, "go", "list", "-deps", "."))
	}
	ours := strings.Replace(stockList, "\nkubernetes:kubernetes\n", "\n"+lines+"kubernetes:kubernetes\n", 1)
	packages(ours) // raises versions in go.mod as our own does, which brings packages of these modules
	before := packages(stockList)
	added := slices.DeleteFunc(packages(ours), func(p string) bool { return slices.Contains(before, p) })
	if !slices.Contains(added, module+"/plugin/multicluster") {
		t.Errorf("the build has no package of ours: %v", added)
	}
	for _, p := range added {
		if !strings.HasPrefix(p, module+"/") {
			t.Errorf("the build has one more package of others: %s", p)
		}
	}
	run(tree, "go", "build", "-o", "coredns", ".")

	t.Setenv("COREDNS_BINARY", filepath.Join(tree, "coredns"))
	s := fixtureCluster(t).serve(t, stanza+"\n"+`global.example.org:0 {
	bind 127.0.0.1
	multicluster_external {
		kubeconfig KUBECONFIG
		nameserver 192.0.2.53
	}
}`)
	s.waitForAnswer(t, web, "A", "10.42.42.42")
	s.waitForAnswer(t, "ns.dns."+externalZone, "A", "192.0.2.53")
}
