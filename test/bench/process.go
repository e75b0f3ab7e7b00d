package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// server is one process of the coredns binary.
type server struct {
	cmd      *exec.Cmd
	began    time.Time
	port     int
	readyURL string
	exited   chan struct{}
	log      string
}

// anyCore lets the scheduler choose.
const anyCore = -1

// serve starts the binary with the plugins as its only server block, on one core or any.
func (b *bench) serve(plugins string, core int) (*server, error) {
	return b.serveCorefile(b.bin, nil, func(port, ready int) string {
		return fmt.Sprintf(".:%d {\n\tbind 127.0.0.1\n\tready 127.0.0.1:%d\n\t%s\n}\n", port, ready, plugins)
	}, core)
}

// Programs beside the binary that is measured in other parts. make bench compiles them into bin/bench.
const (
	image      = "image"      // as make images builds it
	ungrown    = "ungrown"    // without growStacks
	unprofiled = "unprofiled" // without the profile
	plain      = "plain"      // without both
	stock      = "stock"      // CoreDNS' own main package
)

func (b *bench) program(name string) string { return filepath.Join(b.programs, name) }

// serveCorefile starts a binary with a Corefile, at a port for DNS and one for ready, on one core or any.
func (b *bench) serveCorefile(
	bin string,
	env []string,
	text func(port, ready int) string,
	core int,
) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	ready, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &server{port: port, readyURL: fmt.Sprintf("http://127.0.0.1:%d/ready", ready), exited: make(chan struct{})}
	corefile := filepath.Join(b.dir, fmt.Sprintf("Corefile.%d", port))
	s.log = corefile + ".log"
	if err := os.WriteFile(corefile, []byte(text(port, ready)), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{bin, "-conf", corefile}
	if core != anyCore {
		args = append([]string{"taskset", "-c", strconv.Itoa(core)}, args...)
	}
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = dieWithParent()
	s.began = time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // how it ended is told by who needed it
		close(s.exited)
	}()
	return s, nil
}

// dieWithParent leaves no process behind when this one is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func (s *server) stop() {
	_ = s.cmd.Process.Kill() // it may have ended before
	<-s.exited
}

// poller keeps a connection to /ready.
var poller = http.Client{Timeout: 5 * time.Second}

// ready polls /ready until it says yes.
func (s *server) ready(every time.Duration) error {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(every) {
		r, err := poller.Get(s.readyURL)
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.exited:
			log, _ := os.ReadFile(s.log) // without it the error is shorter
			return fmt.Errorf("the server ended: %s", log)
		default:
		}
		if time.Now().After(end) {
			return errors.New("the server was not ready after two minutes")
		}
	}
}

// addr of its DNS port.
func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// query asks over UDP, and again where the datagram was lost. A server may say that it is ready a little before it
// listens: in-tree's does.
func (s *server) query(r *dns.Msg) (*dns.Msg, error) {
	client := dns.Client{Timeout: 500 * time.Millisecond, UDPSize: dns.MaxMsgSize}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		m, _, err := client.Exchange(r, s.addr())
		lost := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED)
		if !lost || time.Now().After(end) {
			return m, err
		}
	}
}

// cpu is the time that the process has been given so far, in nanoseconds.
func (s *server) cpu() (float64, error) {
	const schedClock = 2 // clock_getcpuclockid(3): the clock of a process is made of its id
	var t unix.Timespec
	err := unix.ClockGettime(int32(^s.cmd.Process.Pid<<3|schedClock), &t)
	return float64(t.Nano()), err
}

// memory reads a field of /proc/PID/status that is given in KiB, in bytes.
func (s *server) memory(field string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(status), field+":")
	fields := strings.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, fmt.Errorf("no %s in the status of the process", field)
	}
	kib, err := strconv.ParseFloat(fields[0], 64)
	return kib * 1024, err
}

// forgetPeak makes VmHWM begin again at what is resident now.
func (s *server) forgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0)
}
