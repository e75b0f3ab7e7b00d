package sim

import (
	"fmt"
	"strings"
	"time"
)

// remembered is how many lines of the trace are kept.
const remembered = 300

// trace tells what happened, for a person who looks for the cause of a failure.
type trace struct {
	lines []string
	all   func(string) // also told of each line, if there is one
}

func (w *World) note(format string, args ...any) {
	at := w.now.Sub(start).Truncate(time.Millisecond)
	line := fmt.Sprintf("%6d %12s  %s%s", w.steps, at, strings.Repeat("  ", w.depth), fmt.Sprintf(format, args...))
	if w.trace.all != nil {
		w.trace.all(line)
	}
	if len(w.trace.lines) >= 2*remembered {
		w.trace.lines = append(w.trace.lines[:0], w.trace.lines[remembered:]...)
	}
	w.trace.lines = append(w.trace.lines, line)
}

func (t *trace) String() string {
	return strings.Join(t.lines[max(0, len(t.lines)-remembered):], "\n")
}

// Violation is an invariant that did not hold.
type Violation struct {
	Seed  uint64
	What  string
	Trace string
}

func (v *Violation) Error() string {
	return fmt.Sprintf(
		"seed %d: %s\n\nstep, time, what happened (newest last):\n%s\n\nseed %d: %s\nreplay: go test ./test/sim -run TestSeeds -seed %d -v",
		v.Seed,
		v.What,
		v.Trace,
		v.Seed,
		v.What,
		v.Seed,
	)
}

// fail ends the run.
func (w *World) fail(format string, args ...any) {
	panic(&Violation{Seed: w.Seed, What: fmt.Sprintf(format, args...)})
}
