package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	q := question{name: db, qtype: "A", want: []string{"10.1.0.10", "10.2.0.10"}, status: ok}
	for _, c := range []struct {
		name, reply string
		right       bool
	}{
		{"in any order", fmt.Sprintf(reply, "NOERROR", "10.2.0.10"), true},
		{"another address", fmt.Sprintf(reply, "NOERROR", "10.2.0.11"), false},
		{"another status", fmt.Sprintf(reply, "SERVFAIL", "10.2.0.10"), false},
		{"one too many", fmt.Sprintf(reply, "NOERROR", "10.2.0.10") +
			"db.shop.svc.clusterset.local. 5 IN A 10.2.0.11\n", false},
		{"nothing", fmt.Sprintf(reply[:strings.Index(reply, ";; ANSWER")], "NOERROR"), false},
		{"no reply", ";; no servers could be reached\n", false},
	} {
		if err := q.verify(read(c.reply, "A")); (err == nil) != c.right {
			t.Errorf("%s: %v", c.name, err)
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
	for _, line := range []string{initHub, joinEast, joinWest, showStatus, explainWeb, leaveWest} {
		line = "kubectl clusterset " + strings.ReplaceAll(line, image, "REGISTRY/clusterset-controller:VERSION")
		if !strings.Contains(string(guide), line) {
			t.Errorf("docs/start.md does not have %q", line)
		}
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

// TestWithoutAReplyLogsAreShown, which say why.
func TestWithoutAReplyLogsAreShown(t *testing.T) {
	s := &stage{east: new(member), west: new(member), nodes: []*lab.Kubelet{new(lab.Kubelet)}}
	err := s.eventually(func() (wrong, err error) { return nil, errors.New("no servers could be reached") })
	if err == nil || !strings.Contains(err.Error(), "log of a node") {
		t.Errorf("the error is %v", err)
	}
}
