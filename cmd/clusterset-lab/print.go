package main

import (
	"fmt"
	"os"
	"strings"
)

var bold, plain = style()

// style is how a terminal shows titles.
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

// remark says why a question is asked.
func remark(s string) { fmt.Printf("    # %s\n", s) }

// command is what a user would type.
func command(format string, args ...any) { fmt.Printf("    $ "+format+"\n", args...) }

// text is what comes of it.
func text(format string, args ...any) {
	for _, line := range strings.Split(strings.TrimRight(fmt.Sprintf(format, args...), "\n"), "\n") {
		fmt.Println("      " + strings.TrimRight(line, " "))
	}
}
