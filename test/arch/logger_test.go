package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestProgramsSetALogger: a client of controller-runtime without one prints a stack trace after 30 seconds.
func TestProgramsSetALogger(t *testing.T) {
	const line = `{{if eq .Name "main"}}{{.Dir}} {{join .Deps " "}}{{end}}`
	out, err := exec.Command("go", "list", "-f", line, "../../cmd/...", "../../test/...", "../../hack/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, program := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		dir, deps, _ := strings.Cut(program, " ")
		if !strings.Contains(deps+" ", "sigs.k8s.io/controller-runtime/pkg/client ") {
			continue
		}
		found++
		if !setsLogger(t, dir) {
			t.Errorf("%s uses controller-runtime's client, and does not call log.SetLogger", dir)
		}
	}
	if found < 5 {
		t.Errorf("only %d programs use the client: is this test still right?", found)
	}
}

func setsLogger(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") && strings.Contains(string(text), ".SetLogger(") {
			return true
		}
	}
	return false
}
