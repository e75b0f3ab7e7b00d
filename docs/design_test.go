package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheWalkFromExportToSliceNamesFunctions: each step of the list in design.md is a function that exists, and the
// list is short: at most 20 calls over at most 5 packages.
func TestTheWalkFromExportToSliceNamesFunctions(t *testing.T) {
	text, err := os.ReadFile("design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, walk, found := strings.Cut(string(text), "\n### From an export to a slice\n")
	walk, _, ended := strings.Cut(walk, "\n## ")
	if !found || !ended {
		t.Fatal("design.md has no section about the walk")
	}
	steps := regexp.MustCompile("(?m)^[0-9]+\\. `([a-z]+)\\.([a-zA-Z]+)`").FindAllStringSubmatch(walk, -1)
	items := regexp.MustCompile(`(?m)^[0-9]+\. `).FindAllString(walk, -1)
	if len(steps) == 0 || len(steps) != len(items) || len(steps) > 20 {
		t.Errorf("%d steps, and %d of them name a function; at most 20 are a walk", len(items), len(steps))
	}
	functions := map[string]map[string]bool{}
	for _, step := range steps {
		if functions[step[1]] == nil {
			functions[step[1]] = functionsOf(t, step[1])
		}
		if !functions[step[1]][step[2]] {
			t.Errorf("design.md names %s.%s, which does not exist", step[1], step[2])
		}
	}
	if len(functions) > 5 {
		t.Errorf("the walk is over %d packages, more than 5", len(functions))
	}
}

// functionsOf returns the functions and methods of a package of controllers.
func functionsOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, folder := range []string{"../controllers/" + name, "../controllers/decide/" + name} {
		files, _ := filepath.Glob(folder + "/*.go") // the pattern is well formed
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					out[fn.Name.Name] = true
				}
			}
		}
	}
	return out
}
