package report

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/fatih/color"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Table writes a heading and aligned rows below it, or nothing without rows. columns are their titles, if they have
// any.
func Table(out io.Writer, heading string, columns []string, rows [][]string) {
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
			r[i] = Printable(cell)
		}
		fmt.Fprintln(w, "  "+strings.Join(r, "\t"))
	}
	_ = w.Flush() // to memory
	fmt.Fprintf(out, "\n%s\n", heading)
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(out, strings.TrimRight(line, " \n"))
	}
}

// Note writes a line, and below it what to do.
func Note(out io.Writer, mark, what, remedy string) {
	fmt.Fprintf(out, "%s %s\n", Paint(out, mark, mark), Printable(what))
	if remedy != "" {
		fmt.Fprintf(out, "  → %s\n", Printable(remedy))
	}
}

var colours = map[string]*color.Color{
	"x": color.New(color.FgRed), "!": color.New(color.FgYellow), "✓": color.New(color.FgGreen),
}

// Paint returns text in the colour of a mark, if it is for a terminal and the user has not set NO_COLOR.
func Paint(out io.Writer, mark, text string) string {
	if c := colours[mark]; c != nil && out == os.Stdout {
		return c.Sprint(text) // which knows whether that is a terminal
	}
	return text
}

// Age is a duration as kubectl prints it.
func Age(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// Printable escapes control characters and line breaks as Go does: other clusters write much of what is shown.
func Printable(s string) string {
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

// Few is a list of at most three, and how many more there are.
func Few(all []string) string {
	if more := len(all) - 3; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:3], ", "), more)
	}
	return strings.Join(all, ", ")
}

// Number is a number of things.
func Number(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
