// Package gobuild runs builds of Go programs and shows how far they are. It knows nothing of what is built.
package gobuild

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Build is a go build with flags and packages, Args, in the folder Dir. Env comes beside this process's environment.
type Build struct {
	Dir       string
	Env, Args []string
}

// Run runs builds. It writes to standard error how many packages of all of them are compiled and how long the rest
// takes. Its error has what go printed.
func Run(ctx context.Context, builds ...Build) error {
	return run(ctx, newScreen(os.Stderr), builds)
}

func run(ctx context.Context, out *screen, builds []Build) error {
	defer out.end()
	p := progress{todo: map[string]int64{}, began: time.Now()}
	for _, b := range builds {
		if err := b.stale(ctx, out, p.todo); err != nil {
			return err
		}
	}
	for _, size := range p.todo {
		p.all += size
	}
	// One compiles after the other, so that what two of them need is compiled once. Each links while the next compiles.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(builds))
	var links sync.WaitGroup
	defer links.Wait()
	for i, b := range builds {
		compile := append([]string{"list", "-export", "-deps", "-v", "-f", ""}, withoutOutput(b.Args)...)
		err := b.command(ctx, compile, nil, func(line string) bool {
			if !p.compiles(line) {
				return false
			}
			out.show(p.String())
			return true
		})
		if err != nil {
			cancel() // the links
			return err
		}
		links.Go(func() {
			errs[i] = b.command(ctx, append([]string{"build"}, b.Args...), nil, func(string) bool { return false })
		})
	}
	links.Wait()
	return errors.Join(errs...)
}

// stale adds to todo the packages that have to be compiled, with the size of their sources in bytes. Modules are
// downloaded first.
func (b Build) stale(ctx context.Context, out *screen, todo map[string]int64) error {
	var listed bytes.Buffer
	modules := 0
	// A template, since -json with some of the fields forgets embedded files, and then everything is stale.
	const each = `{{if .Stale}}{{.ImportPath}}|{{.Dir}}|{{join .GoFiles "|"}}|{{join .SFiles "|"}}{{end}}`
	list := append([]string{"list", "-deps", "-f", each}, withoutOutput(b.Args)...)
	err := b.command(ctx, list, &listed, func(line string) bool {
		if !strings.HasPrefix(line, "go: downloading ") {
			return false
		}
		modules++
		out.show(fmt.Sprintf("%d modules downloaded", modules))
		return true
	})
	if err != nil {
		return err
	}
	for line := range strings.Lines(listed.String()) {
		p := strings.Split(strings.TrimSpace(line), "|")
		if len(p) < 2 {
			continue
		}
		todo[p[0]] = 1000 // what any package costs
		for _, name := range p[2:] {
			if info, err := os.Stat(filepath.Join(p[1], name)); err == nil && !info.IsDir() {
				todo[p[0]] += info.Size()
			}
		}
	}
	return nil
}

// withoutOutput removes -o, which go list does not have.
func withoutOutput(args []string) (rest []string) {
	for i := 0; i < len(args); i++ {
		if args[i] == "-o" {
			i++
			continue
		}
		rest = append(rest, args[i])
	}
	return rest
}

// command runs go. Lines of standard error that take does not accept become the error's text.
func (b Build) command(ctx context.Context, args []string, out io.Writer, take func(line string) bool) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout = b.Dir, out
	cmd.Env = append(append(os.Environ(), "GOGC="+collect()), b.Env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the compilers end with it
	cmd.WaitDelay = 10 * time.Second
	said, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var rest strings.Builder
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !take(lines.Text()) {
			rest.WriteString(lines.Text() + "\n")
		}
	}
	if err := errors.Join(ctx.Err(), cmd.Wait()); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, rest.String())
	}
	return nil
}

// collect is how often the compiler collects garbage. Half as often as by default takes a tenth off a build.
func collect() string {
	if own := os.Getenv("GOGC"); own != "" {
		return own
	}
	return "200"
}

// progress is how far a build is.
type progress struct {
	todo      map[string]int64 // sizes of packages that are not begun yet
	n         int              // packages begun
	all, done int64            // sizes
	began     time.Time
}

// compiles counts a package that go build -v names, and returns whether line is one.
func (p *progress) compiles(line string) bool {
	size, ok := p.todo[line]
	if ok {
		delete(p.todo, line)
		p.n++
		p.done += size
	}
	return ok
}

// String tells packages and the time left, which is proportional to the size of the sources that are left.
func (p *progress) String() string {
	text := fmt.Sprintf("%d of %d packages", p.n, p.n+len(p.todo))
	took := time.Since(p.began)
	if p.done*20 < p.all || took < 5*time.Second {
		return text
	}
	left := time.Duration(float64(took) * float64(p.all-p.done) / float64(p.done))
	return fmt.Sprintf("%s, about %v left, then linking", text, left.Round(5*time.Second))
}

// screen shows a line that changes: in place on a terminal, else as a new line every while.
type screen struct {
	out      io.Writer
	terminal bool
	shown    time.Time
	open     bool // the last line has no end yet
}

func newScreen(f *os.File) *screen {
	info, err := f.Stat()
	return &screen{out: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, shown: time.Now()}
}

// show replaces the line, at most every 200 ms on a terminal and every 15 s elsewhere.
func (s *screen) show(line string) {
	every, begin, end := 15*time.Second, "  ", "\n"
	if s.terminal {
		every, begin, end = 200*time.Millisecond, "\r\033[K  ", ""
	}
	if time.Since(s.shown) < every {
		return
	}
	s.shown, s.open = time.Now(), s.terminal
	fmt.Fprint(s.out, begin+line+end)
}

// end clears the line that a terminal shows.
func (s *screen) end() {
	if s.open {
		fmt.Fprint(s.out, "\r\033[K")
	}
}
