package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// installing are the pages that say how to install, upgrade, back up and remove.
var installing = []string{
	"README.md", "docs/start.md", "docs/manifests.md", "docs/operate.md", "docs/migrate.md", "docs/gitops.md",
	"docs/corefile.md", "docs/databases.md", "deploy/coredns/README.md", "deploy/hub/README.md",
	"deploy/image/README.md", "deploy/member/README.md", "deploy/monitoring/README.md",
	"charts/clusterset-hub/README.md", "charts/clusterset-member/README.md", "charts/clusterset-dns/README.md",
}

// unproven is how a page says that no test runs its commands. The reason follows.
const unproven = "Not run by a test: "

var runBy = regexp.MustCompile(`^\s*<!-- run by (test/\w+) (Test\w+) -->$`)

// block is a block of commands, with the mark directly above it, and the text of its section above it.
type block struct {
	line           int
	mark           string
	section, shell string
}

// blocks returns the head of a page, which ends at its first section, and the blocks that call kubectl or Helm.
func blocks(page string) (head string, all []block) {
	head, _, _ = strings.Cut(page, "\n## ")
	var section, above, fence string
	var open *block
	end := func() {
		if open != nil && regexp.MustCompile(`\b(kubectl|helm) `).MatchString(open.shell) {
			all = append(all, *open)
		}
		open = nil
	}
	for i, line := range strings.Split(page, "\n") {
		text := strings.TrimSpace(line)
		begin := func() { open = &block{line: i + 1, mark: above, section: section} }
		switch {
		case fence != "":
			if text == fence {
				end()
				fence = ""
			} else if open != nil {
				open.shell += line + "\n"
			}
		case strings.HasPrefix(text, "~~~") || strings.HasPrefix(text, "```"):
			end()
			fence = text[:3]
			if regexp.MustCompile(`^...\s*(sh|bash|console)?( unproven)?$`).MatchString(text) {
				begin()
			}
			above = ""
		case strings.HasPrefix(line, "    "):
			if open == nil {
				begin()
			}
			open.shell += line + "\n"
			above = ""
		case text != "":
			end()
			above = text
			if strings.HasPrefix(line, "#") {
				section = ""
			}
			section += text + " "
		}
	}
	end()
	return head, all
}

// unaccounted returns what is missing for a reader to know whether the commands of a page have been run.
func unaccounted(page, text string, proves func(dir, test string) error) (out []string) {
	head, all := blocks(text)
	marked := func(mark string) bool {
		m := runBy.FindStringSubmatch(mark)
		if m == nil {
			return false
		}
		if err := proves(m[1], m[2]); err != nil {
			out = append(out, fmt.Sprintf("%s: %v", page, err))
		}
		return true
	}
	whole := false
	for line := range strings.Lines(head) {
		whole = whole || strings.HasPrefix(line, "<!-- all but ") &&
			marked(strings.Replace(strings.TrimSpace(line), "all but the unproven are ", "", 1))
	}
	for _, b := range all {
		said := strings.Contains(b.section, unproven) || strings.Contains(strings.ReplaceAll(head, "\n", " "), unproven)
		if !marked(b.mark) && !whole && !said {
			out = append(out, fmt.Sprintf(
				"%s:%d: no test runs this block: write <!-- run by test/DIR TestNAME --> above it, or %q in its "+
					"section",
				page, b.line, unproven+"WHY"))
		}
	}
	return out
}

// TestCommandsOfInstallPagesAreRunOrSaidNotToBe: a reader knows which commands have been run. A mark holds if the test
// exists, and its package reads the page.
func TestCommandsOfInstallPagesAreRunOrSaidNotToBe(t *testing.T) {
	for _, page := range installing {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, missing := range unaccounted(page, string(text), func(dir, test string) error {
			return reads(filepath.Join("../..", dir), test, page)
		}) {
			t.Error(missing)
		}
	}
}

// reads fails unless a test is in a folder, in a file that names the page.
func reads(dir, test, page string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(text), "func "+test+"(") {
			if !strings.Contains(string(text), `"`+page+`"`) {
				return fmt.Errorf("%s in %s does not read %s", test, file, page)
			}
			return nil
		}
	}
	return fmt.Errorf("%s has no %s", dir, test)
}

func TestBlocksThatNobodyAccountsForAreFound(t *testing.T) {
	const run = "<!-- run by test/x TestX -->\n"
	for name, c := range map[string]struct {
		page    string
		missing int
	}{
		"marked":                  {"# A\n\n## B\n\n" + run + "\n~~~ sh\nkubectl get x\n~~~\n", 0},
		"fenced":                  {"# A\n\n## B\n\n~~~ sh\nkubectl get x\n~~~\n", 1},
		"indented":                {"# A\n\n    helm install x\n", 1},
		"in a list":               {"1. A\n\n       kubectl get x\n", 1},
		"the mark is for one":     {run + "\n    kubectl get x\n\nText.\n\n    kubectl get y\n", 1},
		"said in its section":     {"# A\n\n## B\n\nNot run by a test: why.\n\n    kubectl get x\n", 0},
		"said in another section": {"# A\n\n## B\n\nNot run by a test: why.\n\n## C\n\n    helm list \n", 1},
		"said in the head":        {"# A\n\nNot run by a\ntest: why.\n\n## B\n\n    kubectl get x\n", 0},
		"the whole page":          {"<!-- all but the unproven are run by test/x TestX -->\n\n    kubectl get x\n", 0},
		"not a command":           {"# A\n\n~~~ yaml\nkubectl get x\n~~~\n", 0},
		"a test that is missing":  {"<!-- run by test/x TestY -->\n\n    kubectl get x\n", 1},
	} {
		got := unaccounted("a.md", c.page, func(_, test string) error {
			if test != "TestX" {
				return fmt.Errorf("there is no %s", test)
			}
			return nil
		})
		if len(got) != c.missing {
			t.Errorf("%s: %q, want %d", name, got, c.missing)
		}
	}
}
