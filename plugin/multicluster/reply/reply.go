// Package reply makes DNS messages of what the catalogue found: records, the SOA of negative answers and glue, cut to the
// client's buffer. Every reply owns all of its memory, in a few allocations, so plugins may change it on its way back
// (docs/decisions/0001). It packs and compresses nothing: that is the server's job.
package reply

import (
	"net/netip"
	"slices"

	"github.com/miekg/dns"
)

// Zone is what replies need to know of the zone.
type Zone struct {
	name      string // fully qualified, lower case
	ns, mbox  string
	ttl       uint32
	four, six string // the name server's addresses, packed
}

// VersionTTL is the TTL of dns-version (N3), in seconds.
const VersionTTL = 28800

// Version is the version of the DNS specification that is served (N3).
const Version = "1.0.0"

// pendingTTL is the negative TTL of a Service that has no address yet (N5), in seconds.
const pendingTTL = 1

// The labels before the zone's name of its name server (N2) and of its mailbox.
const (
	nsLabels   = "ns.dns."
	mboxLabels = "hostmaster."
)

// NewZone makes a Zone of its name, its TTL in seconds and the addresses of its name server (N2), each of which counts once (M2).
func NewZone(name string, ttl uint32, nameservers []netip.Addr) *Zone {
	under := name
	if name == "." {
		under = ""
	}
	z := &Zone{name: name, ns: nsLabels + under, mbox: mboxLabels + under, ttl: ttl}
	for i, a := range nameservers {
		switch {
		case slices.Contains(nameservers[:i], a):
		case a.Is4():
			z.four += string(a.AsSlice())
		default:
			z.six += string(a.AsSlice())
		}
	}
	return z
}

// Name is the zone's, fully qualified and in lower case.
func (z *Zone) Name() string { return z.name }

// Octets are how many it takes at the end of a name.
func (z *Zone) Octets() int {
	if z.name == "." {
		return 0
	}
	return len(z.name)
}

// TTL of the zone's records, in seconds.
func (z *Zone) TTL() uint32 { return z.ttl }

// start makes m the authoritative reply to r, with an empty question section backed by q and room for the OPT record that
// the server appends.
func start(m *dns.Msg, q *[1]dns.Question, opt *[1]dns.RR, r *dns.Msg) {
	q[0] = r.Question[0]
	m.Id = r.Id
	m.Response = true
	m.Opcode = r.Opcode
	m.Authoritative = true
	m.RecursionDesired = r.RecursionDesired
	m.CheckingDisabled = r.CheckingDisabled
	m.Question = q[:]
	m.Extra = opt[:0]
}

// negative is a reply without answer, in one allocation.
type negative struct {
	m   dns.Msg
	q   [1]dns.Question
	opt [1]dns.RR
	ns  [1]dns.RR
	soa dns.SOA
}

// Negative makes NODATA (rcode NOERROR) and NXDOMAIN replies (M2). owner is the zone in the case of the query (M1). The
// answer that is only pending may be cached for a second (N5).
func (z *Zone) Negative(r *dns.Msg, rcode int, owner string, serial uint32, pending bool) *dns.Msg {
	n := new(negative)
	start(&n.m, &n.q, &n.opt, r)
	n.m.Rcode = rcode
	z.soa(&n.soa, owner, serial)
	if pending {
		n.soa.Hdr.Ttl = min(n.soa.Hdr.Ttl, pendingTTL)
	}
	n.ns[0] = &n.soa
	n.m.Ns = n.ns[:]
	return &n.m
}

// SOA makes the answer for the apex.
func (z *Zone) SOA(r *dns.Msg, owner string, serial uint32) *dns.Msg {
	m := z.Negative(r, dns.RcodeSuccess, owner, serial, false)
	m.Answer, m.Ns = m.Ns, nil
	return m
}

// soa fills the zone's SOA in. Its minimum is the TTL of everything else, so a negative answer lives as long as another.
func (z *Zone) soa(s *dns.SOA, owner string, serial uint32) {
	s.Hdr = z.header(owner, dns.TypeSOA)
	s.Ns, s.Mbox = z.ns, z.mbox
	s.Serial = serial
	s.Refresh, s.Retry, s.Expire, s.Minttl = 7200, 1800, 86400, z.ttl
}

func (z *Zone) header(owner string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: rrtype, Class: dns.ClassINET, Ttl: z.ttl}
}

// VersionTXT makes the answer for dns-version (N3).
func (z *Zone) VersionTXT(r *dns.Msg) *dns.Msg {
	return z.records(r, z.version(r.Question[0].Name))
}

func (z *Zone) version(owner string) dns.RR {
	h := z.header(owner, dns.TypeTXT)
	h.Ttl = VersionTTL
	return &dns.TXT{Hdr: h, Txt: []string{Version}}
}

// NS makes the answer for the zone's name servers, with glue (N1): a family of addresses that does not fit into the client's buffer of
// limit octets is left out (M3).
func (z *Zone) NS(r *dns.Msg, owner string, limit int) *dns.Msg {
	m := z.records(r, &dns.NS{Hdr: z.header(owner, dns.TypeNS), Ns: z.ns})
	size := nameSize(owner) + fixedSize + nameSize(z.ns)
	h := z.header(z.ns, 0)
	if n := len(z.four) / 4; size+n*(nameSize(z.ns)+fixedSize+4) <= room(r, limit) {
		size += n * (nameSize(z.ns) + fixedSize + 4)
		m.Extra = append(m.Extra, fill4(make([]dns.RR, n), make([]address4, n), h, z.four)...)
	}
	if n := len(z.six) / 16; size+n*(nameSize(z.ns)+fixedSize+16) <= room(r, limit) {
		m.Extra = append(m.Extra, fill6(make([]dns.RR, n), make([]address6, n), h, z.six)...)
	}
	return m
}

// NSAddresses makes the answer for ns.dns (N2): the addresses of one family, cut to the client's buffer of limit octets; nil where there
// is none.
func (z *Zone) NSAddresses(r *dns.Msg, rrtype uint16, limit int) *dns.Msg {
	addrs := ""
	switch rrtype {
	case dns.TypeA:
		addrs = z.four
	case dns.TypeAAAA:
		addrs = z.six
	}
	if addrs == "" {
		return nil
	}
	return z.Addresses(r, rrtype, addrs, limit)
}

// records makes a reply of a few records, for names that are seldom asked.
func (z *Zone) records(r *dns.Msg, rrs ...dns.RR) *dns.Msg {
	n := new(struct {
		m   dns.Msg
		q   [1]dns.Question
		opt [1]dns.RR
	})
	start(&n.m, &n.q, &n.opt, r)
	n.m.Answer = rrs
	return &n.m
}
