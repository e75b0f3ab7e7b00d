package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// where tells a keeper of these tests in which folder its files are.
const where = "CLUSTERSET_LAB_TEST_FOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(keeping) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := keeperIn(os.Getenv(where)).keep(ctx, nil, func() (laboratory, error) {
		if os.Args[1] == "fails" {
			return empty{}, errors.New("no space")
		}
		go func() {
			for range time.Tick(time.Millisecond) {
				runtime.GC() // a file that nothing holds is closed by it
			}
		}()
		return empty{}, nil
	}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// empty is a laboratory with nothing in it.
type empty struct{}

func (empty) env() string { return "export A=b\n" }
func (empty) stop()       {}

func keeperIn(dir string) keeper {
	return keeper{env: filepath.Join(dir, "lab.env"), pid: filepath.Join(dir, "lab.pid")}
}

func never() (laboratory, error) { return nil, errors.New("the keeper sets it up, not its parent") }

func TestKeptUntilDownAndOnlyOnce(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(where, dir)
	k := keeperIn(dir)
	if err := k.keep(t.Context(), []string{"works"}, never); err != nil {
		t.Fatal(err)
	}
	pid := keeperPID(t, k)
	if env, err := os.ReadFile(k.env); string(env) != "export A=b\n" {
		t.Errorf("lab.env is %q, %v", env, err)
	}
	if err := k.keep(t.Context(), []string{"works"}, never); !errors.Is(err, errPrinted) {
		t.Errorf("the second one: %v", err)
	}
	if again := keeperPID(t, k); again != pid {
		t.Errorf("the second keeper wrote its process id %d over %d", again, pid)
	}
	down(t, k)
	ended(pid)
	down(t, k) // nothing is running, which is no error
}

func TestKeeperThatWasKilledLeavesNothingInTheWay(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(where, dir)
	k := keeperIn(dir)
	for range 2 {
		if err := k.keep(t.Context(), []string{"works"}, never); err != nil {
			t.Fatal(err)
		}
		pid := keeperPID(t, k)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ended(pid)
		for free := (*os.File)(nil); free == nil; { // its threads end one by one, and with the last its lock
			var err error
			if free, err = k.lock(); err != nil {
				t.Fatal(err)
			}
			free.Close()
		}
	}
	down(t, k)
}

func TestWhatFailsIsNotKept(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(where, dir)
	if err := keeperIn(dir).keep(t.Context(), []string{"fails"}, never); !errors.Is(err, errPrinted) {
		t.Errorf("the error is %v", err)
	}
	down(t, keeperIn(dir))
}

// A keeper must not hold its parent's output: who reads that waits for its end.
func TestOutputEndsWithTheCommand(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(where, dir)
	k := keeperIn(dir)
	defer down(t, k)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	err = k.keep(t.Context(), []string{"works"}, never)
	os.Stdout = stdout
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	buf := make([]byte, 1024)
	for {
		n, err := r.Read(buf)
		out.Write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the output does not end")
		}
		if err != nil {
			break
		}
	}
	if !strings.Contains(out.String(), "make lab-down") {
		t.Errorf("it does not say how to end it: %q", out.String())
	}
}

func down(t *testing.T, k keeper) {
	t.Helper()
	if err := k.down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(k.env); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", k.env, err)
	}
}

func keeperPID(t *testing.T, k keeper) int {
	t.Helper()
	b, err := os.ReadFile(k.pid)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// ended waits until a process has ended, or is a zombie.
func ended(pid int) {
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
