// Package reply makes DNS messages from what package catalog found: records, the SOA of negative answers, and glue, cut
// to the client's buffer. A reply shares no memory with the catalog or another reply, so other plugins may change it on
// its way back (docs/design.md). The package packs and compresses nothing: that is the server's job.
package reply

import (
	"net/netip"
	"slices"

	"github.com/miekg/dns"
)

// Zone is what replies need to know about the zone that they answer for.
type Zone struct {
	name      string // fully qualified, lower case
	ns, mbox  string // of the SOA: the name server, and the mailbox
	ttl       uint32
	four, six string // the IPv4 and IPv6 addresses of the name server, in bytes one after another
}

const (
	// version is the version of the DNS specification that is served (N3).
	version = "1.0.0"
	// pendingTTL is the negative TTL of a Service that has no address yet (N5), in seconds.
	pendingTTL = 1
)

// The SOA's times for secondaries, in seconds. A secondary that no NOTIFY reaches is at most one refresh behind; zones
// change often, and a check of the serial is one small query.
const (
	refresh = 60
	retry   = 30
	expire  = 86400
)

// NewZone returns a Zone with this name, TTL in seconds, and addresses of its name server (N2). It drops duplicate
// addresses.
func NewZone(name string, ttl uint32, nameservers []netip.Addr) *Zone {
	z := &Zone{name: name, ttl: ttl}
	z.ns, z.mbox = "ns.dns."+z.Suffix(), "hostmaster."+z.Suffix()
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

// Name returns the zone's name, fully qualified and in lower case.
func (z *Zone) Name() string { return z.name }

// Suffix returns the zone's name as the end of a longer name: "" for the root.
func (z *Zone) Suffix() string {
	if z.name == "." {
		return ""
	}
	return z.name
}

// TTL returns the TTL of the zone's records, in seconds.
func (z *Zone) TTL() uint32 { return z.ttl }

func (z *Zone) header(owner string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: rrtype, Class: dns.ClassINET, Ttl: z.ttl}
}

// negative is a reply without answer, in one allocation.
type negative struct {
	message
	ns  [1]dns.RR
	soa dns.SOA
}

// Negative returns a NODATA (rcode NOERROR) or NXDOMAIN reply (M2). owner is the zone's name with the upper and lower
// case letters of the question (M1). If pending, the Service will have an address soon, so resolvers may cache the
// reply for at most one second (N5).
func (z *Zone) Negative(r *dns.Msg, rcode int, owner string, serial uint32, pending bool) *dns.Msg {
	n := new(negative)
	n.begin(r)
	n.Rcode = rcode
	// Minttl equals the TTL of the zone's records, so a negative answer is cached as long as a positive one. If the TTL
	// of the SOA is lower, resolvers take that (RFC 2308 §5).
	n.soa = dns.SOA{
		Hdr: z.header(owner, dns.TypeSOA), Ns: z.ns, Mbox: z.mbox, Serial: serial,
		Refresh: refresh, Retry: retry, Expire: expire, Minttl: z.ttl,
	}
	if pending {
		n.soa.Hdr.Ttl = min(z.ttl, pendingTTL)
	}
	n.ns[0] = &n.soa
	n.Ns = n.ns[:]
	return &n.Msg
}

// SOA returns the answer for the apex.
func (z *Zone) SOA(r *dns.Msg, owner string, serial uint32) *dns.Msg {
	m := z.Negative(r, dns.RcodeSuccess, owner, serial, false)
	m.Answer, m.Ns = m.Ns, nil
	return m
}

// VersionTXT returns the answer for dns-version (N3).
func (z *Zone) VersionTXT(r *dns.Msg) *dns.Msg {
	return answer(r, &dns.TXT{Hdr: z.header(r.Question[0].Name, dns.TypeTXT), Txt: []string{version}})
}

// NS returns the answer for the zone's name servers, with glue (N1). A family of addresses that does not fit into the
// client's buffer of limit octets is left out (M3).
func (z *Zone) NS(r *dns.Msg, owner string, limit int) *dns.Msg {
	m := answer(r, &dns.NS{Hdr: z.header(owner, dns.TypeNS), Ns: z.ns})
	left := space(r, limit) - nameSize(owner) - fixedSize - nameSize(z.ns)
	for _, rrtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		glue := z.AddressRecords(z.ns, rrtype, z.nsAddresses(rrtype))
		if size := len(glue) * (nameSize(z.ns) + fixedSize + AddressSize(rrtype)); size <= left {
			left -= size
			m.Extra = append(m.Extra, glue...)
		}
	}
	return m
}

// NSAddresses returns the answer for ns.dns (N2): the addresses of one family, cut to the client's buffer of limit
// octets. It returns nil if the family has no address.
func (z *Zone) NSAddresses(r *dns.Msg, rrtype uint16, limit int) *dns.Msg {
	addrs := z.nsAddresses(rrtype)
	if addrs == "" {
		return nil
	}
	return z.Addresses(r, rrtype, addrs, limit)
}

func (z *Zone) nsAddresses(rrtype uint16) string {
	switch rrtype {
	case dns.TypeA:
		return z.four
	case dns.TypeAAAA:
		return z.six
	}
	return ""
}

// CNAME returns the answer of a name that stands for another one, target.
func (z *Zone) CNAME(r *dns.Msg, target string) *dns.Msg {
	return answer(r, &dns.CNAME{Hdr: z.header(r.Question[0].Name, dns.TypeCNAME), Target: target})
}

func answer(r *dns.Msg, rrs ...dns.RR) *dns.Msg {
	m := new(message)
	m.begin(r)
	m.Answer = rrs
	return &m.Msg
}
