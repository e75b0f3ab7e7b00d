package integration

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// ask is one question for web, and how long its answer took.
func (s *server) ask(t *testing.T, network string) (rcode string, took time.Duration) {
	t.Helper()
	r := new(dns.Msg)
	r.SetQuestion(web, dns.TypeA)
	m, took, err := (&dns.Client{Net: network, Timeout: 10 * time.Second}).Exchange(r, s.addr)
	if err != nil {
		t.Fatalf("%s: %v", network, err)
	}
	return dns.RcodeToString[m.Rcode], took
}

// stuck are clients that ask for large answers over TCP and read none.
func (s *server) stuck(t *testing.T, clients, questions int) (leave func()) {
	t.Helper()
	r := new(dns.Msg)
	r.SetQuestion("_http._tcp.crowd.prod.svc.clusterset.local.", dns.TypeSRV)
	wire, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	one := append([]byte{byte(len(wire) >> 8), byte(len(wire))}, wire...)
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if e := raw.Control(
			func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) },
		); e != nil {
			return e
		}
		return err
	}}
	var conns []net.Conn
	leave = func() {
		for _, c := range conns {
			c.Close()
		}
	}
	t.Cleanup(leave)
	for range clients {
		conn, err := small.DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if _, err := conn.Write([]byte(strings.Repeat(string(one), questions))); err != nil {
			t.Fatal(err)
		}
	}
	return leave
}

// TestOverloadByClientsThatDoNotRead: with shed, they hold no more than that many replies; who comes by TCP then is
// refused at once, who
// comes by UDP answered, and when they leave all is as before (docs/design.md, overload).
func TestOverloadByClientsThatDoNotRead(t *testing.T) {
	s := crowded(t, strings.Replace(stanza, "kubeconfig KUBECONFIG", "kubeconfig KUBECONFIG\n\t\tshed 8", 1))
	before := s.metric(t, "go_memstats_heap_inuse_bytes")
	leave := s.stuck(t, 8, 1000) // 1000 answers are far more than what the kernel keeps for a connection
	// Nobody else asks until then: while the kernel still takes answers, a client leaves its place between two of its
	// questions; if it found it
	// taken, all that it has left to ask would be refused at once, and it would never be stuck.
	answered := func() float64 { return s.metric(t, "coredns_dns_requests_total", `proto="tcp"`, `type="SRV"`) }
	eventually(t, time.Minute, "all of them are stuck", func() bool {
		before := answered()
		for range 3 {
			time.Sleep(time.Second)
			if now := answered(); now == 0 || now != before {
				return false
			}
		}
		return true
	})
	if n := s.metric(t, "coredns_multicluster_shed_total"); n != 0 {
		t.Fatalf("%.0f questions were refused, and there was a place for each client", n)
	}
	var slowest time.Duration
	for range 100 {
		rcode, took := s.ask(t, "udp")
		if slowest = max(slowest, took); rcode != "NOERROR" {
			t.Fatalf("UDP: %s", rcode)
		}
		rcode, took = s.ask(t, "tcp")
		if slowest = max(slowest, took); rcode != "REFUSED" {
			t.Fatalf("TCP: %s", rcode)
		}
	}
	grown := s.metric(t, "go_memstats_heap_inuse_bytes") - before
	t.Logf(
		"slowest answer %v, heap %+.1f MiB, %.0f refused",
		slowest,
		grown/(1<<20),
		s.metric(t, "coredns_multicluster_shed_total"),
	)
	if grown > 64<<20 {
		t.Errorf("the heap has grown by %.0f MiB", grown/(1<<20))
	}
	leave()
	eventually(t, time.Minute, "TCP is answered again", func() bool {
		rcode, _ := s.ask(t, "tcp")
		return rcode == "NOERROR"
	})
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
			30*time.Second,
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
	eventually(t, time.Minute, "an answer after the flood", func() bool {
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
