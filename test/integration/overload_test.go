package integration

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const crowd = "crowd.prod.svc.clusterset.local."

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
	s.waitFor(t, crowd, "A")
	return s
}

// TestOverloadByUDP: far more questions than can be answered. What is too much is dropped by the kernel, at the socket,
// or by shed, without which large answers would wait in memory. What is answered of each kind does not become less with
// time, and neither memory nor goroutines grow with what comes.
func TestOverloadByUDP(t *testing.T) {
	t.Run("small answers", func(t *testing.T) {
		s := crowded(t, stanza)
		s.overload(t, 128, s.flood(t, 4, web, dns.TypeA))
	})
	t.Run("large answers", func(t *testing.T) {
		s := crowded(t, strings.Replace(stanza, "errors", "errors\n shed", 1))
		s.overload(t, 512, s.flood(t, 2, web, dns.TypeA), s.flood(t, 2, crowd, dns.TypeSRV))
	})
}

// overload watches floods for some seconds, with a bar for the heap in MiB.
func (s *server) overload(t *testing.T, most float64, floods ...*flood) {
	t.Helper()
	for second, until := 0, time.Now().Add(limit); ; second++ {
		began, less := time.Now(), ""
		for _, f := range floods {
			f.sent.Store(0)
			f.answered.Store(0)
		}
		time.Sleep(time.Second)
		for _, f := range floods {
			rate := float64(f.answered.Load()) / time.Since(began).Seconds()
			t.Logf("second %d: %s: %d sent, %.0f answered a second", second, f.name, f.sent.Load(), rate)
			switch {
			case second == 0:
				f.first = rate
			case second >= 3 && rate >= max(1, f.first/2):
				f.kept = true // this machine may have done something else in the seconds before
			}
			if !f.kept {
				less = f.name
			}
		}
		heap, goroutines := s.metric(t, "go_memstats_heap_inuse_bytes")/(1<<20), s.metric(t, "go_goroutines")
		t.Logf("second %d: heap %.0f MiB, %.0f goroutines", second, heap, goroutines)
		if heap > most || goroutines > 50_000 {
			t.Errorf("second %d: heap %.0f MiB, %.0f goroutines", second, heap, goroutines)
		}
		if less == "" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%s: less than half of what was answered in the first second", less)
		}
	}
	for _, f := range floods {
		f.stop()
	}
	// What the flood has left in the socket's buffer may displace a question: who asks asks again.
	m, c := new(dns.Msg), dns.Client{Timeout: 500 * time.Millisecond}
	m.SetQuestion(web, dns.TypeA)
	eventually(t, "an answer after the flood", func() bool {
		reply, _, err := c.Exchange(m, s.addr)
		return err == nil && reply.Rcode == dns.RcodeSuccess
	})
}

// flood asks one question as fast as it can, from several sockets.
type flood struct {
	name           string
	sent, answered atomic.Int64
	first          float64 // answers in the first second
	kept           bool    // half of that, or more, in a later one
	stop           func()
}

func (s *server) flood(t *testing.T, sockets int, name string, qtype uint16) *flood {
	t.Helper()
	wire, err := new(dns.Msg).SetQuestion(name, qtype).SetEdns0(dns.MaxMsgSize-1, false).Pack()
	if err != nil {
		t.Fatal(err)
	}
	f := &flood{name: name}
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
