package attack

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

var update = flag.Bool("update", false, "write the list of attacks to docs/security.md")

const (
	begins = "<!-- attacks: written by go test ./test/attack -run TestTheListIsCurrent -update -->\n"
	ends   = "<!-- end of attacks -->\n"
)

// TestTheListIsCurrent compares the list in docs/security.md with the attacks, and their number with what was promised.
func TestTheListIsCurrent(t *testing.T) {
	root, err := lab.Root()
	must(t, err)
	file := filepath.Join(root, "docs/security.md")
	page, err := os.ReadFile(file)
	must(t, err)
	before, rest, found := strings.Cut(string(page), begins)
	_, after, complete := strings.Cut(rest, ends)
	if !found || !complete {
		t.Fatalf("docs/security.md lacks %q or %q", begins, ends)
	}
	list, n, unique := table(t)
	if want := before + begins + list + ends + after; want != string(page) {
		if !*update {
			t.Error("docs/security.md lacks an attack, or has another one: " +
				"go test ./test/attack -run TestTheListIsCurrent -update")
		} else {
			must(t, os.WriteFile(file, []byte(want), 0o644))
		}
	}
	if n < 60 || unique != n {
		t.Errorf("%d attacks, %d of different names; at least 60 are promised", n, unique)
	}
}

// table returns the list, with the number of attacks and of their names.
func table(t *testing.T) (list string, n, unique int) {
	t.Helper()
	names := map[string]bool{}
	var out strings.Builder
	row := func(name, by string) {
		n++
		names[name] = true
		fmt.Fprintf(&out, "| %s | %s |\n", name, by)
	}
	for _, g := range groups {
		fmt.Fprintf(&out, "\n| %s: the attacker tries to | refused by |\n| --- | --- |\n", g.name)
		for _, a := range g.refusals {
			row(a.name, a.by)
		}
	}
	fmt.Fprintf(&out, "\n| what members may publish: the attacker tries to | withstood by |\n| --- | --- |\n")
	for _, p := range publications {
		by := agents
		if p.event != "" {
			by += ", Event `" + p.event + "`"
		}
		row(p.name, by)
	}
	fmt.Fprintf(&out, "\n| floods: the attacker tries to | withstood by |\n| --- | --- |\n")
	for _, f := range floods {
		row(f.name, "the API server's fair queues, "+agents)
	}
	return out.String() + "\n", n, len(names)
}
