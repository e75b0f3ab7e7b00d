package report_test

import (
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// TestControlCharactersAreEscaped: annotations and versions are text that other clusters write.
func TestControlCharactersAreEscaped(t *testing.T) {
	var out strings.Builder
	report.Table(&out, "MEMBERS", []string{"NAME", "VERSION"}, [][]string{{"east", "v1.36.0"},
		{"wést", "v1\x1b[2J\n! all is lost\t\r\u202e\u0007"}})
	report.Note(&out, "!", "it said: a\n  → rm -rf /", "look\nthere")
	const want = `
MEMBERS
  NAME   VERSION
  east   v1.36.0
  wést   v1\x1b[2J\n! all is lost\t\r\u202e\a
! it said: a\n  → rm -rf /
  → look\nthere
`
	if out.String() != want {
		t.Errorf("written is\n%q, want\n%q", out.String(), want)
	}
}
