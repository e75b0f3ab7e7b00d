package words

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// finding is one place that a person must change.
type finding struct {
	path string
	line int
	what string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.what) }

func at(path string, line int, what []string) (found []finding) {
	for _, w := range what {
		found = append(found, finding{path, line, w})
	}
	return found
}

// TestLanguage fails for every finding outside the unclean directories, and for an unclean directory that is clean.
func TestLanguage(t *testing.T) {
	byDir := checkAll(t)
	for dir, found := range byDir {
		listed := slices.Contains(unclean, dir)
		switch {
		case listed && len(found) == 0:
			t.Errorf("%s is clean: remove it from the list in test/words/unclean_test.go", dir)
		case listed:
			t.Log(found) // with -v
		default:
			for _, f := range found {
				t.Error(f)
			}
		}
	}
	for _, dir := range unclean {
		if _, exists := byDir[dir]; !exists {
			t.Errorf("%s does not exist: remove it from the list in test/words/unclean_test.go", dir)
		}
	}
}

// checkAll returns the findings by directory. A directory without findings has an empty entry.
func checkAll(t *testing.T) map[string][]finding {
	t.Helper()
	g, byDir := readGlossary(t, filepath.Join(root, "docs/glossary.md")), map[string][]finding{}
	walk(t, func(path string, text []byte) {
		dir := filepath.Dir(path)
		byDir[dir] = append(byDir[dir], check(g, path, text)...)
	})
	return byDir
}

func check(g *glossary, path string, text []byte) []finding {
	name := filepath.Base(path)
	switch {
	case strings.HasPrefix(path, "test/words/") || strings.HasPrefix(path, "deploy/crds/multicluster"):
		return nil // the first plants words, the second is copied from mcs-api
	case strings.HasSuffix(name, ".go"):
		return checkGo(g, path, text)
	case strings.HasSuffix(name, ".md"):
		return checkDocument(g, path, text)
	case slices.Contains([]string{".yaml", ".json", ".txtar", ".example", ".corefile"}, filepath.Ext(name)),
		name == "Makefile", name == "Corefile", strings.HasPrefix(string(text), "#!"):
		return checkLines(g, path, string(text))
	}
	return nil
}

func checkLines(g *glossary, path, text string) (found []finding) {
	for i, line := range strings.Split(text, "\n") {
		found = append(found, at(path, i+1, g.prose(line))...)
	}
	return found
}

// walk calls visit for every file of the repository, except data and what is built.
func walk(t *testing.T, visit func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "testdata", "fuzz"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		relative, err := filepath.Rel(root, path)
		if err != nil || strings.HasSuffix(path, ".gz") {
			return err
		}
		text, err := os.ReadFile(path)
		visit(filepath.ToSlash(relative), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
