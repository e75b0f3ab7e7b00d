package multicluster

import (
	"net/netip"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/clusterset-dns/clusterset-dns/test/model"
	"github.com/miekg/dns"
)

// M2, M3, M5: however many addresses the name server has, replies fit the client's buffer, say so where answers are
// missing, and have none twice.
func TestM3NameserversFitEveryBuffer(t *testing.T) {
	var all []netip.Addr
	for i := range 40 {
		four, six := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), netip.AddrFrom16(
			[16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i)},
		)
		all = append(all, four, six, four)
	}
	for _, tc := range []struct {
		name             string
		qtype, edns      uint16
		tcp              bool
		four, six, least int // addresses; the fewest that are an answer
	}{
		{"ns.dns.clusterset.local.", dns.TypeA, 0, false, 40, 0, 29},
		{"ns.dns.clusterset.local.", dns.TypeAAAA, 0, false, 0, 40, 16},
		{"ns.dns.clusterset.local.", dns.TypeA, 1232, false, 40, 0, 40},
		{"ns.dns.clusterset.local.", dns.TypeAAAA, 1232, false, 0, 40, 40},
		{"ns.dns.clusterset.local.", dns.TypeA, 0, true, 40, 0, 40},
		{"clusterset.local.", dns.TypeNS, 0, false, 0, 0, 0},
		{"CLUSTERSET.Local.", dns.TypeNS, 1900, false, 40, 0, 40},
		{"clusterset.local.", dns.TypeNS, 0, true, 40, 40, 80},
	} {
		m := handler(model.Objects{})
		m.Zones = []*reply.Zone{reply.NewZone(defaultZone, defaultTTL, all)}
		for range 12 { // with and without a writer in between
			msg, _ := ask(t, m, question(tc.name, tc.qtype, tc.edns), tc.tcp) // fails where the reply does not fit
			rrs := msg.Answer
			if tc.qtype == dns.TypeNS {
				if len(rrs) != 1 {
					t.Fatalf("%s: %d NS records", tc.name, len(rrs))
				}
				rrs = msg.Extra
			}
			seen := map[string]bool{}
			four, six := 0, 0
			for _, rr := range rrs {
				switch rr := rr.(type) {
				case *dns.A:
					four++
					seen[rr.A.String()] = true
				case *dns.AAAA:
					six++
					seen[rr.AAAA.String()] = true
				}
			}
			if len(seen) != four+six || len(seen) < tc.least || four > tc.four || six > tc.six {
				t.Fatalf(
					"%s %d: %d A and %d AAAA, %d of them different; want %d and %d, %d at least",
					tc.name,
					tc.edns,
					four,
					six,
					len(seen),
					tc.four,
					tc.six,
					tc.least,
				)
			}
			if cut := tc.qtype != dns.TypeNS && len(seen) < 40; msg.Truncated != cut {
				t.Fatalf("%s %d: TC is %v with %d of 40 addresses", tc.name, tc.edns, msg.Truncated, len(seen))
			}
		}
	}
}
