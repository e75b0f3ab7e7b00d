// Package upstream_test proves that the patches for the projects in go.mod apply to the versions there, and that the
// tests that they bring pass.
package upstream_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestPatches(t *testing.T) {
	for _, p := range []struct {
		patch, module, pkg, run string
	}{
		{"coredns-stack.patch", "github.com/coredns/coredns", "/core/dnsserver", "^TestGrowStack|^TestUDPDecorate"},
		{"coredns-reverse.patch", "github.com/coredns/coredns", "/plugin/kubernetes/object", "^TestEndpointSlice"},
		{"dns-write-timeout.patch", "github.com/miekg/dns", "", "^TestServerTCPWriteTimeout$"},
	} {
		t.Run(p.patch, func(t *testing.T) {
			t.Parallel()
			patch, err := os.Open(p.patch) // here, so that go's cache of test results knows it
			if err != nil {
				t.Fatal(err)
			}
			defer patch.Close()
			tree, modfile := t.TempDir(), filepath.Join(t.TempDir(), "go.mod")
			source := run(t, ".", nil, "go", "list", "-m", "-f", "{{.Dir}}", p.module)
			if err := os.CopyFS(tree, os.DirFS(source)); err != nil {
				t.Fatal(err)
			}
			run(t, tree, nil, "chmod", "-R", "u+w", ".") // the module cache cannot be written to
			run(t, tree, patch, "git", "apply")
			for _, name := range []string{"go.mod", "go.sum"} {
				b, err := os.ReadFile(filepath.Join("..", "..", name))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(filepath.Dir(modfile), name), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			run(t, ".", nil, "go", "mod", "edit", "-replace", p.module+"="+tree, modfile)
			out := run(t, ".", nil, "go", "test", "-modfile", modfile, "-mod=mod", "-v", "-run", p.run, p.module+p.pkg)
			if !strings.Contains(out, "--- PASS") {
				t.Errorf("no test ran:\n%s", out)
			}
		})
	}
}

func run(t *testing.T, dir string, input io.Reader, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Stdin = dir, input
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as everything else is compiled
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
