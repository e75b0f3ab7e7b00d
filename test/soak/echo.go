package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// echoVariable makes this program one that sends back what it gets over UDP, and does nothing else, until its
// standard input ends.
const echoVariable = "SOAK_ECHO"

// echoes runs that program, if asked to, and does not return then but with an error.
func echoes() error {
	if os.Getenv(echoVariable) == "" {
		return nil
	}
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(socket.LocalAddr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // who started this has ended
		os.Exit(0)
	}()
	b := make([]byte, 512)
	for {
		n, from, err := socket.ReadFrom(b)
		if err != nil {
			return err
		}
		if _, err := socket.WriteTo(b[:n], from); err != nil {
			return err
		}
	}
}

// patience with an answer: a busy machine may take a while, and that is waited for.
const patience = 5 * time.Second

// stall is a round trip of the echo that is too long for anything but a machine that does not get round to it.
const stall = 500 * time.Millisecond

// echo is asked as often as a name is, in a process of its own, as CoreDNS is one. It tells what the machine does
// to an answer: where it
// does not come round either, a CoreDNS that says nothing is not to be blamed.
type echo struct {
	process *exec.Cmd
	input   io.Closer
	socket  net.Conn
	running sync.WaitGroup
	stop    context.CancelFunc

	mu      sync.Mutex
	took    spread
	pending time.Time // when the one was sent that has not come back; zero if there is none
	stalls  []span    // none of them overlap
}

type span struct{ from, to time.Time }

func startEcho(ctx context.Context) (_ *echo, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	e := &echo{process: exec.Command(self)}
	e.process.Env = append(os.Environ(), echoVariable+"=1")
	e.process.Stderr = os.Stderr
	if e.input, err = e.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := e.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := e.process.Start(); err != nil {
		return nil, err
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		e.socket, err = net.Dial("udp", strings.TrimSpace(address))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the echo: %w", err), e.process.Process.Kill(), e.process.Wait())
	}
	ctx, e.stop = context.WithCancel(ctx)
	e.running.Go(func() { e.keepAsking(ctx) })
	return e, nil
}

func (e *echo) end() error {
	e.stop()
	e.running.Wait()
	return errors.Join(e.socket.Close(), e.input.Close(), e.process.Wait())
}

func (e *echo) keepAsking(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := uint64(0); ctx.Err() == nil; n++ {
		sent := time.Now()
		e.mu.Lock()
		e.pending = sent
		e.mu.Unlock()
		e.exchange(n, sent.Add(patience))
		e.back(sent, time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// exchange returns when the n-th has come back, or is not waited for any more.
func (e *echo) exchange(n uint64, deadline time.Time) {
	b := binary.BigEndian.AppendUint64(nil, n)
	if e.socket.SetDeadline(deadline) != nil {
		return
	}
	if _, err := e.socket.Write(b); err != nil {
		return
	}
	for {
		if _, err := e.socket.Read(b); err != nil || binary.BigEndian.Uint64(b) == n {
			return
		}
	}
}

func (e *echo) back(sent, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pending = time.Time{}
	e.took.add(at.Sub(sent))
	if at.Sub(sent) >= stall {
		e.stalls = append(e.stalls, span{sent, at})
	}
}

// stalled is how much of a time the machine did nothing.
func (e *echo) stalled(from, to time.Time) (sum time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	stalls := e.stalls
	if now := time.Now(); !e.pending.IsZero() && now.Sub(e.pending) >= stall {
		stalls = append(stalls[:len(stalls):len(stalls)], span{e.pending, now})
	}
	for _, s := range stalls {
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(to) {
			s.to = to
		}
		sum += max(0, s.to.Sub(s.from))
	}
	return sum
}

// excuses reports whether the machine is why there was no answer: of the time that was waited it was away for more
// than half.
func (e *echo) excuses(from, to time.Time) bool {
	return to.Sub(from) >= patience && e.stalled(from, to) > to.Sub(from)/2
}

// soFar adds how long it took, and the stalls.
func (e *echo) soFar(into *counts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	into.echo.merge(&e.took)
	for _, s := range e.stalls {
		d := s.to.Sub(s.from)
		into.stalls, into.still, into.longest = into.stalls+1, into.still+d, max(into.longest, d)
	}
}
