package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sleeper is a laboratory of one process.
type sleeper struct {
	*exec.Cmd
	stopped chan struct{}
}

func (sleeper) env() string { return "export A=b\n" }

func (s sleeper) stop() {
	_ = s.Process.Kill()
	_ = s.Wait() // killed, as it should be
	close(s.stopped)
}

func asleep(t *testing.T) sleeper {
	t.Helper()
	s := sleeper{exec.Command("sleep", "600"), make(chan struct{})}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Process.Kill() }) // if the test fails before stop
	return s
}

func TestKeptUntilInterrupted(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), stopSignals...)
	defer stop()
	s, path, done := asleep(t), filepath.Join(t.TempDir(), "lab.env"), make(chan error)
	go func() { done <- present(ctx, path, func() (laboratory, error) { return s, nil }) }()
	for text := []byte(nil); string(text) != s.env(); text, _ = os.ReadFile(path) { // it comes soon
		select {
		case err := <-done:
			t.Fatalf("the laboratory was not kept: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := s.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the laboratory does not run any more: %v", err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	nothingLeft(t, s, path)
}

// TestUsage: it prints nothing else, and exits with 2.
func TestUsage(t *testing.T) {
	if os.Getenv("ASKS_FOR_NOTHING") != "" {
		os.Args = os.Args[:1]
		main()
	}
	c := exec.Command(os.Args[0], "-test.run=^TestUsage$")
	c.Env = append(os.Environ(), "ASKS_FOR_NOTHING=1")
	if out, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != 2 || string(out) != usage+"\n" {
		t.Errorf("exit %d:\n%s", c.ProcessState.ExitCode(), out)
	}
}

// TestEnvironmentHasWhatTheDemoTypes: kubectl --context=east, and kubectl clusterset, which kubectl finds in the PATH.
func TestEnvironmentHasWhatTheDemoTypes(t *testing.T) {
	t.Setenv("LAB_BIN", "bin/demo")
	root := t.TempDir()
	plugin := filepath.Join(root, "bin/demo/kubectl-clusterset")
	if err := errors.Join(os.MkdirAll(filepath.Dir(plugin), 0o755), os.WriteFile(plugin, nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	script := shell(root, "/all.kubeconfig") + "echo $KUBECONFIG; command -v kubectl-clusterset"
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	if want := "/all.kubeconfig\n" + plugin + "\n"; err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}

// TestAnotherLaboratoryKeepsItsAddresses: neither the start nor the end of a second one changes them.
func TestAnotherLaboratoryKeepsItsAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lab.env")
	if err := os.WriteFile(path, []byte("the first"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := present(t.Context(), path, func() (laboratory, error) { panic("it starts") })
	if err == nil || !strings.Contains(err.Error(), "remove "+path) {
		t.Errorf("the error is %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "the first" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestWhatFailsIsNotKept(t *testing.T) {
	s, path, failed := asleep(t), filepath.Join(t.TempDir(), "lab.env"), errors.New("no space")
	if err := present(t.Context(), path, func() (laboratory, error) { return s, failed }); !errors.Is(err, failed) {
		t.Errorf("the error is %v", err)
	}
	nothingLeft(t, s, path)
}

func nothingLeft(t *testing.T, s sleeper, path string) {
	t.Helper()
	select {
	case <-s.stopped:
	default:
		t.Error("the laboratory was not stopped")
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", path, err)
	}
}
