package multicluster

import (
	"context"
	"net"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/pkg/fall"
	"github.com/coredns/coredns/plugin/pkg/proxyproto"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"

	dto "github.com/prometheus/client_model/go"
)

// waiting is a client over TCP that reads when it is told to.
type waiting struct {
	packing
	writing, read chan struct{}
}

func (*waiting) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40212} }

func (w *waiting) WriteMsg(*dns.Msg) error {
	w.writing <- struct{}{}
	<-w.read
	return nil
}

// With two replies that wait, a third over TCP is refused and counted, and UDP is answered. A reply that was read, and
// one that panicked, do not count any more.
func TestShedBoundsReplies(t *testing.T) {
	m := large()
	m.streams = make(chan struct{}, 2)
	w := &waiting{writing: make(chan struct{}), read: make(chan struct{})}
	r := question("web.test.svc.clusterset.local.", dns.TypeA, 0)
	ask := func(w dns.ResponseWriter) int {
		rcode, err := m.ServeDNS(context.Background(), request.NewScrubWriter(r, w), r)
		if err != nil {
			t.Error(err)
		}
		return rcode
	}
	done := make(chan int)
	for range 2 {
		go func() { done <- ask(w) }()
		<-w.writing
	}
	refused := refusals(t)
	if rcode := ask(new(overTCP)); rcode != dns.RcodeRefused || refusals(t) != refused+1 {
		t.Errorf("the third: %s, %v counted", dns.RcodeToString[rcode], refusals(t)-refused)
	}
	if rcode := ask(new(packing)); rcode != dns.RcodeSuccess {
		t.Errorf("UDP: %s", dns.RcodeToString[rcode])
	}
	w.read <- struct{}{}
	if rcode := <-done; rcode != dns.RcodeSuccess {
		t.Errorf("the first: %s", dns.RcodeToString[rcode])
	}
	go func() { done <- ask(w) }()
	<-w.writing
	close(w.read)
	<-done
	<-done

	m.source = nil // nothing works any more
	func() {
		defer func() { _ = recover() }()
		ask(w)
	}()
	if n := len(m.streams); n != 0 {
		t.Errorf("%d are still counted", n)
	}
}

// TestShedCountsClientsOnStreams, and nobody else: who asks is told by the address, which plugins wrap and make up.
func TestShedCountsClientsOnStreams(t *testing.T) {
	udp := &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 40212}
	tests := map[string]struct {
		from net.Addr
		want int
	}{
		"UDP": {udp, dns.RcodeSuccess},
		"TCP": {remoteTCP, dns.RcodeRefused},
		"HTTPS, from a link address": {
			&net.TCPAddr{Port: 40212},
			dns.RcodeRefused,
		}, // the server loses what has a zone
		"UDP behind a proxy":         {proxyproto.NewAddr(udp, udp, []byte{1}), dns.RcodeSuccess},
		"TCP behind a proxy":         {proxyproto.NewAddr(remoteTCP, remoteTCP, []byte{1}), dns.RcodeRefused},
		"an address that wraps none": {proxyproto.NewAddr(remoteTCP, nil, nil), dns.RcodeSuccess},
	}
	r := question("web.test.svc.clusterset.local.", dns.TypeA, 0)
	for name, tt := range tests {
		m := large()
		m.streams = make(chan struct{}, 1)
		m.streams <- struct{}{} // the one place is taken
		w := &from{addr: tt.from}
		if rcode, err := m.ServeDNS(context.Background(), w, r); rcode != tt.want || err != nil {
			t.Errorf("%s: %s, %v, want %s", name, dns.RcodeToString[rcode], err, dns.RcodeToString[tt.want])
		}
	}
}

// from is a client with an address.
type from struct {
	packing
	addr net.Addr
}

func (w *from) RemoteAddr() net.Addr { return w.addr }

// refusals is the metric.
func refusals(t *testing.T) float64 {
	t.Helper()
	var m dto.Metric
	if err := shedTotal.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// TestShedDoesNotCountOthersWork: what falls through is the next plugin's.
func TestShedDoesNotCountOthersWork(t *testing.T) {
	m := large()
	m.streams = make(chan struct{}, 1)
	m.Fall = fall.Root
	m.Next = plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		if n := len(m.streams); n != 0 {
			t.Errorf("%d counted while the next plugin works", n)
		}
		return handedOn, nil
	})
	r := question("absent.test.svc.clusterset.local.", dns.TypeA, 0)
	w := dnstest.NewRecorder(&test.ResponseWriter{TCP: true})
	if rcode, err := m.ServeDNS(context.Background(), w, r); rcode != handedOn || err != nil {
		t.Errorf("%s, %v", dns.RcodeToString[rcode], err)
	}
}

type overTCP struct{ packing }

var remoteTCP net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40212}

func (*overTCP) RemoteAddr() net.Addr { return remoteTCP }
