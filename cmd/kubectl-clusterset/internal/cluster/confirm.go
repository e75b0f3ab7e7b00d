package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// ErrDeclined says that the user did not confirm.
var ErrDeclined = report.WithRemedy(errors.New("not confirmed, and nothing was written"), "answer y, or use --yes")

// Confirm asks on out whether to go on, and returns ErrDeclined unless the answer in is yes. Without in, it does not
// ask.
func Confirm(in io.Reader, out io.Writer) error {
	if in == nil {
		return nil
	}
	fmt.Fprint(out, "\nGo on? [y/N] ")
	line, _ := bufio.NewReader(in).ReadString('\n') // nothing is no
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))) {
		return ErrDeclined
	}
	return nil
}

// Waiting returns a function that says a reason for waiting, once, if it has stood for 10 s. What passes by itself
// sooner is none that a user could act on. The first time, it says for how long it waits at most.
func (say Say) Waiting(what string, timeout time.Duration) func(why string) {
	last, said, since := "", map[string]bool{}, time.Now()
	return func(why string) {
		if why != last {
			last, since = why, time.Now()
		}
		if why == "" || said[why] || time.Since(since) < 10*time.Second {
			return
		}
		if len(said) == 0 {
			say("waiting up to %v for %s: %s", timeout, what, why)
		} else {
			say("waiting for %s: %s", what, why)
		}
		said[why] = true
	}
}
