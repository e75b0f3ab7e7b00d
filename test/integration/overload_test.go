package integration

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// crowded serves a Headless Service whose SRV answer is nearly as large as a message can be.
func crowded(t *testing.T, corefile string) *server {
	t.Helper()
	c := fixtureCluster(t)
	var addresses []string
	for i := range 900 {
		addresses = append(addresses, fmt.Sprintf("10.6.%d.%d", i/250, 1+i%250))
	}
	c.apply(t, headless("prod", "crowd")+"---\n"+slice("prod", "crowd", "cluster-a", addresses...))
	t.Cleanup(func() {
		c.kubectl(
			t,
			"",
			"-n",
			"prod",
			"delete",
			"--ignore-not-found",
			"serviceimport/crowd",
			"endpointslice/crowd-cluster-a",
		)
	})
	s := c.serve(t, corefile)
	s.waitFor(t, "crowd.prod.svc.clusterset.local.", "A")
	return s
}

// TestOverloadByUDP: far more questions than can be answered. What is too much is dropped by the kernel, at the socket;
// what is answered
// does not become less with time, and neither memory nor goroutines grow with what comes.
func TestOverloadByUDP(t *testing.T) {
	s := crowded(t, stanza)
	f := s.flood(t, 4)
	for second := range 4 {
		sent, answered := f.sent.Load(), f.answered.Load()
		time.Sleep(time.Second)
		eventually(
			t,
			"fifty more are answered",
			func() bool { return f.answered.Load() >= answered+50 },
		)
		sent, answered = f.sent.Load()-sent, f.answered.Load()-answered
		heap, goroutines := s.metric(t, "go_memstats_heap_inuse_bytes")/(1<<20), s.metric(t, "go_goroutines")
		t.Logf(
			"second %d: %d sent, %d answered, heap %.0f MiB, %.0f goroutines",
			second,
			sent,
			answered,
			heap,
			goroutines,
		)
		if heap > 128 || goroutines > 50_000 {
			t.Errorf("second %d: heap %.0f MiB, %.0f goroutines", second, heap, goroutines)
		}
	}
	f.stop()
	// What the flood has left in the socket's buffer may displace a question: who asks asks again.
	m, c := new(dns.Msg), dns.Client{Timeout: 500 * time.Millisecond}
	m.SetQuestion(web, dns.TypeA)
	eventually(t, "an answer after the flood", func() bool {
		reply, _, err := c.Exchange(m, s.addr)
		return err == nil && reply.Rcode == dns.RcodeSuccess
	})
}

// flood asks as fast as it can, from several sockets.
type flood struct {
	sent, answered atomic.Int64
	stop           func()
}

func (s *server) flood(t *testing.T, sockets int) *flood {
	t.Helper()
	r := new(dns.Msg)
	r.SetQuestion(web, dns.TypeA)
	wire, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	f := &flood{}
	var all sync.WaitGroup
	done := make(chan struct{})
	var conns []net.Conn
	for range sockets {
		conn, err := net.Dial("udp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		all.Go(func() {
			for buf := make([]byte, 2048); ; f.answered.Add(1) {
				if _, err := conn.Read(buf); err != nil {
					return
				}
			}
		})
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := conn.Write(wire); err == nil {
					f.sent.Add(1)
				}
			}
		})
	}
	f.stop = sync.OnceFunc(func() {
		close(done)
		for _, c := range conns {
			c.Close()
		}
		all.Wait()
	})
	t.Cleanup(f.stop)
	return f
}
