package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

var bold, plain = style()

// style returns how a terminal shows titles.
func style() (on, off string) {
	if info, err := os.Stdout.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 || os.Getenv("NO_COLOR") != "" {
		return "", ""
	}
	return "\033[1m", "\033[0m"
}

// title begins a step.
func title(format string, args ...any) {
	fmt.Printf("\n%s%s%s\n", bold, fmt.Sprintf(format, args...), plain)
}

// remark prints why a command follows.
func remark(s string) { fmt.Printf("    # %s\n", s) }

// command prints what a user would type.
func command(format string, args ...any) { fmt.Printf("    $ "+format+"\n", args...) }

// quoted returns args as a shell reads them. They must not have single quotes.
func quoted(args []string) string {
	out := slices.Clone(args)
	for i, a := range out {
		if strings.ContainsAny(a, ` "$&|;<>()[]{}*?`) {
			out[i] = "'" + a + "'"
		}
	}
	return strings.Join(out, " ")
}

// text prints output.
func text(format string, args ...any) {
	for _, line := range strings.Split(strings.TrimRight(fmt.Sprintf(format, args...), "\n"), "\n") {
		fmt.Println("      " + strings.TrimRight(line, " "))
	}
}

// indented prints the output of a program while it runs.
type indented struct{ line []byte }

func (w *indented) Write(b []byte) (int, error) {
	w.line = append(w.line, b...)
	if end := bytes.LastIndexByte(w.line, '\n'); end >= 0 {
		text("%s", w.line[:end])
		w.line = append([]byte(nil), w.line[end+1:]...)
	}
	return len(b), nil
}

// end prints an incomplete last line.
func (w *indented) end() {
	if len(w.line) > 0 {
		text("%s", w.line)
	}
}
