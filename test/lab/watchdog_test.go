package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentMark is in the environment of a process that runs a laboratory only to be killed, and of all that it starts.
const parentMark = "CLUSTERSET_LAB_TEST_PARENT"

// beParent starts what a test would, names its folders, and waits for its end.
func beParent() {
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	c, err := Start(ctx, Options{})
	fail(err)
	fail(c.PauseAPIServer()) // a stopped process has to go as well
	c.KillEtcd()             // and the data of one that is down
	d, err := StartDNS(ctx, c.bin, os.Getenv("COREDNS"), ".:DNS_PORT {\n bind 127.0.0.1\n}")
	fail(err)
	fmt.Println("folders", c.dir, c.data, d.dir)
	select {}
}

func TestNothingIsLeftOfAParentThatWasKilled(t *testing.T) {
	if _, err := Find(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			mark := fmt.Sprintf("%s=%d-%d", parentMark, os.Getpid(), s)
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), mark, "COREDNS="+coredns(t))
			parent.Stderr = os.Stderr
			out, err := parent.StdoutPipe()
			must(t, err)
			must(t, parent.Start())
			t.Cleanup(func() { parent.Process.Kill() })
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "folders ") {
				t.Fatalf("the parent said %q, %v", line, err)
			}
			folders := strings.Fields(line)[1:]
			if n := len(marked(t, mark)); n != 9 {
				t.Errorf("%d processes, want 9: the parent, and four programs with a watchdog each", n)
			}
			must(t, parent.Process.Signal(s))
			_ = parent.Wait() // killed, as it should be
			gone(t, mark)
			for _, f := range folders {
				if _, err := os.Stat(f); !os.IsNotExist(err) {
					t.Errorf("%s is left: %v", f, err)
				}
			}
		})
	}
}

// TestFoldersOfEndedProcessesAreDeleted: nothing else deletes them if the watchdog was killed, too.
func TestFoldersOfEndedProcessesAreDeleted(t *testing.T) {
	child := exec.Command("true")
	must(t, child.Run())
	parent := t.TempDir()
	stay := []string{
		fmt.Sprintf("clusterset-lab-etcd-%d-1", os.Getpid()),
		fmt.Sprintf("clusterset-lab-etcd-%d-1", os.Getppid()),
		fmt.Sprintf("clusterset-lab-etcd-%d", child.Process.Pid), // without a process: nobody knows whose it is
		"clusterset-lab-etcd-x-1",
	}
	old := fmt.Sprintf("clusterset-lab-etcd-%d-1", child.Process.Pid)
	for _, name := range append(stay, old) {
		must(t, os.Mkdir(filepath.Join(parent, name), 0o700))
	}
	made, err := newFolder(parent, "etcd")
	must(t, err)
	for _, name := range append(stay, filepath.Base(made)) {
		if _, err := os.Stat(filepath.Join(parent, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(parent, old)); !os.IsNotExist(err) {
		t.Errorf("%s of a process that has ended is left: %v", old, err)
	}
}

// TestACrashFailsTheTestThatRuns: what ends otherwise is restarted.
func TestACrashFailsTheTestThatRuns(t *testing.T) {
	const variable = "CLUSTERSET_LAB_TEST_CRASHES"
	if program := os.Getenv(variable); program != "" {
		c, err := StartHub(t.Context(), program, "", "")
		must(t, err)
		t.Cleanup(c.Stop)
		time.Sleep(ordinary) // until the program has ended twice
		return
	}
	program := filepath.Join(t.TempDir(), "program")
	script := "#!/bin/sh\n[ -e $0.ended ] && echo 'panic: the second time' >&2\ntouch $0.ended\nexit 1\n"
	must(t, os.WriteFile(program, []byte(script), 0o755))
	test := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	test.Env = append(os.Environ(), variable+"="+program)
	if out, err := test.CombinedOutput(); err == nil || !strings.Contains(string(out), "panic: the second time") {
		t.Errorf("it ended with %v and said\n%s", err, out)
	}
}

func TestProgramEndsWithItsWatchdog(t *testing.T) {
	bin, err := Find(t.Context())
	must(t, err)
	mark := fmt.Sprintf("%s=%d-watchdog", parentMark, os.Getpid())
	p, err := spawn(bin, "sleep", filepath.Join(t.TempDir(), "log"), nil, []string{mark}, "/bin/sleep", "600")
	must(t, err)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	must(t, err)
	watchdog, err := strconv.Atoi(strings.Fields(string(stat))[3])
	must(t, err)
	must(t, syscall.Kill(watchdog, syscall.SIGKILL))
	gone(t, mark)
}

func TestAProgramIsWaitedForWhileItWrites(t *testing.T) {
	bin, err := Find(t.Context())
	must(t, err)
	const limit = 2 * time.Second
	wait := func(script string) error {
		t.Helper()
		log := filepath.Join(t.TempDir(), "log")
		p, err := spawn(bin, "sh", log, nil, nil, "/bin/sh", "-c", script)
		must(t, err)
		t.Cleanup(p.kill)
		return p.until(t.Context(), "ready", limit, func() bool { return strings.Contains(p.tail(), "12") })
	}
	must(t, wait("for i in $(seq 12); do sleep .25; echo $i; done; exec sleep 600"))
	if err := wait("exec sleep 600"); err == nil || !strings.Contains(err.Error(), "sh was not ready after 2") {
		t.Errorf("one that writes nothing: %v", err)
	}
}

func TestProgramThatEndsLeavesItsLog(t *testing.T) {
	bin, err := Find(t.Context())
	must(t, err)
	dir := t.TempDir()
	p, err := spawn(bin, "sh", filepath.Join(dir, "log"), []string{dir}, nil, "/bin/sh", "-c", "echo no room; exit 3")
	must(t, err)
	err = p.until(t.Context(), "ready", time.Minute, func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "sh ended before it was ready") ||
		!strings.Contains(err.Error(), "no room") {
		t.Errorf("the error is %v", err)
	}
	if err := p.signal(syscall.SIGTERM); err == nil {
		t.Error("a program that has ended took a signal")
	}
	if _, err := spawn(
		bin,
		"absent",
		filepath.Join(dir, "log"),
		nil,
		nil,
		"/absent",
	); err == nil ||
		!strings.Contains(err.Error(), "/absent") {
		t.Errorf("the error of a program that does not exist is %v", err)
	}
}

// gone waits until no process with that environment is left.
func gone(t *testing.T, mark string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left := marked(t, mark)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still running after 2 minutes: %v", left)
		}
	}
}

// marked are the live processes that were started with a variable in their environment.
func marked(t *testing.T, variable string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	must(t, err)
	var found []string
	for _, f := range files {
		env, err := os.ReadFile(f) // of a zombie it is empty
		if err != nil {
			continue // it has ended, or is someone else's
		}
		for _, v := range bytes.Split(env, []byte{0}) {
			if string(v) == variable {
				name, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "comm"))
				found = append(found, filepath.Base(filepath.Dir(f))+" "+strings.TrimSpace(string(name)))
			}
		}
	}
	return found
}

// coredns is what make build has built.
func coredns(t *testing.T) string {
	t.Helper()
	b := folder(t, "bin/coredns")
	if _, err := os.Stat(b); err != nil {
		t.Fatal("bin/coredns is missing: make build")
	}
	return b
}
