package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fatih/color"
)

// TestOnlyATerminalGetsColour: a file of gather does not, nor does anybody with NO_COLOR.
func TestOnlyATerminalGetsColour(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stdout, none := os.Stdout, color.NoColor
	defer func() { os.Stdout, color.NoColor = stdout, none }()
	os.Stdout = file
	findings := []Finding{{Severity: Error, What: "x is lost"}, {Severity: Warning, What: "y is late"}}
	var elsewhere strings.Builder
	for _, color.NoColor = range []bool{true, false} {
		Print(file, findings)
		Print(&elsewhere, findings)
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	const plain, coloured = "x x is lost\n! y is late\n", "\x1b[31mx\x1b[0m x is lost\n\x1b[33m!\x1b[0m y is late\n"
	if string(text) != plain+coloured || elsewhere.String() != plain+plain {
		t.Errorf("%q, and elsewhere %q", text, &elsewhere)
	}
	if got := (Tally{Errors: 1}).Text(file); got != "\x1b[31m1 error\x1b[0m, 0 warnings" {
		t.Errorf("%q", got)
	}
}
