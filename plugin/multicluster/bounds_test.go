package multicluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// deaf is a client that nothing can be written to.
type deaf struct{ packing }

var errDeaf = errors.New("the client is gone")

func (*deaf) WriteMsg(*dns.Msg) error { return errDeaf }

func TestM5AFailedWriteIsAnError(t *testing.T) {
	m := large()
	for _, name := range []string{
		"web.test.svc.clusterset.local.", "absent.test.svc.clusterset.local.", "clusterset.local.",
	} {
		r := question(name, dns.TypeA, 1232)
		w := request.NewScrubWriter(r, new(deaf))
		if rcode, err := m.ServeDNS(
			context.Background(),
			w,
			r,
		); !errors.Is(err, errDeaf) ||
			rcode != dns.RcodeServerFailure {
			t.Errorf("%s: %s, %v", name, dns.RcodeToString[rcode], err)
		}
	}
}

// N12: a host name that does not fit into a name of DNS does not exist and is no target; the names above it exist. Its
// addresses are still the Service's.
func TestN12HostNameThatDoesNotFit(t *testing.T) {
	label := strings.Repeat("a", 63)
	imp := &catalog.Import{
		Namespace: label,
		Name:      label,
		Type:      catalog.Headless,
		Ports:     []catalog.Port{{Name: "http", Proto: "TCP", Number: 80}},
	}
	for _, tc := range []struct {
		hosts                            []string
		service, port, protocol, cluster string
	}{
		{[]string{label}, "NOERROR 0", "NOERROR 0", "NOERROR 0", "NOERROR 0"},
		{[]string{label, "fits"}, "NOERROR 1", "NOERROR 1", "NOERROR 0", "NOERROR 0"},
	} {
		var eps []catalog.Endpoint
		for i, host := range tc.hosts {
			eps = append(eps, catalog.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), Host: host})
		}
		x := new(catalog.Table[*catalog.Service])
		x.Set(
			label+"."+label,
			catalog.Build(imp, []*catalog.Slice{catalog.NewSlice("s", label, imp.Ports, eps)}),
			1,
		)
		m := serving(1, x)
		service := label + "." + label + ".svc.clusterset.local."
		for name, want := range map[string]string{
			"": tc.service, "_http._tcp.": tc.port, "_tcp.": tc.protocol, label + ".": tc.cluster,
		} {
			got, _ := ask(t, m, question(name+service, dns.TypeSRV, 0), true)
			is := fmt.Sprint(dns.RcodeToString[got.Rcode], " ", len(got.Answer))
			if is != want ||
				len(got.Answer) == 0 && (len(got.Ns) != 1 || got.Ns[0].Header().Rrtype != dns.TypeSOA) {
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

// M3: a client whose buffer is larger than a datagram can be gets as much as a datagram carries, and TC, not an
// error.
func TestM3NoDatagramIsTooLarge(t *testing.T) {
	m, x := large(), new(catalog.Table[*catalog.Service])
	var eps []catalog.Endpoint
	for i := range 5000 {
		eps = append(eps, catalog.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
	}
	imp := &catalog.Import{Namespace: "test", Name: "huge", Type: catalog.Headless}
	x.Set("huge.test", catalog.Build(imp, []*catalog.Slice{catalog.NewSlice("s", "a", nil, eps)}), 1)
	m.Source = &fixed{index: x}
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
		got, _, err := c.Exchange(
			question("huge.test.svc.clusterset.local.", dns.TypeA, dns.MaxMsgSize),
			listener.LocalAddr().String(),
		)
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
