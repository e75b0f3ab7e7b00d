// Package table writes what people read: headings, aligned columns, ages.
package table

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Write writes a heading and the rows below it, indented and aligned, the first row being the columns' names if columns is given.
// Nothing where there is no row.
func Write(out io.Writer, heading string, columns []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	if len(columns) > 0 {
		fmt.Fprintln(w, "  "+strings.Join(columns, "\t"))
	}
	for _, r := range rows {
		for i, cell := range r {
			r[i] = Plain(cell)
		}
		fmt.Fprintln(w, "  "+strings.Join(r, "\t"))
	}
	_ = w.Flush() // to memory
	fmt.Fprintf(out, "\n%s\n", heading)
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(out, strings.TrimRight(line, " \n"))
	}
}

// Age is a duration as kubectl prints it.
func Age(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// Note writes what is wrong and what to do about it.
func Note(out io.Writer, mark, what, remedy string) {
	fmt.Fprintf(out, "%s %s\n", mark, Plain(what))
	if remedy != "" {
		fmt.Fprintf(out, "  → %s\n", Plain(remedy))
	}
}

// Plain writes what a terminal would obey, or take for another line, as Go writes it: much of what is shown is other clusters' word.
func Plain(s string) string {
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if hidden(r) {
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }

// Count is a number of things.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
