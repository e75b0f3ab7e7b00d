package lab

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// ports are reserved by a lock on a file each, so that laboratories side by side, of any process, do not take the same.
// They lie below the range from which the kernel gives ports to connections.
const (
	firstPort = 20000
	lastPort  = 32000
)

// Port is a reserved port of the loopback interface, for UDP and TCP.
type Port struct {
	Number int
	lock   *os.File
}

// ReservePort finds a free port and keeps it until Release or the end of the process.
func ReservePort() (*Port, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("clusterset-lab-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for range 2000 {
		n := firstPort + rand.IntN(lastPort-firstPort)
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(n)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && free(n) {
			return &Port{n, f}, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("no free port of loopback between %d and %d", firstPort, lastPort)
}

// Release gives the port back.
func (p *Port) Release() {
	if p != nil && p.lock != nil {
		p.lock.Close()
		p.lock = nil
	}
}

// Addr is the port on 127.0.0.1.
func (p *Port) Addr() string { return fmt.Sprintf("127.0.0.1:%d", p.Number) }

func free(n int) bool {
	addr := fmt.Sprintf("127.0.0.1:%d", n)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	l.Close()
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	u.Close()
	return true
}
