package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNumberHasThreeDigits(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 0.054: "0.05", 1: "1", 1.149: "1.15", 9.999: "10", 12.34: "12.3",
		99.96: "100",
		123.4: "123", 999.6: "1,000", 1234567: "1,234,567"} {
		if got := number(f); got != want {
			t.Errorf("number(%v) = %s, want %s", f, got, want)
		}
	}
}

func TestBars(t *testing.T) {
	for name, c := range map[string]struct {
		row   row
		bar   string
		holds string
	}{
		"none":              {row{}, "", ""},
		"at least, equal":   {row{}.atLeast(8, 8, " ×"), "≥ 8 ×", "yes"},
		"at least, below":   {row{}.atLeast(7.99, 8, " ×"), "≥ 8 ×", "**no**"},
		"at most, equal":    {row{}.atMost(1.05, 1.05, ""), "≤ 1.05", "yes"},
		"at most, above":    {row{}.atMost(401, 400, " B"), "≤ 400 B", "**no**"},
		"two, second fails": {row{}.atLeast(9, 8, " ×").and(row{}.atMost(5, 4, "")), "≥ 8 ×, ≤ 4", "**no**"},
		"two, first fails":  {row{}.atLeast(7, 8, " ×").and(row{}.atMost(4, 4, "")), "≥ 8 ×, ≤ 4", "**no**"},
	} {
		if c.row.Bar != c.bar || c.row.holds() != c.holds {
			t.Errorf("%s: %q %q", name, c.row.Bar, c.row.holds())
		}
	}
}

func TestRowsWhoseBarDoesNotHoldEndTheRun(t *testing.T) {
	holds, reported := row{What: "A"}.atLeast(8, 8, " ×"), row{What: "B"}
	if err := missed([]result{{parts[0], []row{holds, reported}}}).Err(); err != nil {
		t.Errorf("every bar holds, and it says: %v", err)
	}
	err := missed(
		[]result{{parts[0], []row{holds}}, {parts[1], []row{reported, row{What: "C"}.atMost(5, 4, " allocs")}}},
	).Err()
	if err == nil || !strings.Contains(err.Error(), "C: ") || strings.Contains(err.Error(), "A: ") {
		t.Errorf("C's bar does not hold, and it says: %v", err)
	}
}

func TestMedianAndPercentile(t *testing.T) {
	if m := median([]float64{9, 1, 5}); m != 5 {
		t.Errorf("median %v", m)
	}
	if m := median([]float64{4, 1, 9, 6}); m != 5 {
		t.Errorf("median %v", m)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[99-i] = float64(i)
	}
	if p := percentile(hundred, 0.99); p != 99 {
		t.Errorf("p99 %v", p)
	}
	if p := percentile(hundred, 1); p != 99 {
		t.Errorf("p100 %v", p)
	}
}

func TestReportNamesTheMachineAndTheCommandButNoPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	rows := []row{row{What: "A", Ours: "1 µs", Theirs: "9 µs", Ratio: "9 ×"}.atLeast(9, 8, " ×")}
	if err := writeReport(path, []result{{parts[0], rows}}, 12*time.Minute); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{"`make bench`", "12 minutes", "Linux ", "go1.", "## As shipped",
		"| A | 1 µs | 9 µs | 9 × | ≥ 8 × | yes |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, os.TempDir()) || strings.Contains(text, host) {
		t.Errorf("a path or a host name in:\n%s", text)
	}
}
