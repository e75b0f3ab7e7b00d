package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const reply = `;; Got answer:
;; ->>HEADER<<- opcode: QUERY, status: %s, id: 4711
;; flags: qr aa rd; QUERY: 1, ANSWER: 2, AUTHORITY: 0, ADDITIONAL: 1

;; ANSWER SECTION:
db.shop.svc.clusterset.local. 5	IN	A	%s
db.shop.svc.clusterset.local. 5	IN	A	10.1.0.10
`

func TestOnlyTheRightAnswerPasses(t *testing.T) {
	want := []string{"10.2.*", "10.1.0.10"}
	for _, c := range []struct {
		name, reply string
		right       bool
	}{
		{"in any order", fmt.Sprintf(reply, "NOERROR", "10.2.0.10"), true},
		{"another address", fmt.Sprintf(reply, "NOERROR", "10.3.0.11"), false},
		{"another status", fmt.Sprintf(reply, "SERVFAIL", "10.2.0.10"), false},
		{"one too many", fmt.Sprintf(reply, "NOERROR", "10.2.0.10") +
			"db.shop.svc.clusterset.local. 5 IN A 10.2.0.11\n", false},
		{"nothing", fmt.Sprintf(reply[:strings.Index(reply, ";; ANSWER")], "NOERROR"), false},
		{"no reply", ";; no servers could be reached\n", false},
	} {
		if got := answer(c.reply, "A"); matches(got, want) != c.right {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestDocumentsTellTheSameCommands: what a reader saw in the demo is what the guide tells to type.
func TestDocumentsTellTheSameCommands(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile(filepath.Join(root, "docs/start.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(script) {
		command := strings.TrimSpace(strings.TrimLeft(line, "$? "))
		if !strings.HasPrefix(command, "kubectl clusterset ") || strings.Contains(command, "export") {
			continue // start.md writes ServiceExports as manifests
		}
		n++
		command = strings.ReplaceAll(command, "IMAGE", "REGISTRY/clusterset-controller:VERSION")
		if !strings.Contains(string(guide), command) {
			t.Errorf("docs/start.md does not have %q", command)
		}
	}
	if n < 6 {
		t.Errorf("the demo has %d commands", n)
	}
}

func TestCorefileExampleHasTheLinesThatTheDemoChanges(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(root, "corefile.example"))
	if err != nil {
		t.Fatal(err)
	}
	corefile, shown, err := adapt(string(example), "/k")
	if err != nil {
		t.Fatal(err)
	}
	for _, outside := range []string{":53", "9153", "resolv.conf"} {
		if strings.Contains(corefile, outside) {
			t.Errorf("the demo would use %s:\n%s", outside, corefile)
		}
	}
	if !strings.Contains(shown, "- .:53 {\n+ .:DNS_PORT {\n") {
		t.Errorf("the change of ports is not shown:\n%s", shown)
	}
	if _, _, err := adapt("", "/k"); err == nil {
		t.Error("a Corefile without these lines is no error")
	}
}

// TestAKeptLaboratoryIsUsedFromAShell: DESIGN §11 promises these variables, and something is left to see.
func TestAKeptLaboratoryIsUsedFromAShell(t *testing.T) {
	if !strings.Contains(script, withdrawal) {
		t.Errorf("the script has no %q, and KEEP=1 would withdraw all", withdrawal)
	}
	s := &stage{root: "/checkout", kubeconfig: "/all", planes: lab.Planes{}}
	for _, name := range append([]string{"hub"}, members...) {
		s.planes[name] = &lab.ControlPlane{}
	}
	admin := s.planes["hub"].Kubeconfig()
	cmd := exec.Command("sh", "-c", s.env(func(member string) string { return member + ":53" })+"env")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"KUBECONFIG=/all", "PATH=/checkout/bin:" + os.Getenv("PATH"), "HUB_KUBECONFIG=" + admin,
		"MEMBER_1_KUBECONFIG=" + admin, "MEMBER_1_DNS=east:53",
		"MEMBER_2_KUBECONFIG=" + admin, "MEMBER_2_DNS=west:53",
	} {
		if !slices.Contains(strings.Split(string(out), "\n"), want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

// TestAMistypedScriptFails: what nobody types would not be missed.
func TestAMistypedScriptFails(t *testing.T) {
	if err := new(stage).play(t.Context(), "kubectl get pods\n"); err == nil {
		t.Error("a line without a mark is passed over")
	}
}
