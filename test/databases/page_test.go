//go:build databases

package databases

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// page has its sections by their headings.
type page map[string]section

type section struct{ name, text string }

// readPage reads a page, by its path from the root of the repository.
func readPage(t *testing.T, file string) page {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	p := page{}
	for _, s := range strings.Split(string(text), "\n## ")[1:] {
		name, below, _ := strings.Cut(s, "\n")
		p[name] = section{name, below}
	}
	return p
}

func (p page) section(t *testing.T, name string) section {
	t.Helper()
	s, ok := p[name]
	if !ok {
		t.Fatalf("the page has no section %q", name)
	}
	return s
}

// blocks returns all blocks of a kind, such as sh, one after the other.
func (s section) blocks(kind string) (out string) {
	for _, m := range regexp.MustCompile(`(?ms)^~~~ `+kind+`\n(.*?)^~~~$`).FindAllStringSubmatch(s.text, -1) {
		out += m[1]
	}
	return out
}

// record replaces a database's row of the page, and its part of docs/databases.log, if DATABASES_RECORD is set.
func record(t *testing.T, page, name, row string, log []string) {
	t.Helper()
	t.Logf("%s\n%s", row, strings.Join(log, "\n"))
	if os.Getenv("DATABASES_RECORD") == "" {
		return
	}
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	replace := func(file, pattern, text string) {
		path := filepath.Join(root, file)
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		place := regexp.MustCompile(pattern)
		if len(place.FindAll(old, -1)) != 1 {
			t.Fatalf("%s does not have one place for %s", file, name)
		}
		if err := os.WriteFile(path, place.ReplaceAllLiteral(old, []byte(text)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	replace(page, fmt.Sprintf(`(?m)^\| %s \|.*\n`, name), row+"\n")
	replace("docs/databases.log", fmt.Sprintf(`(?ms)^== %s\n.*?\n\n`, name),
		fmt.Sprintf("== %s\n%s\n\n", name, strings.Join(log, "\n")))
}
