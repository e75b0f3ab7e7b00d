package multicluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// The writers of the library's server, UDP and TCP, are recognized as taking the wire format: if a release renames their type, replies
// would take the slower way without anybody noticing (docs/decisions/0004). Decorated ones, as the shed plugin has them, do not take it: every
// reply goes through what decorates them, which may keep it.
func TestServerWritersTakeWire(t *testing.T) {
	m := large()
	r := question("web.test.svc.clusterset.local.", dns.TypeA, 1232)
	for _, network := range []string{"udp", "tcp"} {
		took := make(chan bool, 1)
		handler := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
			took <- takesWire(w)
			if n := testing.AllocsPerRun(100, func() { takesWire(w) }); n != 0 && !raceEnabled {
				t.Errorf("%s: %.0f allocations to recognize the server's writer", network, n)
			}
			var behind plugin.Handler = plugin.HandlerFunc(func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				if n := testing.AllocsPerRun(100, func() { serversOwn(w) }); serversOwn(w) == nil || n != 0 && !raceEnabled {
					t.Errorf("%s: behind plugins that have no writer of their own the server's is %v, found in %.0f allocations", network, serversOwn(w), n)
				}
				return m.ServeDNS(ctx, w, r)
			})
			for range 2 {
				next := behind
				behind = plugin.HandlerFunc(func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
					return plugin.NextOrFailure("", next, ctx, w, r)
				})
			}
			if _, err := behind.ServeDNS(context.Background(), request.NewScrubWriter(r, w), r); err != nil {
				t.Error(err)
			}
		})
		check := func(by string, want bool, decorate dns.DecorateWriter) {
			addr := answering(t, network, &dns.Server{Handler: handler, DecorateWriter: decorate})
			for range 3 {
				reply, _, err := (&dns.Client{Net: network}).Exchange(r, addr)
				if err != nil || len(reply.Answer) != 1 || reply.IsEdns0() == nil {
					t.Errorf("%s: %v %v", network, err, reply)
				}
				if got := <-took; got != want {
					t.Errorf("%s, decorated by %s: takes the wire format: %v, want %v", network, by, got, want)
				}
			}
		}
		check("nothing", true, nil)
		k := new(keeper)
		check("a pointer", false, func(w dns.Writer) dns.Writer { return &kept{w, k} })
		check("a value", false, func(w dns.Writer) dns.Writer { return kept{w, k} })
		k.mu.Lock()
		if len(k.given) != 6 || !reflect.DeepEqual(k.given, k.were) {
			t.Errorf("%s: 6 replies, the decorators have\n%q and were given\n%q", network, k.given, k.were)
		}
		k.mu.Unlock()
	}
}

// answering runs a server for as long as the test.
func answering(t *testing.T, network string, s *dns.Server) (addr string) {
	t.Helper()
	var err error
	if network == "udp" {
		if s.PacketConn, err = net.ListenPacket("udp", "127.0.0.1:0"); err == nil {
			addr = s.PacketConn.LocalAddr().String()
		}
	} else if s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
		addr = s.Listener.Addr().String()
	}
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	go func() { _ = s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return addr
}

// keeper keeps the replies that it was given, beside what they were then.
type keeper struct {
	mu          sync.Mutex
	given, were [][]byte
}

// kept decorates a server's writer.
type kept struct {
	dns.Writer
	by *keeper
}

func (k kept) Write(b []byte) (int, error) {
	k.by.mu.Lock()
	k.by.given, k.by.were = append(k.by.given, b), append(k.by.were, bytes.Clone(b))
	k.by.mu.Unlock()
	return k.Writer.Write(b)
}

// deaf are clients to which nothing can be written: through the server's writer as octets and as messages, and through another plugin's.
type deaf struct{ packing }

var errDeaf = errors.New("the client is gone")

func (*deaf) Write([]byte) (int, error) { return 0, errDeaf }
func (*deaf) WriteMsg(*dns.Msg) error   { return errDeaf }

// TestM5AFailedWriteIsAnError, and not silence: whichever way the reply was to take.
func TestM5AFailedWriteIsAnError(t *testing.T) {
	m := large()
	for _, name := range []string{"web.test.svc.clusterset.local.", "absent.test.svc.clusterset.local.", "clusterset.local."} {
		r := question(name, dns.TypeA, 1232)
		for way, w := range map[string]dns.ResponseWriter{
			"octets":   request.NewScrubWriter(r, new(deaf)),
			"messages": request.NewScrubWriter(r, struct{ dns.ResponseWriter }{new(deaf)}),
			"a plugin": struct{ dns.ResponseWriter }{new(deaf)},
		} {
			if rcode, err := m.ServeDNS(context.Background(), w, r); !errors.Is(err, errDeaf) || rcode != dns.RcodeServerFailure {
				t.Errorf("%s, %s: %s, %v", name, way, dns.RcodeToString[rcode], err)
			}
		}
	}
}

// N12: a host name that does not fit into a name of DNS does not exist, and above it does not either what only it would make exist (N4,
// N8). Its addresses are still the Service's.
func TestN12HostNameThatDoesNotFit(t *testing.T) {
	label := strings.Repeat("a", 63)
	imp := &catalog.Import{Namespace: label, Name: label, Type: catalog.Headless, Ports: []catalog.Port{{Name: "http", Proto: "TCP", Number: 80}}}
	for _, tc := range []struct {
		hosts                            []string
		service, port, protocol, cluster string
	}{
		{[]string{label}, "NOERROR 0", "NXDOMAIN 0", "NXDOMAIN 0", "NXDOMAIN 0"},
		{[]string{label, "fits"}, "NOERROR 1", "NOERROR 1", "NOERROR 0", "NOERROR 0"},
	} {
		var eps []catalog.Endpoint
		for i, host := range tc.hosts {
			eps = append(eps, catalog.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), Host: host})
		}
		x := catalog.NewIndex()
		x.Set(label+"."+label, catalog.Build(imp, []*catalog.Slice{catalog.NewSlice("s", label, imp.Ports, eps)}), 1)
		m := &Multicluster{
			origins: []string{defaultZone},
			zones:   []*reply.Zone{reply.NewZone(defaultZone, 1, []netip.Addr{nameserver})},
			source:  &fixed{index: x},
		}
		service := label + "." + label + ".svc.clusterset.local."
		for name, want := range map[string]string{"": tc.service, "_http._tcp.": tc.port, "_tcp.": tc.protocol, label + ".": tc.cluster} {
			got, _ := ask(t, m, question(name+service, dns.TypeSRV, 0), true)
			is := fmt.Sprint(dns.RcodeToString[got.Rcode], " ", len(got.Answer))
			if is != want || len(got.Answer) == 0 && (len(got.Ns) != 1 || got.Ns[0].Header().Rrtype != dns.TypeSOA) {
				t.Errorf("%v: SRV of %.10s: %s, want %s", tc.hosts, name, is, want)
			}
		}
		if got, _ := ask(t, m, question(service, dns.TypeA, 0), true); len(got.Answer) != len(eps) {
			t.Errorf("%v: addresses of the Service: %v", tc.hosts, got.Answer)
		}
		records, err := m.Transfer(defaultZone, 0) // L6
		if err != nil {
			t.Fatal(err)
		}
		for rrs := range records {
			for _, rr := range rrs {
				if len(rr.Header().Name) > catalog.MaxName {
					t.Errorf("%v: transferred: %s", tc.hosts, rr)
				}
			}
		}
	}
}

// M3: a client whose buffer is larger than a datagram can be gets as much as a datagram carries, and TC, not an error.
func TestM3NoDatagramIsTooLarge(t *testing.T) {
	m, x := large(), catalog.NewIndex()
	var eps []catalog.Endpoint
	for i := range 5000 {
		eps = append(eps, catalog.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
	}
	imp := &catalog.Import{Namespace: "test", Name: "huge", Type: catalog.Headless}
	x.Set("huge.test", catalog.Build(imp, []*catalog.Slice{catalog.NewSlice("s", "a", nil, eps)}), 1)
	m.source = &fixed{index: x}
	listener, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	server := &dns.Server{PacketConn: listener, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		if _, err := m.ServeDNS(context.Background(), request.NewScrubWriter(r, w), r); err != nil {
			failed <- err
		}
	})}
	go func() { _ = server.ActivateAndServe() }() // ends with Shutdown
	defer func() { _ = server.Shutdown() }()
	c := &dns.Client{UDPSize: dns.MaxMsgSize, Timeout: time.Minute}
	answer := make(chan *dns.Msg, 1)
	go func() {
		got, _, err := c.Exchange(question("huge.test.svc.clusterset.local.", dns.TypeA, dns.MaxMsgSize), listener.LocalAddr().String())
		if err != nil {
			failed <- err
			return
		}
		answer <- got
	}()
	select {
	case err := <-failed:
		t.Fatal(err)
	case got := <-answer:
		if !got.Truncated || len(got.Answer) < 4000 {
			t.Errorf("%d records, truncated: %t", len(got.Answer), got.Truncated)
		}
	}
}
