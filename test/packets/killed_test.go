package packets

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// parentMark is in the environment of a process that makes a network only to be killed.
const parentMark = "CLUSTERSET_PACKETS_TEST_PARENT"

// beParent makes a network, names its namespaces, and waits for its end.
func beParent() {
	w, err := newNetwork(2)
	if err == nil {
		_, err = w.nodes[0].pod("a1")
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var names []string
	for _, n := range []*lab.Namespace{
		w.router, w.nodes[0].Namespace, w.nodes[1].Namespace, w.nodes[0].pods[0].Namespace,
	} {
		name, err := os.Readlink(n.Path())
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		names = append(names, name)
	}
	fmt.Println("namespaces", strings.Join(names, " "))
	_, _ = os.Stdin.Read(make([]byte, 1)) // which whoever started it holds open
}

// TestNothingIsLeftOfARunThatWasKilled: namespaces without a name that nobody has open are gone, with all that is
// in them. That the
// programs end is proven in test/lab.
func TestNothingIsLeftOfARunThatWasKilled(t *testing.T) {
	if obstacle != nil {
		t.Skipf("packets cannot be sent here: %v", obstacle)
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentMark+"=1")
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parent.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { parent.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	names := strings.Fields(line)
	if err != nil || len(names) != 5 || names[0] != "namespaces" {
		t.Fatalf("the parent said %q, %v", line, err)
	}
	for _, name := range names[1:] {
		if len(holders(t, name)) == 0 {
			t.Errorf("%s is not seen while it is in use", name)
		}
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed, as it should be
	for _, name := range names[1:] {
		eventually(t, name+" is gone", func() error {
			if h := holders(t, name); len(h) > 0 {
				return fmt.Errorf("held by %v", h)
			}
			return nil
		})
	}
}

// holders are the processes that have a network namespace open or run in it.
func holders(t *testing.T, name string) (out []string) {
	t.Helper()
	for _, pattern := range []string{"/proc/[0-9]*/fd/*", "/proc/[0-9]*/task/[0-9]*/ns/net"} {
		links, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && to == name { // it may have ended meanwhile
				out = append(out, l)
			}
		}
	}
	return out
}
