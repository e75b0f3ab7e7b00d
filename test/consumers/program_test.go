package consumers

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// built is a program that make consumers built, and its version.
func built(t *testing.T, name string) (path, version string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../bin/consumers", name))
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run make consumers", err)
	}
	return path, info.Main.Version
}

// start runs a program until the test is over, and shows the end of what it wrote if that fails.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(15*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // ended by a signal
		killer.Stop()
		if text, _ := os.ReadFile(out.Name()); t.Failed() {
			lines := strings.Split(string(text), "\n")
			t.Logf("%s:\n%s", cmd.Path, strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
}

// module returns the folder of a module that the module in a folder here requires.
func module(t *testing.T, folder, path string) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir = folder
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// define applies the CustomResourceDefinitions in all YAML files of a folder.
func define(t *testing.T, c *lab.ControlPlane, folder string) {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		all.WriteString("---\n" + string(text) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), all.String()); err != nil {
		t.Fatal(err)
	}
}

func port(t *testing.T) *lab.Port {
	t.Helper()
	p, err := lab.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}
