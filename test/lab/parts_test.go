package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const corefile = `.:DNS_PORT {
	bind 127.0.0.1
	errors
	ready READY_ADDR
	prometheus METRICS_ADDR
	template IN TXT {
		answer "{{ .Name }} 60 IN TXT one"
	}
}`

func TestDNSReloadsOrSaysWhyNot(t *testing.T) {
	bin, err := Find(t.Context())
	must(t, err)
	d, err := StartDNS(t.Context(), bin, coredns(t), corefile)
	must(t, err)
	t.Cleanup(d.Stop)
	ask := func(want string) {
		t.Helper()
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, d.Addr())
		}}
		if got, err := r.LookupTXT(t.Context(), "a.example."); err != nil || strings.Join(got, " ") != want {
			t.Errorf("a.example. TXT is %v %v, want %s", got, err, want)
		}
	}
	ask("one")
	if !d.Ready() {
		t.Error("not ready")
	}
	// Not a count of requests: CoreDNS counts one after it has answered.
	if text, err := d.Metrics(); err != nil || !strings.Contains(text, "coredns_build_info{") {
		t.Errorf("metrics: %v %s", err, text)
	}
	must(t, d.Reload(t.Context(), strings.ReplaceAll(corefile, "one", "two")))
	ask("two")
	for range 2 { // the second time there is an older complaint in the log
		if err := d.Reload(
			t.Context(),
			".:DNS_PORT {\n nonsense\n}",
		); err == nil ||
			!strings.Contains(err.Error(), "nonsense") {
			t.Errorf("the error of a Corefile that cannot be is %v", err)
		}
		ask("two")
	}
	d.Kill()
	if d.Running() || d.Log() == "" {
		t.Error("killed, it runs or has lost its log")
	}
	if _, err := StartDNS(
		t.Context(),
		bin,
		coredns(t),
		".:DNS_PORT {\n nonsense\n}",
	); err == nil ||
		!strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error of a start with a Corefile that cannot be is %v", err)
	}
}

// echo answers what it is told.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func TestForwarderPassesCutsHangsAndLoses(t *testing.T) {
	f, err := newForwarder(echo(t))
	must(t, err)
	t.Cleanup(f.Close)
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", f.Addr())
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	say := func(c net.Conn, limit time.Duration) error {
		must(t, c.SetDeadline(time.Now().Add(limit)))
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 5))
		return err
	}
	reset := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, want a reset", what, err)
		}
	}
	silent := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v, want silence", what, err)
		}
	}
	open := dial()
	must(t, say(open, ordinary))
	f.Cut()
	reset("cut, open connection", say(open, ordinary))
	fresh, err := net.Dial("tcp", f.Addr())
	if err == nil {
		defer fresh.Close()
		err = say(fresh, ordinary)
	}
	reset("cut, new connection", err)
	f.Restore()
	open = dial()
	must(t, say(open, ordinary))
	f.Hang()
	silent("hanging, open connection", say(open, 300*time.Millisecond))
	fresh = dial()
	silent("hanging, new connection", say(fresh, 300*time.Millisecond))
	f.Restore()
	reset("restored, connection that hung", say(open, ordinary))
	reset("restored, connection made while hanging", say(fresh, ordinary))
	open = dial()
	must(t, say(open, ordinary))
	f.Lose()
	silent("lost", say(open, 300*time.Millisecond))
	must(t, say(dial(), ordinary))
}

func TestPortsAreGivenOnceAndOnlyWhereFreeForUDPAndTCP(t *testing.T) {
	seen := map[int]bool{}
	var all []*Port
	for range 200 {
		p, err := ReservePort()
		must(t, err)
		t.Cleanup(p.Release)
		if seen[p.Number] {
			t.Fatalf("port %d twice", p.Number)
		}
		seen[p.Number] = true
		all = append(all, p)
	}
	tcp, err := net.Listen("tcp", all[0].Addr())
	must(t, err)
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", all[1].Addr())
	must(t, err)
	defer udp.Close()
	for i, want := range []bool{false, false, true} {
		if free(all[i].Number) != want {
			t.Errorf("port %d counts as free: %v, want %v", i, !want, want)
		}
	}
}

// Require, with an apt-get that only writes down what it is told.
func TestRequireInstallsTheMissingOrNamesThePackage(t *testing.T) {
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	script := func(name, text string) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	script("env", `shift; exec "$@"`)
	script("sudo", `shift; exec "$@"`)
	script("present", "")
	t.Setenv("PATH", dir)
	updated = false

	script("apt-get", "echo noise; echo 'E: no network'; exit 100")
	err := Require("present", "dig")
	if err == nil || !strings.Contains(err.Error(), "bind9-dnsutils") ||
		!strings.Contains(err.Error(), "E: no network") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("without network the error is %v", err)
	}
	script("apt-get", fmt.Sprintf(`echo "$@" >> %s`, said))
	must(t, Require("present", "dig", "dnsperf"))
	must(t, Require("dnsperf"))
	got, err := os.ReadFile(said)
	must(t, err)
	const install = "-qq install -y --no-install-recommends "
	if want := "-qq update\n" + install + "bind9-dnsutils dnsperf\n" + install + "dnsperf\n"; string(got) != want {
		t.Errorf("apt-get was told\n%s, want\n%s", got, want)
	}
	if err := Require("unheard-of"); err == nil {
		t.Error("a program of an unknown package is there")
	}
}

// TestKubeconfigsAreAlwaysWhole: tests that share a control plane ask for the same account's while programs of others
// start.
func TestKubeconfigsAreAlwaysWhole(t *testing.T) {
	c := &ControlPlane{dir: t.TempDir()}
	file := filepath.Join(c.dir, "some.kubeconfig")
	token := strings.Repeat("t", 1<<20)
	must(t, c.writeKubeconfig(file, "127.0.0.1:1", token))
	whole, err := os.ReadFile(file)
	must(t, err)
	done := make(chan error)
	go func() {
		var errs []error
		for range 100 {
			errs = append(errs, c.writeKubeconfig(file, "127.0.0.1:1", token))
		}
		done <- errors.Join(errs...)
	}()
	for {
		select {
		case err := <-done:
			must(t, err)
			return
		default:
		}
		got, err := os.ReadFile(file)
		must(t, err)
		if len(got) != len(whole) {
			t.Fatalf("%d octets of %d", len(got), len(whole))
		}
	}
}
