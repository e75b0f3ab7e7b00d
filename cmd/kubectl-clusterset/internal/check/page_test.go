package check_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
)

var update = flag.Bool("update", false, "write docs/checks.md")

const intro = `# Checks

What ` + "`status`, `doctor` and `explain`" + ` of ` + "`kubectl clusterset`" + ` find, and what the agent states in the
conditions of its Membership (` + "`kubectl get membership -o wide`" + `). Each finding and each condition links to its
section here.
Made from cmd/kubectl-clusterset/internal/check (the table, and means.txt) and controllers/decide/health/reasons.go by
` + "`go test ./cmd/kubectl-clusterset/internal/check -run TestThePage -update`" + `.
`

const states = `
## What the agent states

The conditions of a Membership are listed from cause to effect: look at the first one that is False. The agent updates
them every ten seconds, and writes them at least every five minutes. If column ` + "`REPORTED`" + ` is older, no agent
works, and they are what the last one knew, or the agent is of a version before this column:
` + "`kubectl clusterset status`" + ` says which, and sooner.
Condition ` + "`MemberReady`" + ` of the ClusterProfile on the hub repeats ` + "`Ready`" + `.
`

// TestThePage: docs/checks.md explains every check and every reason. -update writes it.
func TestThePage(t *testing.T) {
	var b strings.Builder
	b.WriteString(intro)
	means := meanings(t)
	for _, scope := range check.Scopes {
		fmt.Fprintf(&b, "\n## %s\n", scope)
		for i := range check.Table {
			c := &check.Table[i]
			if _, stated := health.Reasons[c.ID]; stated || c.Scope != scope {
				continue
			}
			level := map[report.Severity]string{report.Error: "Error", report.Warning: "Warning"}[c.Level]
			fmt.Fprintf(&b, "\n### %s\n\n%s\n", c.ID,
				filled(fmt.Sprintf("%s: %s. %s", level, sentence(c.One), means[c.ID])))
			if step := (report.Flags{}).Step(c.Do.On("NAME.NAMESPACE").In(place(c.Do))); step != "" {
				fmt.Fprintf(&b, "\n%s\n", filled("First step: `"+step+"`."))
			}
		}
	}
	b.WriteString(states)
	for _, condition := range health.Order {
		fmt.Fprintf(&b, "\n## Condition %s\n", condition)
		for _, name := range health.Names() {
			r := health.Reasons[name]
			if r.Condition != condition {
				continue
			}
			fmt.Fprintf(&b, "\n### %s\n\n%s\n", name, filled(string(r.Status())+". "+r.Means))
			if r.Remedy != "" {
				fmt.Fprintf(&b, "\n%s\n", filled("Remedy: "+r.Remedy))
			}
		}
	}
	const page = "../../../../docs/checks.md"
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil || string(got) != b.String() {
		t.Errorf("docs/checks.md is not what the table says: go test %s -run TestThePage -update; %v",
			"./cmd/kubectl-clusterset/internal/check", err)
	}
}

// meanings returns the texts of means.txt by check.
func meanings(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("means.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, section := range strings.Split(string(text), "## ")[1:] {
		id, means, _ := strings.Cut(section, "\n")
		out[id] = strings.TrimSpace(means)
	}
	return out
}

func sentence(one string) string { return strings.ReplaceAll(one, "%s", "…") }

func place(s report.Step) string {
	if s.At == report.Subject {
		return "…"
	}
	return s.At
}

var placeholder = regexp.MustCompile(`\b[A-Z]{2,}\b`)

// TestTheTable: every check has what a reader needs, and a cause is run before what it silences.
func TestTheTable(t *testing.T) {
	seen, means := map[string]report.Severity{}, meanings(t)
	for i := range check.Table {
		c := &check.Table[i]
		_, stated := health.Reasons[c.ID]
		if seen[c.ID] != "" || c.Look == nil || c.Level == "" || !slices.Contains(check.Scopes, c.Scope) ||
			!stated && (means[c.ID] == "" || c.One == "") {
			t.Errorf("%s: it is there twice, or lacks something", c.ID)
		}
		delete(means, c.ID)
		step := strings.ReplaceAll(strings.Join(c.Do.Argv, " "), "--hub-context=HUB", "") // which flags replace
		if placeholder.MatchString(step) {
			t.Errorf("%s: its step cannot be run as it is printed: %s", c.ID, step)
		}
		if n := len(sentence(c.One)); n > 100 {
			t.Errorf("%s: its sentence has %d characters", c.ID, n)
		}
		if strings.Contains(c.One, "%s") && c.Scope != check.Asked && !strings.Contains(c.Many, "%d") {
			t.Errorf("%s: it cannot say that there are several", c.ID)
		}
		for _, cause := range c.After {
			if at := seen[cause]; at == "" || at == report.Warning && c.Level == report.Error {
				t.Errorf("%s: its cause %s is no check before it, or only a warning, which hides no error", c.ID, cause)
			}
		}
		seen[c.ID] = c.Level
	}
	if len(means) > 0 {
		t.Errorf("means.txt has sections of no check: %v", means)
	}
}

// filled breaks text into lines of at most 120 columns.
func filled(text string) string {
	var out strings.Builder
	columns := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case columns+1+len(word) > 120:
			out.WriteByte('\n')
			columns = 0
		default:
			out.WriteByte(' ')
			columns++
		}
		out.WriteString(word)
		columns += len(word)
	}
	return out.String()
}

func TestNamesThatMayBeMeant(t *testing.T) {
	in := func(ns, name string) types.NamespacedName { return types.NamespacedName{Namespace: ns, Name: name} }
	for _, c := range []struct {
		asked, there types.NamespacedName
		alike        bool
	}{
		{in("shop", "wbe"), web, true},
		{in("shop", "webb"), web, true},
		{in("store", "web"), web, true},
		{web, web, false}, // it is there: nothing else was meant
		{in("shop", "db"), web, false},
		{in("shop", "api"), web, false},
		{in("store", "wbe"), web, false},
		{in("shop", "checkout-v2"), in("shop", "payments"), false},
		{in("shop", "checkuot"), in("shop", "checkout"), true},
	} {
		if got := check.Similar(c.asked, c.there); got != c.alike {
			t.Errorf("%v for %v: %v", c.asked, c.there, got)
		}
	}
}
