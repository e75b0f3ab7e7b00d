package multicluster

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/miekg/dns"
)

// TestL6ASecondaryFollows a CoreDNS with the transfer plugin: it hears of a change by NOTIFY, and the transfer that
// it
// then asks for has the change and a later serial.
func TestL6ASecondaryFollows(t *testing.T) {
	db := stub.Headless{Name: "db", Endpoints: 10}
	api, err := stub.Start(stub.Shape{Imports: 3, Headless: []stub.Headless{db}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	secondary, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan *dns.Msg, 10)
	server := &dns.Server{PacketConn: secondary, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		heard <- r
		w.WriteMsg(new(dns.Msg).SetReply(r))
	}), MsgAcceptFunc: func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })

	primary := serve(t, input(fmt.Sprintf(`clusterset.local:0 {
		bind 127.0.0.1
		transfer {
			to * %s
		}
		multicluster {
			endpoint %s
		}
	}`, secondary.LocalAddr(), api.URL)))
	await := func(why string) {
		t.Helper()
		select {
		case r := <-heard:
			if r.Opcode != dns.OpcodeNotify || r.Question[0].Name != defaultZone ||
				r.Question[0].Qtype != dns.TypeSOA {
				t.Fatalf("%s: %v is no NOTIFY of the zone", why, r)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: no NOTIFY", why)
		}
	}
	tcp := primary.Servers()[0].Addr().String()
	await("after the first lists")
	before, records := transferOver(t, tcp)
	slice := db.Slices()[0]
	slice.Endpoints[0].Conditions.Ready = new(false)
	if err := api.PutSlice(slice); err != nil {
		t.Fatal(err)
	}
	await("after a change")
	if after, fewer := transferOver(t, tcp); !catalog.Newer(after, before) || fewer >= records {
		t.Errorf(
			"serial %d with %d records, and after an endpoint is not ready %d with %d",
			before,
			records,
			after,
			fewer,
		)
	}
}

// transferOver returns the serial and the number of records of a transfer.
func transferOver(t *testing.T, addr string) (serial uint32, records int) {
	t.Helper()
	blocks, err := new(dns.Transfer).In(new(dns.Msg).SetAxfr(defaultZone), addr)
	if err != nil {
		t.Fatal(err)
	}
	for block := range blocks {
		if block.Error != nil {
			t.Fatal(block.Error)
		}
		for _, rr := range block.RR {
			if soa, ok := rr.(*dns.SOA); ok {
				serial = soa.Serial
			}
		}
		records += len(block.RR)
	}
	return serial, records
}
