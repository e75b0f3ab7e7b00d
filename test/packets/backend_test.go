package packets

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// answerLimit is far more than an answer takes. A packet that nobody takes is refused, not dropped, on these
// networks: only then does
// an attempt last that long.
const answerLimit = 2 * time.Minute

// listen makes the pod's TCP listener on a port again, after hangUp.
func (p *pod) listen(port int) error {
	return p.Do(func() error {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
		if err != nil {
			return err
		}
		p.listeners[port] = l
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go answer(c, fmt.Appendf(nil, "%s:%d\n", p.name, port))
			}
		}()
		return nil
	})
}

// hangUp closes the listener, as when the program has ended: from now on connections are refused.
func (p *pod) hangUp(port int) error { return p.listeners[port].Close() }

// serve answers every line of a TCP connection, and every UDP datagram, to a port of the pod with "NAME:PORT",
// until the pod is closed.
func (p *pod) serve(port int) error {
	said := fmt.Appendf(nil, "%s:%d\n", p.name, port)
	if err := p.listen(port); err != nil {
		return err
	}
	return p.Do(func() error {
		u, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
		if err != nil {
			return err
		}
		p.servers = append(p.servers, u)
		go func() {
			asked := make([]byte, 64)
			for {
				_, from, err := u.ReadFromUDPAddrPort(asked)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				_, _ = u.WriteToUDPAddrPort(said, from) // who asked and got nothing tells
			}
		}()
		return nil
	})
}

func answer(c net.Conn, said []byte) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if _, err := c.Write(said); err != nil {
			return
		}
	}
}

// flow is a TCP connection, or the datagrams of one UDP socket.
type flow struct {
	net.Conn
	lines *bufio.Reader
	limit time.Duration // of an answer

	socket int // a second descriptor, while the connection is made
	port   int // that the pod connects from
}

// open starts a flow from the pod to an address; from is one of the pod's, or none in particular if it is zero.
func (p *pod) open(protocol string, from netip.Addr, to netip.AddrPort) (*flow, error) {
	return p.openWithin(answerLimit, protocol, from, to)
}

func (p *pod) openWithin(limit time.Duration, protocol string, from netip.Addr, to netip.AddrPort) (*flow, error) {
	f := &flow{limit: limit}
	err := p.Do(func() (err error) {
		d := net.Dialer{Timeout: limit, Control: f.keep}
		switch {
		case !from.IsValid():
		case protocol == "tcp":
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		default:
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
		f.Conn, err = d.Dial(protocol, to.String())
		return err
	})
	f.port = sourcePort(f.socket)
	if err != nil {
		return f, err
	}
	f.lines = bufio.NewReader(f)
	return f, nil
}

// keep keeps a second descriptor of the socket, because a dialer that fails does not say which port it came from.
func (f *flow) keep(_, _ string, c syscall.RawConn) (err error) {
	if failed := c.Control(func(fd uintptr) { f.socket, err = syscall.Dup(int(fd)) }); err == nil {
		err = failed
	}
	return err
}

// sourcePort returns the port of a socket, which it closes; 0 if there is none.
func sourcePort(socket int) int {
	if socket == 0 {
		return 0
	}
	defer syscall.Close(socket)
	switch from, _ := syscall.Getsockname(socket); a := from.(type) {
	case *syscall.SockaddrInet4:
		return a.Port
	case *syscall.SockaddrInet6:
		return a.Port
	}
	return 0
}

// ask sends one line or datagram, and returns the answer: which backend, and which port of it.
func (f *flow) ask() (string, error) {
	if err := f.SetDeadline(time.Now().Add(f.limit)); err != nil {
		return "", err
	}
	if _, err := f.Write([]byte("who?\n")); err != nil {
		return "", err
	}
	line, err := f.lines.ReadString('\n')
	if err != nil {
		return "", err
	}
	return line[:len(line)-1], nil
}

// ask opens a flow for one question. A port that is refused is the error syscall.ECONNREFUSED.
func (p *pod) ask(protocol string, from netip.Addr, to netip.AddrPort) (string, error) {
	f, err := p.open(protocol, from, to)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.ask()
}

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
