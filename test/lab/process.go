package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one program of the laboratory. It runs under the watchdog, which ends it when this process ends, however
// that happens.
type process struct {
	name   string
	leash  io.Closer // the watchdog ends the program when this closes, with this process at the latest
	pid    int       // of the program
	log    string    // path
	exited chan struct{}
}

// spawn starts a program, its output appended to the file log. remove are folders that the watchdog deletes at the end.
func spawn(
	b *Binaries,
	name, log string,
	remove []string,
	env []string,
	program string,
	args ...string,
) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	full := append([]string{strings.Join(remove, ":"), program}, args...)
	cmd := exec.Command(b.Watchdog, full...)
	cmd.Stderr = out
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C reaches this process, which then ends its own
	leash, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	told, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &process{name: name, leash: leash, log: log, exited: make(chan struct{})}
	line := make([]byte, 32)
	n, _ := told.Read(line) // nothing, if it did not start
	p.pid, err = strconv.Atoi(strings.TrimSpace(string(line[:n])))
	go func() {
		_ = cmd.Wait() // how it ended is in the log
		close(p.exited)
	}()
	if err != nil {
		<-p.exited
		return nil, fmt.Errorf("%s did not start:\n%s", name, p.tail())
	}
	return p, nil
}

// signal the program itself.
func (p *process) signal(s syscall.Signal) error {
	if !p.running() {
		return fmt.Errorf("%s has ended:\n%s", p.name, p.tail())
	}
	return syscall.Kill(p.pid, s)
}

// running tells whether the program has not ended.
func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// stop asks the program to end, and makes it after grace.
func (p *process) stop(grace time.Duration) {
	if p == nil {
		return
	}
	_ = p.signal(syscall.SIGCONT) // a program that has ended needs no signal
	_ = p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(grace):
	}
	p.kill()
}

// kill ends the program at once. Its files stay.
func (p *process) kill() {
	if p == nil {
		return
	}
	if p.running() {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	}
	<-p.exited
}

// crash is what Go's runtime writes last.
var crash = regexp.MustCompile(`(?ms)^(panic|fatal error): .{0,1000}`)

// mustNotCrash ends the tests that run, with what a program wrote that Go's runtime ended: a restart would hide it.
func (p *process) mustNotCrash() {
	log, _ := os.ReadFile(p.log) // it goes with the program's owner
	if text := crash.Find(log); text != nil {
		panic(fmt.Sprintf("%s crashed:\n%s", p.name, text))
	}
}

// tail is the end of the log.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(b) > 4000 {
		b = b[len(b)-4000:]
	}
	return string(b)
}

// size is how much the program has written to its log.
func (p *process) size() int64 {
	info, err := os.Stat(p.log)
	if err != nil {
		return 0
	}
	return info.Size()
}

// longest is how long until waits for a program that writes all the time.
const longest = 10 * time.Minute

// until polls until ok, the program ends, or it has written nothing for the limit: on a machine that many share, a
// start takes as long as it takes.
func (p *process) until(ctx context.Context, what string, limit time.Duration, ok func() bool) error {
	began := time.Now()
	wrote, size := began, p.size()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if now := p.size(); now != size {
			wrote, size = time.Now(), now
		}
		if time.Since(wrote) > limit || time.Since(began) > longest {
			return fmt.Errorf("%s was not %s after %v:\n%s", p.name, what, time.Since(began), p.tail())
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("%s ended before it was %s:\n%s", p.name, what, p.tail())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s was not %s", p.name, what), ctx.Err())
		}
	}
	return nil
}
