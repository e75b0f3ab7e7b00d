package external

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func sorted(s []string) []string { slices.Sort(s); return s }

func TestX1X2X5WhatNamesAnswer(t *testing.T) {
	e := serving(three(t))
	const web = "web.shop." + zone
	for _, c := range []struct {
		name  string
		qtype uint16
		from  where
		want  string
	}{
		{web, dns.TypeA, paris, "198.51.100.1 198.51.100.2"},
		{web, dns.TypeAAAA, paris, "2001:db8::1"},
		{web, dns.TypeA, boston, "203.0.113.1"},
		{web, dns.TypeAAAA, boston, "2001:db8::1"}, // no other has the type, and Tokyo is farther
		{web, dns.TypeA, osaka, "a.elb.example."},
		{web, dns.TypeAAAA, osaka, "a.elb.example."},
		{web, dns.TypeCNAME, osaka, "a.elb.example."},
		{web, dns.TypeTXT, osaka, "a.elb.example."},
		{web, dns.TypeHTTPS, osaka, "a.elb.example."},
		{web, dns.TypeNS, osaka, "NODATA"},
		{web, dns.TypeSOA, osaka, "NODATA"},
		{web, dns.TypeTXT, paris, "NODATA"},
		{web, dns.TypeSRV, paris, "NODATA"},
		{web, dns.TypeCNAME, paris, "NODATA"},
		{"WeB.Shop.Global.Example.ORG.", dns.TypeA, boston, "203.0.113.1"},

		{"berlin." + web, dns.TypeA, osaka, "198.51.100.1 198.51.100.2"},
		{"ny.us." + web, dns.TypeA, osaka, "203.0.113.1"},
		{"ny.us." + web, dns.TypeAAAA, osaka, "NODATA"},
		{"tokyo." + web, dns.TypeA, paris, "a.elb.example."},
		{"eu." + web, dns.TypeA, osaka, "198.51.100.1 198.51.100.2"},
		{"us." + web, dns.TypeA, osaka, "203.0.113.1"}, // a region, and the end of a cluster ID
		{"asia." + web, dns.TypeAAAA, paris, "a.elb.example."},
		{"Berlin." + web, dns.TypeA, osaka, "198.51.100.1 198.51.100.2"},
		{"paris." + web, dns.TypeA, paris, "NXDOMAIN"},
		{"ny." + web, dns.TypeA, paris, "NXDOMAIN"},
		{"x.ny.us." + web, dns.TypeA, paris, "NXDOMAIN"},
		{"x.berlin." + web, dns.TypeA, paris, "NXDOMAIN"},
		{"_http._tcp." + web, dns.TypeSRV, paris, "NXDOMAIN"},

		{"shop." + zone, dns.TypeA, paris, "NODATA"},
		{"other." + zone, dns.TypeA, paris, "NXDOMAIN"},
		{"db.shop." + zone, dns.TypeA, paris, "NXDOMAIN"},
		{"svc." + zone, dns.TypeA, paris, "NXDOMAIN"},
		{"dns." + zone, dns.TypeA, paris, "NODATA"},
		{"ns.dns." + zone, dns.TypeA, paris, "192.0.2.53"},
		{"ns.dns." + zone, dns.TypeAAAA, paris, "NODATA"},
		{"x.ns.dns." + zone, dns.TypeA, paris, "NXDOMAIN"},
		{"dns-version." + zone, dns.TypeTXT, paris, "NXDOMAIN"},
		{zone, dns.TypeNS, paris, "ns.dns." + zone},
		{zone, dns.TypeSOA, paris, "ns.dns." + zone + " hostmaster." + zone + " 15 60 30 86400 30"},
		{zone, dns.TypeA, paris, "NODATA"},
		{`a\.b.shop.` + zone, dns.TypeA, paris, "NXDOMAIN"},
		{`web\.shop.` + zone, dns.TypeA, paris, "NXDOMAIN"},
	} {
		if got := answer(t, e, c.from, c.name, c.qtype); got != c.want {
			t.Errorf("%s %s from %v: %s, want %s", c.name, dns.TypeToString[c.qtype], c.from, got, c.want)
		}
	}
	if _, rcode := ask(t, e, context.Background(), asked("web.shop.example.org.", dns.TypeA, "")); rcode != handedOn {
		t.Errorf("a name of another zone: rcode %d", rcode)
	}
}

// X2: the end of a cluster ID is an empty non-terminal.
func TestX2TheEndOfAClusterIDExists(t *testing.T) {
	e := serving(listed(t, slice(1, "a.eu", "10.0.0.1"), slice(2, "b.us", "10.0.0.2", "region=west")))
	for name, want := range map[string]string{"eu": "NODATA", "us": "NODATA", "west": "10.0.0.2", "a": "NXDOMAIN"} {
		if got := answer(t, e, nowhere, name+".web.shop."+zone, dns.TypeA); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// M1, M2 of X5: authority, TTLs, the SOA of negative answers, and turns of the addresses.
func TestX5Messages(t *testing.T) {
	e := serving(three(t))
	m, _ := ask(t, e, paris.context(), asked("web.shop."+zone, dns.TypeA, ""))
	if !m.Authoritative || m.Answer[0].Header().Ttl != 30 || len(m.Ns) != 0 {
		t.Errorf("a positive answer\n%v", m)
	}
	for _, name := range []string{"shop." + zone, "none." + zone} {
		m, _ := ask(t, e, paris.context(), asked(name, dns.TypeA, ""))
		if !m.Authoritative || len(m.Ns) != 1 || m.Ns[0].Header().Name != zone || m.Ns[0].Header().Ttl != 30 {
			t.Errorf("a negative answer\n%v", m)
		}
	}
	first := map[string]bool{}
	for range 100 {
		m, _ := ask(t, e, paris.context(), asked("web.shop."+zone, dns.TypeA, ""))
		first[m.Answer[0].String()] = true
	}
	if len(first) != 2 {
		t.Errorf("first records %v, want both in turns", first)
	}
	for opcode, want := range map[int]int{
		dns.OpcodeNotify: dns.RcodeNotImplemented, dns.OpcodeQuery: dns.RcodeRefused,
	} {
		r := asked("web.shop."+zone, dns.TypeA, "")
		r.Opcode, r.Question[0].Qclass = opcode, dns.ClassCHAOS
		if _, rcode := ask(t, e, context.Background(), r); rcode != want {
			t.Errorf("operation %d in class CH: rcode %d, want %d", opcode, rcode, want)
		}
	}
}

// M3 of X5: no answer exceeds the client's buffer.
func TestX5AnswersFitEveryBuffer(t *testing.T) {
	var four, six, host strings.Builder
	for i := range 16 {
		fmt.Fprintf(&four, "10.0.0.%d ", i)
		fmt.Fprintf(&six, "2001:db8::%x ", i+1)
	}
	host.WriteString(strings.Repeat(strings.Repeat("a", 60)+".", 4) + "example.")
	long := strings.Repeat("n", 63)
	e := serving(
		listed(t, slice(1, "a", four.String()), slice(2, "a", six.String()), slice(3, "h", host.String(), "as "+long)),
	)
	for _, name := range []string{"web.shop." + zone, "h." + long + ".shop." + zone} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			for _, subnet := range []string{"", "203.0.113.0/24"} {
				r := asked(name, qtype, subnet)
				if subnet != "" {
					r.IsEdns0().SetUDPSize(512)
				}
				m, _ := ask(t, e, context.Background(), r)
				b, err := m.Pack()
				if err != nil || len(b) > 512 {
					t.Errorf("%s %s %s: %d octets, %v", name, dns.TypeToString[qtype], subnet, len(b), err)
				}
			}
		}
	}
}

// X4, RFC 7871: who the client is, and what scope a reply has.
func TestX4ClientSubnet(t *testing.T) {
	located := three(t)
	plain := listed(t, slice(1, "a", "10.0.0.1"), slice(2, "b", "10.0.0.2"), slice(3, "c", "2001:db8::3"),
		slice(4, "d", "2001:db8::4"))
	const web = "web.shop." + zone
	for _, c := range []struct {
		name, subnet string
		qtype        uint16
		want         int // the scope; -1: no client subnet in the reply, -2: FORMERR
	}{
		{web, "203.0.113.0/24", dns.TypeA, 24},
		{web, "203.0.113.7/32", dns.TypeA, 24},
		{web, "203.0.0.0/16", dns.TypeA, 24}, // not specific enough
		{web, "2001:db8:7::/56", dns.TypeA, 48},
		{web, "::ffff:203.0.113.0/120", dns.TypeA, 120},
		{web, "::ffff:203.0.113.7/120", dns.TypeA, -2},
		{web, "2001:db8:7::/56", dns.TypeAAAA, 48},
		{web, "0.0.0.0/0", dns.TypeA, 0},
		{web, "", dns.TypeA, -1},
		{web, "203.0.113.7/24", dns.TypeA, -2},
		{"a." + web, "203.0.113.0/24", dns.TypeA, 0},
		{"x." + web, "203.0.113.0/24", dns.TypeA, 0},
		{"shop." + zone, "203.0.113.0/24", dns.TypeA, 0},
		{zone, "203.0.113.0/24", dns.TypeSOA, 0},
	} {
		r := asked(c.name, c.qtype, c.subnet)
		m, rcode := ask(t, serving(plain), context.Background(), r)
		got := -1
		if rcode == dns.RcodeFormatError && m == nil {
			got = -2
		} else if s := clientSubnet(m); s != nil {
			got = int(s.SourceScope)
			if sent := clientSubnet(asked(c.name, c.qtype, c.subnet)); s.SourceNetmask != sent.SourceNetmask ||
				s.Family != sent.Family || !s.Address.Equal(sent.Address) {
				t.Errorf("%s %s: the reply has %v", c.name, c.subnet, s)
			}
			if m.IsEdns0().UDPSize() != 1232 || len(m.Extra) != 1 {
				t.Errorf("%s %s: additional section %v", c.name, c.subnet, m.Extra)
			}
		}
		if got != c.want {
			t.Errorf("%s %s: scope %d, want %d", c.name, c.subnet, got, c.want)
		}
	}

	// dig +subnet=0 sends no family.
	r := asked(web, dns.TypeA, "0.0.0.0/0")
	clientSubnet(r).Family = 0
	if m, rcode := ask(t, serving(plain), context.Background(), r); rcode != dns.RcodeSuccess || len(m.Answer) == 0 ||
		clientSubnet(m) == nil || clientSubnet(m).Family != 0 || clientSubnet(m).SourceScope != 0 {
		t.Errorf("a subnet of no family: rcode %d, %v", rcode, m)
	}

	// The subnet decides, and not who asks for it; without the option it is the other way.
	bySubnet, byAsker := map[string]bool{}, map[string]bool{}
	for i := range 40 {
		r := asked(web, dns.TypeA, fmt.Sprintf("203.0.%d.0/24", i))
		e := serving(plain)
		m, _ := ask(t, e, context.Background(), r)
		bySubnet[data(m)] = true
		e.subnet = false
		m, _ = ask(t, e, context.Background(), asked(web, dns.TypeA, fmt.Sprintf("203.0.%d.0/24", i)))
		byAsker[data(m)] = true
		if clientSubnet(m) != nil {
			t.Fatalf("without the option the reply has a client subnet:\n%v", m)
		}
	}
	if len(bySubnet) != 2 || len(byAsker) != 1 {
		t.Errorf("by subnet %v, by asker %v", bySubnet, byAsker)
	}
	// Who sends a subnet of length 0 is taken for the address that asks.
	for i := range 16 {
		name := fmt.Sprintf("web%d.shop.%s", i, zone)
		as := fmt.Sprintf("as web%d", i)
		e := serving(listed(t, slice(1, "a", "10.0.0.1", as), slice(2, "b", "10.0.0.2", as)))
		m, _ := ask(t, e, context.Background(), asked(name, dns.TypeA, "0.0.0.0/0"))
		if got, want := data(m), answer(t, e, nowhere, name, dns.TypeA); got != want {
			t.Errorf("%s with a subnet of length 0: %s, want %s", name, got, want)
		}
	}
	// Coordinates and continent are those of geoip's metadata. What is no number is unknown.
	for _, c := range []struct {
		from where
		want string
	}{
		{where{"48.86", "2.35", ""}, "198.51.100.1 198.51.100.2"},
		{where{"", "", "NA"}, "203.0.113.1"},
		{where{"x", "2.35", "NA"}, "203.0.113.1"},
		{where{"", "2.35", "NA"}, "203.0.113.1"},
	} {
		if got := answer(t, serving(located), c.from, web, dns.TypeA); got != c.want {
			t.Errorf("from %v: %s, want %s", c.from, got, c.want)
		}
	}
}

// X4: the address that asks, whatever it is made of.
func TestX4Asker(t *testing.T) {
	for _, c := range []struct {
		addr net.Addr
		want string
	}{
		{&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 53}, "192.0.2.1"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 53, Zone: "eth0"}, "2001:db8::1"},
		{net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[::ffff:192.0.2.1]:53")), "192.0.2.1"},
		{text("192.0.2.7:99"), "192.0.2.7"},
		{text("pipe"), "invalid IP"},
		{&net.UDPAddr{}, "invalid IP"},
		{nil, "invalid IP"},
	} {
		if got := remote(c.addr).String(); got != c.want {
			t.Errorf("%v: %s, want %s", c.addr, got, c.want)
		}
	}
	e := serving(three(t))
	w := &discarding{}
	old := remoteAddr
	t.Cleanup(func() { remoteAddr = old })
	for _, addr := range []net.Addr{text("pipe"), &net.UDPAddr{}} {
		remoteAddr = addr
		if rcode, err := e.ServeDNS(
			context.Background(),
			w,
			asked("web.shop."+zone, dns.TypeA, ""),
		); rcode != 0 ||
			err != nil {
			t.Errorf("asked by %v: %d, %v", addr, rcode, err)
		}
	}
}

type text string

func (text) Network() string  { return "text" }
func (t text) String() string { return string(t) }

// X7: before the first list nothing but the apex is answered, and nothing falls through.
func TestX7NothingBeforeTheFirstList(t *testing.T) {
	s := newWatch()
	e := serving(s)
	e.Fall.SetZonesFromArgs(nil)
	for name, want := range map[string]int{
		zone: dns.RcodeSuccess, "web.shop." + zone: dns.RcodeServerFailure, "x." + zone: dns.RcodeServerFailure,
		"ns.dns." + zone: dns.RcodeServerFailure,
	} {
		if _, rcode := ask(t, e, context.Background(), asked(name, dns.TypeSOA, "")); rcode != want {
			t.Errorf("%s: rcode %d, want %d", name, rcode, want)
		}
	}
	if _, err := e.Transfer(zone, 0); err == nil {
		t.Error("the zone is transferred")
	}
	replace(t, s, "5")
	if _, rcode := ask(t, e, context.Background(), asked("x."+zone, dns.TypeA, "")); rcode != handedOn {
		t.Errorf("after an empty list, with fallthrough: rcode %d", rcode)
	}
}

// Ten allocations are what a question may cost, whatever the answer is.
func TestAllocationBudget(t *testing.T) {
	const budget = 10
	e := serving(three(t))
	ctx := context.Background()
	for name, c := range map[string]struct {
		name, subnet string
		from         where
	}{
		"A": {"web.shop." + zone, "", paris}, "with a subnet": {"web.shop." + zone, "203.0.113.0/24", paris},
		"CNAME": {"web.shop." + zone, "203.0.113.0/24", osaka}, "by weight": {"web.shop." + zone, "", nowhere},
		"cluster": {"ny.us.web.shop." + zone, "", paris}, "region": {"eu.web.shop." + zone, "2001:db8::/48", paris},
		"NXDOMAIN": {"x." + zone, "203.0.113.0/24", paris},
	} {
		r := asked(c.name, dns.TypeA, c.subnet)
		if c.from != nowhere {
			ctx = c.from.context()
		}
		w := new(discarding)
		got := testing.AllocsPerRun(200, func() {
			if _, err := e.ServeDNS(ctx, w, r); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %.0f allocations", name, got)
		if got > budget {
			t.Errorf("%s: %.0f allocations, the budget is %d", name, got, budget)
		}
	}
}

// FuzzName: whatever is asked, nothing panics and the reply packs. A name below one that does not exist does not exist
// either.
func FuzzName(f *testing.F) {
	for _, name := range []string{
		`\`, "web.shop", "ny.us.web.shop", "eu.web.shop", "shop", "ns.dns", `a\.b.web.shop`, "",
	} {
		f.Add(name, dns.TypeA, "203.0.113.0/24")
	}
	e := serving(three(f))
	f.Fuzz(func(t *testing.T, name string, qtype uint16, subnet string) {
		wire := make([]byte, 256)
		n, err := dns.PackDomainName(strings.TrimPrefix(name+".", ".")+zone, wire, 0, nil, false)
		if err != nil {
			t.Skip()
		}
		name, _, err = dns.UnpackDomainName(wire[:n], 0) // as the server would read it
		if err != nil || qtype == dns.TypeNone || qtype == dns.TypeAXFR || qtype == dns.TypeIXFR {
			t.Skip()
		}
		if p, err := netip.ParsePrefix(subnet); err != nil || p.Addr().Is4In6() || p.Masked() != p {
			subnet = ""
		}
		m, rcode := ask(t, e, paris.context(), asked(name, qtype, subnet))
		if rcode == handedOn { // an escaped dot in front of the zone
			return
		}
		if m == nil || m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
			t.Fatalf("%s: %v", name, m)
		}
		if m.Rcode == dns.RcodeNameError || len(dns.SplitDomainName(name)) <= dns.CountLabel(zone) {
			return
		}
		next, _ := dns.NextLabel(name, 0)
		if above, _ := ask(t, e, paris.context(), asked(name[next:], qtype, "")); above.Rcode != dns.RcodeSuccess {
			t.Fatalf("%s exists, and the name above it does not", name)
		}
	})
}
