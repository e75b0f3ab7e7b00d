package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/coredns/coredns/coremain"

	"github.com/clusterset-dns/clusterset-dns/test/bench/bar"
)

// row is one line of the results.
type row struct {
	What                string
	Ours, Theirs, Ratio string
	Bar                 string // empty: reported only
	Holds               bool
}

type result struct {
	part
	rows []row
}

// atLeast sets the bar: the ratio may not be smaller.
func (r row) atLeast(value, least float64, unit string) row {
	r.Bar, r.Holds = "≥ "+number(least)+unit, value >= least
	return r
}

// atMost sets the bar: the ratio may not be greater.
func (r row) atMost(value, most float64, unit string) row {
	r.Bar, r.Holds = "≤ "+number(most)+unit, value <= most
	return r
}

// and adds a second bar.
func (r row) and(other row) row {
	r.Bar += ", " + other.Bar
	r.Holds = r.Holds && other.Holds
	return r
}

func (r row) holds() string { return r.check(new(bar.Missed)) }

// check is the cell of the column holds.
func (r row) check(m *bar.Missed) string {
	if r.Bar == "" {
		return ""
	}
	return m.Holds(fmt.Sprintf("%s: %s, ratio %s, bar %s", r.What, r.Ours, r.Ratio, r.Bar), r.Holds)
}

// missed are the rows of all parts whose bar does not hold.
func missed(results []result) (m bar.Missed) {
	for _, r := range results {
		for _, row := range r.rows {
			row.check(&m)
		}
	}
	return m
}

// number writes three significant digits, and thousands with commas.
func number(f float64) string {
	switch {
	case f >= 999.5:
		s := fmt.Sprintf("%.0f", f)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case f >= 99.95:
		return fmt.Sprintf("%.0f", f)
	case f >= 9.995:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
	}
	s := strings.TrimRight(fmt.Sprintf("%.2f", f), "0")
	return strings.TrimSuffix(s, ".")
}

// microseconds of a time in nanoseconds.
func microseconds(ns float64) string { return number(ns/1000) + " µs" }

func mib(bytes float64) string { return number(bytes/(1<<20)) + " MiB" }

func times(f float64) string { return number(f) + " ×" }

func printRows(w io.Writer, rows []row) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.What, r.Ours, r.Theirs, r.Ratio, r.Bar, r.holds())
	}
	t.Flush()
}

func writeReport(path string, results []result, took time.Duration) error {
	machine, err := describeMachine()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Benchmarks

Written by `+"`make bench`"+`, which repeats everything on this page in about %d minutes. Ours is the multicluster
plugin; in-tree is the kubernetes plugin of CoreDNS %s with its option multicluster. Both run on the same data, in
turns, and in the same binary if nothing else is said. Numbers are medians. A ratio can be the median of the rounds' ratios, which is not that
of the two numbers. A bar that does not hold is marked.

Machine: %s.
`, max(1, int(took.Round(time.Minute).Minutes())), coremain.CoreVersion, machine)
	for _, r := range results {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", r.title, wrap(r.about))
		fmt.Fprintf(&b, "| what | %s | %s | ratio | bar | holds |\n", r.columns[0], r.columns[1])
		b.WriteString("| --- | --- | --- | --- | --- | --- |\n")
		for _, row := range r.rows {
			fmt.Fprintf(
				&b,
				"| %s | %s | %s | %s | %s | %s |\n",
				row.What,
				row.Ours,
				row.Theirs,
				row.Ratio,
				row.Bar,
				row.holds(),
			)
		}
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// wrap breaks text into lines.
func wrap(text string) string {
	const width = 118
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

func describeMachine() (string, error) {
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	_, model, _ := strings.Cut(string(cpuinfo), "model name\t: ")
	model, _, _ = strings.Cut(model, "\n")
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-")
	dnsperf, _ := exec.Command("dnsperf", "-h").CombinedOutput() // its exit status says nothing
	lines := strings.Split(string(dnsperf), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Version ") })
	tool := ""
	if at >= 0 {
		tool = ", dnsperf " + strings.TrimPrefix(lines[at], "Version ")
	}
	return fmt.Sprintf("%d × %s, Linux %s, %s%s", runtime.NumCPU(), model, version, runtime.Version(), tool), nil
}

// pairs is the median of what was measured in turn, the first through the second.
func pairs(first, second []float64) float64 {
	var ratios []float64
	for i := range first {
		ratios = append(ratios, first[i]/second[i])
	}
	return median(ratios)
}

// median of values, which it sorts.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// percentile p of values, which it sorts.
func percentile(values []float64, p float64) float64 {
	slices.Sort(values)
	return values[min(int(p*float64(len(values))), len(values)-1)]
}
