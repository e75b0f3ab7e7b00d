package lab

import (
	"net"
	"sync"
	"sync/atomic"
)

// Forwarder is a way to an API server that can be cut: what goes through it can be dropped or left hanging while others
// still reach the server.
type Forwarder struct {
	bytes    atomic.Int64
	listener net.Listener

	mu     sync.Mutex
	target string
	mode   mode
	conns  map[net.Conn]bool // whether anything passes
	wake   chan struct{}     // closed when mode leaves hanging
}

type mode int

const (
	passing mode = iota
	refusing
	hanging
)

func newForwarder(target string) (*Forwarder, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &Forwarder{listener: l, target: target, conns: make(map[net.Conn]bool), wake: make(chan struct{})}
	go f.serve()
	return f, nil
}

// Addr is where clients connect.
func (f *Forwarder) Addr() string { return f.listener.Addr().String() }

// Bytes is how many have passed so far, both ways.
func (f *Forwarder) Bytes() int64 { return f.bytes.Load() }

// Cut resets all connections, and every new one.
func (f *Forwarder) Cut() { f.set(refusing) }

// Hang lets nothing through any more, without a word to anyone.
func (f *Forwarder) Hang() { f.set(hanging) }

// Lose lets nothing through connections that are open, as a load balancer does that has forgotten them. New ones work.
func (f *Forwarder) Lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		f.conns[c] = false
	}
}

// Restore lets everything through. Connections that hung are reset.
func (f *Forwarder) Restore() { f.set(passing) }

// Target is where it leads.
func (f *Forwarder) Target() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.target
}

// Divert resets all connections, and leads new ones to another address from now on.
func (f *Forwarder) Divert(target string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = target
	for c := range f.conns {
		reset(c)
	}
	clear(f.conns)
}

// Close ends it.
func (f *Forwarder) Close() {
	f.listener.Close()
	f.set(refusing)
}

func (f *Forwarder) set(m mode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.mode
	f.mode = m
	if m == refusing || was == hanging {
		for c := range f.conns {
			reset(c)
		}
		clear(f.conns)
	}
	if was == hanging && m != hanging {
		close(f.wake)
		f.wake = make(chan struct{})
	}
}

// reset ends a connection as a lost peer does, without a goodbye.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0) // at worst it ends politely
	c.Close()
}

func (f *Forwarder) serve() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		refuse := f.mode == refusing
		if !refuse {
			f.conns[c] = true
		}
		f.mu.Unlock()
		if refuse {
			reset(c)
			continue
		}
		go f.forward(c)
	}
}

func (f *Forwarder) forward(c net.Conn) {
	f.mu.Lock()
	target := f.target
	f.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		c.Close()
		return
	}
	f.mu.Lock()
	f.conns[server] = true
	f.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, server}, {server, c}} {
		both.Add(1)
		go func() {
			defer both.Done()
			f.copy(way[0], way[1])
			c.Close()
			server.Close()
		}()
	}
	both.Wait()
	f.mu.Lock()
	delete(f.conns, c)
	delete(f.conns, server)
	f.mu.Unlock()
}

func (f *Forwarder) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		f.mu.Lock()
		mode, wake := f.mode, f.wake
		passes, open := f.conns[from]
		f.mu.Unlock()
		if open && !passes && err == nil {
			continue
		}
		if mode == hanging {
			<-wake
			return
		}
		f.bytes.Add(int64(n))
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
