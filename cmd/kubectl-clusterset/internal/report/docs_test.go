package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinksLeadToASection of a page in docs/.
func TestLinksLeadToASection(t *testing.T) {
	source, err := os.ReadFile("docs.go")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`Docs \+ "([^"#]+)(#[^"]+)?"`).FindAllStringSubmatch(string(source), -1)
	if len(links) == 0 {
		t.Fatal("docs.go has no links")
	}
	notInAnchor := regexp.MustCompile("[^a-z0-9 _-]")
	for _, link := range links {
		page, err := os.ReadFile(filepath.Join("../../../../docs", link[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		found := link[2] == ""
		for line := range strings.Lines(string(page)) {
			if title := strings.TrimLeft(line, "#"); title != line {
				anchor := notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
				found = found || "#"+strings.ReplaceAll(anchor, " ", "-") == link[2]
			}
		}
		if !found {
			t.Errorf("docs/%s has no section %s", link[1], link[2])
		}
	}
}
