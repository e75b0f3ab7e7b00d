package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// script is what the demo types: "## TITLE", "# WHY", "$ COMMAND" for a shell, and "> LINE" of the answer that a dig
// must get within limit, in any order. "? COMMAND" may exit with 1. dns, page, kill and restart are of the stage.
//
//go:embed demo.txt
var script string

// withdrawal begins what KEEP leaves out of the script.
const withdrawal = "\n## Withdraw "

// limit is how long the demo waits for an answer.
const limit = time.Minute

// image stands for the image that a user builds. Nothing pulls it: a Pod is bin/clusterset-controller as a process.
const image = "registry.example/clusterset-controller:dev"

// play runs a script, and fails at the first wrong answer.
func (s *stage) play(ctx context.Context, script string) (err error) {
	lines := strings.Split(strings.ReplaceAll(script, "IMAGE", image), "\n")
	for i := 0; i < len(lines) && err == nil; i++ {
		mark, rest, _ := strings.Cut(lines[i], " ")
		switch {
		case mark == "##":
			title(rest)
		case mark == "#":
			fmt.Println("    # " + rest)
		case mark == "$" && strings.HasPrefix(rest, "dig "):
			var want []string
			for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], "> "); i++ {
				want = append(want, lines[i+1][2:])
			}
			err = s.ask(ctx, strings.Fields(rest), want)
		case mark == "$" || mark == "?":
			err = s.typed(ctx, rest, mark == "?")
		case mark == "dns":
			err = s.serve(ctx)
		case mark == "page":
			err = s.typed(ctx, "kubectl clusterset status --context=hub -o html > bin/clusterset.html", false)
		case mark == "kill":
			s.planes["hub"].KillAPIServer()
			s.planes["west"].KillAPIServer()
		case mark == "restart":
			began := time.Now()
			err = errors.Join(s.planes["hub"].StartAPIServer(ctx), s.planes["west"].StartAPIServer(ctx))
			text("restarted after %.1f s", time.Since(began).Seconds())
		case mark != "":
			err = fmt.Errorf("demo.txt has the line %q", lines[i])
		}
	}
	return err
}

// typed runs a command in a shell and prints its output while it runs.
func (s *stage) typed(ctx context.Context, command string, mayFail bool) error {
	fmt.Println("    $ " + command)
	out := &indented{}
	cmd := s.sh(ctx, command)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	out.end()
	if exit := (*exec.ExitError)(nil); mayFail && errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

func (s *stage) sh(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Env = s.root, append(os.Environ(), s.shell()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // Ctrl-C is for this process
	return cmd
}

// ask has dig ask a member, as in "dig @west NAME TYPE", until the answer is right, and prints it.
func (s *stage) ask(ctx context.Context, words, want []string) error {
	member := strings.TrimPrefix(words[1], "@")
	host, port, _ := net.SplitHostPort(s.dns[member].Addr()) // the laboratory's own
	shown := fmt.Sprintf("dig @%s -p %s %s", host, port, strings.Join(words[2:], " "))
	fmt.Printf("    $ %s   # in %s\n", shown, member)
	args := append(strings.Fields(shown)[1:], "+nocookie", "+noall", "+comments", "+answer")
	for began, tries := time.Now(), 0; ; tries++ {
		out, err := exec.CommandContext(ctx, "dig", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", shown, err, out)
		}
		expected, err := s.filled(ctx, want)
		if err != nil && ctx.Err() != nil {
			return err
		}
		switch got := answer(string(out), words[3]); {
		case err == nil && matches(got, expected):
			text("%s", strings.Join(got, "\n"))
			if tries > 0 {
				text("(after %d ms)", time.Since(began).Milliseconds())
			}
			return nil
		case time.Since(began) > limit:
			return fmt.Errorf("after %v, the answer to %s is %q, want %q", limit, shown, got, expected)
		}
	}
}

// filled returns lines with the output of the commands in them.
func (s *stage) filled(ctx context.Context, lines []string) (out []string, err error) {
	for _, line := range lines {
		if strings.HasPrefix(line, "$(") {
			text, err := s.sh(ctx, "echo "+line).Output()
			if err != nil {
				return nil, err
			}
			line = strings.TrimSpace(string(text))
		}
		out = append(out, line)
	}
	return out, nil
}

// matches reports whether an answer has exactly these lines, which may have a * each.
func matches(got, want []string) bool {
	want = slices.Sorted(slices.Values(want))
	return slices.EqualFunc(got, want, func(g, w string) bool {
		ok, _ := path.Match(w, g)
		return ok
	})
}

// answer returns the data of the answer section in dig's output, sorted because loadbalance shuffles, or the status if
// that is not NOERROR.
func answer(out, qtype string) (data []string) {
	for line := range strings.Lines(out) {
		if _, rest, ok := strings.Cut(line, "status: "); ok {
			if status, _, _ := strings.Cut(rest, ","); status != "NOERROR" {
				data = append(data, status)
			}
		} else if f := strings.Fields(line); len(f) > 4 && f[3] == qtype && !strings.HasPrefix(line, ";") {
			data = append(data, strings.Join(f[4:], " "))
		}
	}
	slices.Sort(data)
	return data
}

// title begins a step, bold on a terminal.
func title(s string) {
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" {
		s = "\033[1m" + s + "\033[0m"
	}
	fmt.Println("\n" + s)
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
