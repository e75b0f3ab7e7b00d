package arch

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// ruled are the rules of docs/spec/DNS.md: rows of its tables and items of its lists begin with their ids.
	ruled = regexp.MustCompile(`(?m)^(?:\| |- )([NMLO]\d+) `)
	// named are the ids at the beginning of a test's name: TestL1L4OutageKeepsAnswers.
	named = regexp.MustCompile(`(?m)^func Test((?:[NMLO]\d+)+)[A-Z]`)
	id    = regexp.MustCompile(`[NMLO]\d+`)
)

// TestEveryRuleOfDNSHasATest by whose name it is found: a Go test, or a case of test/cases.
func TestEveryRuleOfDNSHasATest(t *testing.T) {
	text, err := os.ReadFile("../../docs/spec/DNS.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, tested := map[string]bool{}, map[string]string{}
	for _, m := range ruled.FindAllStringSubmatch(string(text), -1) {
		rules[m[1]] = true
	}
	if len(rules) < 30 {
		t.Fatalf("only %d rules were found: is DNS.md written otherwise?", len(rules))
	}
	for _, c := range cases(t) {
		for _, rule := range strings.Fields(c) {
			tested[rule] = "test/cases/dns.json"
		}
	}
	for _, root := range []string{"../../plugin", ".."} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range named.FindAllStringSubmatch(string(text), -1) {
				for _, rule := range id.FindAllString(m[1], -1) {
					tested[rule] = path
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for rule := range rules {
		if tested[rule] == "" {
			t.Errorf("no test and no case bears the name of rule %s of docs/spec/DNS.md", rule)
		}
	}
	for rule, where := range tested {
		if !rules[rule] {
			t.Errorf("%s names the rule %s, which docs/spec/DNS.md has not", where, rule)
		}
	}
}

// cases are the rules of each case.
func cases(t *testing.T) (rules []string) {
	t.Helper()
	text, err := os.ReadFile("../cases/dns.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct{ Rule string }
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	for i, c := range list {
		if c.Rule == "" {
			t.Errorf("case %d of test/cases/dns.json names no rule", i)
		}
		rules = append(rules, c.Rule)
	}
	return rules
}
