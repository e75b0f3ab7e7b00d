package reply_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/miekg/dns"
)

// What Pack writes unpacks to the same message as what the library writes, is hardly longer, and leaves what stood in the buffer alone.
func samePacked(t *testing.T, m *dns.Msg) {
	t.Helper()
	wire, ok := reply.Pack([]byte("before"), m)
	if !ok {
		t.Fatalf("not packed:\n%v", m)
	}
	if string(wire[:6]) != "before" {
		t.Fatal("the buffer's content was changed")
	}
	wire = wire[6:]
	m.Compress = true
	library, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var got, want dns.Msg
	if err := got.Unpack(wire); err != nil {
		t.Fatalf("%v:\n%v", err, m)
	}
	if err := want.Unpack(library); err != nil {
		t.Fatal(err)
	}
	if got.String() != want.String() {
		t.Fatalf("got\n%v\nwant\n%v", &got, &want)
	}
	const slack = 40                                            // types that are asked seldom are not compressed
	if len(wire) > len(library)+slack && len(library) < 1<<14 { // behind that the library points to parts of names
		t.Fatalf("%d octets, the library takes %d:\n%v", len(wire), len(library), m)
	}
}

func TestPackGivesWhatTheLibraryGives(t *testing.T) {
	web := clusterSetIP()
	for _, upper := range []bool{false, true} {
		for _, edns := range []bool{false, true} {
			ask := func(name string, qtype uint16) *dns.Msg {
				if upper {
					name = strings.ToUpper(name)
				}
				r := question(name, qtype)
				if edns {
					r.SetEdns0(1232, true)
				}
				return r
			}
			send := func(r, m *dns.Msg) {
				if o := r.IsEdns0(); o != nil {
					m.Extra = append(m.Extra, o)
				}
				samePacked(t, m)
			}
			r := ask("web.test.svc.clusterset.local.", dns.TypeA)
			owner := r.Question[0].Name[len("web.test.svc."):]
			send(r, zone.Addresses(nil, r, dns.TypeA, web.Self(catalog.V4, catalog.Window{}).Addrs, 512))
			send(r, zone.Negative(nil, r, dns.RcodeNameError, owner, 7, false))
			send(r, zone.Negative(nil, r, dns.RcodeSuccess, owner, 7, true))
			r = ask("_https._tcp.web.test.svc.clusterset.local.", dns.TypeSRV)
			send(r, zone.SRV(nil, r, web.Key(), web.Targets("https", "tcp", catalog.Window{}), 512))
			r = ask("clusterset.local.", dns.TypeNS)
			send(r, zone.NS(r, r.Question[0].Name, 512))
			send(r, zone.SOA(r, r.Question[0].Name, 9))
			r = ask("dns-version.clusterset.local.", dns.TypeTXT)
			send(r, zone.VersionTXT(r))
			r = ask("ns.dns.clusterset.local.", dns.TypeA)
			send(r, zone.NSAddresses(r, dns.TypeA, 512))
			for _, n := range []int{1, 2, 5, 100, 1000} {
				db := headless(n)
				for _, limit := range []int{512, 1232, 65535} {
					r = ask("db.test.svc.clusterset.local.", dns.TypeA)
					send(r, zone.Addresses(nil, r, dns.TypeA, db.Self(catalog.V4, catalog.Window{}).Addrs, limit))
					for _, name := range []string{"_http._tcp.db.test.svc.clusterset.local.", "db.test.svc.clusterset.local."} {
						r = ask(name, dns.TypeSRV)
						send(r, zone.SRV(nil, r, db.Key(), db.Targets("", "", catalog.Window{}), limit))
					}
				}
			}
		}
	}
}

// Names with escapes are left to the library.
func TestPackRefusesEscapes(t *testing.T) {
	r := question(`a\.b.test.svc.clusterset.local.`, dns.TypeA)
	if buf, ok := reply.Pack(nil, zone.Negative(nil, r, dns.RcodeNameError, "clusterset.local.", 7, false)); ok || len(buf) != 0 {
		t.Error("packed a name with an escape")
	}
}

func BenchmarkPack(b *testing.B) {
	db := headless(1000)
	for _, limit := range []int{512, 65535} {
		r := question("db.test.svc.clusterset.local.", dns.TypeA)
		m := zone.Addresses(nil, r, dns.TypeA, db.Self(catalog.V4, catalog.Window{}).Addrs, limit)
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			buf := make([]byte, 0, 1<<16)
			b.ReportAllocs()
			for b.Loop() {
				reply.Pack(buf, m)
			}
		})
	}
}
