package lab

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace without a name. It lives as long as this process holds it or a program runs in it.
// Its interfaces and nftables go with it: however this process ends, nothing is left.
type Namespace struct{ file *os.File }

// NewNamespace makes one with loopback up. It forwards, reports every packet that it refuses, and uses IPv6 addresses
// at once: they are unique, because the caller gives them all.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("a new network namespace: %w", err)
		}
		var err error
		if n.file, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		for name, value := range map[string]string{
			"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
			"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0",
			"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
			"ipv6/ip_nonlocal_bind": "1", // to addresses that are local by a route only, as in IPv4
			"ipv4/icmp_ratelimit":   "0", "ipv6/icmp/ratelimit": "0",
		} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
				return err
			}
		}
		return ip("link set lo up")
	})
	return n, err
}

// Do calls f on a thread that is in the namespace. Sockets that f itself opens, not a goroutine of its, belong to the
// namespace for good, and so do programs that it starts.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("into a network namespace: %w", err)
		}
		return f()
	})
}

// onThread calls f on a thread that then returns to the network namespace it came from, or else ends.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		err = f()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			if err == nil {
				err = fmt.Errorf("back to the first network namespace: %w", back)
			}
			done <- err // and the thread ends, still locked
			return
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// Path names the namespace to other programs, while this process lives.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// IP runs ip(8) commands in the namespace.
func (n *Namespace) IP(commands ...string) error {
	return n.Do(func() error { return ip(commands...) })
}

// Close gives it up. It goes when nothing runs in it any more.
func (n *Namespace) Close() {
	if n != nil && n.file != nil {
		n.file.Close()
	}
}

func ip(commands ...string) error {
	batch := strings.Join(commands, "\n")
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip -batch -: %w: %s\n%s", err, out, batch)
	}
	return nil
}
