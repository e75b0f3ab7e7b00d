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
	ruled = regexp.MustCompile(`(?m)^(?:\| |- )([NMLOX]\d+) `)
	// specified are items of docs/spec/SPEC.md that K1645 asks for, by their letter.
	specified = regexp.MustCompile(`^([EISC])\d+ `)
	// named are the ids at the beginning of a test's name.
	named = regexp.MustCompile(`(?m)^func Test((?:(?:ID|[A-Z])\d+)+)[A-Z]`)
	id    = regexp.MustCompile(`(?:ID|[A-Z])\d+`)
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
	for rule, path := range bearing(t, "[NMLOX]", "../../plugin", "..") {
		tested[rule] = path
	}
	match(t, "docs/spec/DNS.md", rules, tested)
}

// TestEveryRuleOfMultiClusterServicesHasATest on real control planes, by whose name it is found: E, I, S and C of
// docs/spec/SPEC.md.
func TestEveryRuleOfMultiClusterServicesHasATest(t *testing.T) {
	text, err := os.ReadFile("../../docs/spec/SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]bool{}
	for _, item := range strings.Split(string(text), "\n- ") {
		m := specified.FindStringSubmatch(item)
		if m == nil {
			continue
		}
		for _, rule := range regexp.MustCompile(`\b`+m[1]+`\d+\b`).FindAllString(item, -1) { // C has several to an item
			rules[rule] = true
		}
	}
	if len(rules) < 31 {
		t.Fatalf("only %d rules were found: is SPEC.md written otherwise?", len(rules))
	}
	match(t, "docs/spec/SPEC.md", rules, bearing(t, "[EISC]", "../members", "../policies", "../packets", "../honest"))
	known(t, "docs/spec/SPEC.md", rules, bearing(t, "[EISC]", "../../controllers", "../../cmd", ".."))
}

// bearing are the files of tests that begin with rules of these letters, by rule: TestL1L4OutageKeepsAnswers,
// TestE3E6WhatIsExported.
func bearing(t *testing.T, letters string, roots ...string) map[string]string {
	t.Helper()
	one, tested := regexp.MustCompile(`^`+letters+`\d`), map[string]string{}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range named.FindAllStringSubmatch(string(text), -1) {
				for _, rule := range id.FindAllString(m[1], -1) {
					if one.MatchString(rule) {
						tested[rule] = path
					}
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return tested
}

// match wants a test for every rule, and a rule for every test.
func match(t *testing.T, of string, rules map[string]bool, tested map[string]string) {
	t.Helper()
	for rule := range rules {
		if tested[rule] == "" {
			t.Errorf("no test and no case bears the name of rule %s of %s", rule, of)
		}
	}
	known(t, of, rules, tested)
}

// known wants a rule for every test.
func known(t *testing.T, of string, rules map[string]bool, tested map[string]string) {
	t.Helper()
	for rule, where := range tested {
		if !rules[rule] {
			t.Errorf("%s names the rule %s, which %s has not", where, rule, of)
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
