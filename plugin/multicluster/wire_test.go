package multicluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// The writers of the library's server, UDP and TCP, are recognized as taking the wire format: if a release renames their type, replies
// would take the slower way without anybody noticing (docs/decisions/0004).
func TestServerWritersTakeWire(t *testing.T) {
	m := large()
	for _, network := range []string{"udp", "tcp"} {
		took := make(chan bool, 1)
		started := make(chan struct{})
		s := &dns.Server{Net: network, NotifyStartedFunc: func() { close(started) },
			Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
				took <- takesWire(w)
				if _, err := m.ServeDNS(context.Background(), request.NewScrubWriter(r, w), r); err != nil {
					t.Error(err)
				}
			})}
		var addr string
		if network == "udp" {
			c, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s.PacketConn, addr = c, c.LocalAddr().String()
		} else {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s.Listener, addr = l, l.Addr().String()
		}
		go func() { _ = s.ActivateAndServe() }()
		<-started
		reply, _, err := (&dns.Client{Net: network}).Exchange(question("web.test.svc.clusterset.local.", dns.TypeA, 1232), addr)
		if err != nil || len(reply.Answer) != 1 || reply.IsEdns0() == nil {
			t.Errorf("%s: %v %v", network, err, reply)
		}
		if !<-took {
			t.Errorf("%s: the server's writer is not recognized", network)
		}
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	}
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

// M2: an SRV reply without any target, since none of their names fits into a name of DNS, is NODATA with its SOA.
func TestM2NoTargetFits(t *testing.T) {
	label := strings.Repeat("a", 63)
	imp := &catalog.Import{Namespace: label, Name: label, Type: catalog.Headless, Version: 1, Ports: []catalog.Port{{Name: "http", Proto: "TCP", Number: 80}}}
	eps := []catalog.Endpoint{{Addr: netip.MustParseAddr("10.1.0.1"), Host: label}}
	x := catalog.NewIndex()
	x.Set(label+"."+label, catalog.Build(imp, []*catalog.Slice{catalog.NewSlice("s", label, imp.Ports, eps, 1)}), 1)
	m := &Multicluster{
		origins: []string{defaultZone},
		zones:   []*reply.Zone{reply.NewZone(defaultZone, 1, []netip.Addr{nameserver})},
		source:  &fixed{index: x},
	}
	got, _ := ask(t, m, question("_http._tcp."+label+"."+label+".svc.clusterset.local.", dns.TypeSRV, 0), false)
	if got.Rcode != dns.RcodeSuccess || len(got.Answer) != 0 || len(got.Ns) != 1 || got.Ns[0].Header().Rrtype != dns.TypeSOA {
		t.Errorf("want NODATA with a SOA:\n%v", got)
	}
}
