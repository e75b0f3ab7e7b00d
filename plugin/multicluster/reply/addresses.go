package reply

import "github.com/miekg/dns"

// MinAddressRecord is how many octets of a reply an address takes at least.
const MinAddressRecord = pointerSize + fixedSize + 4

type address4 struct {
	rr dns.A
	ip [4]byte
}

type address6 struct {
	rr dns.AAAA
	ip [16]byte
}

// Addresses returns the answer of a packed list of addresses of one family, dns.TypeA or
// dns.TypeAAAA. What does not fit into the client's buffer of limit octets is cut from the end
// (M3).
func (z *Zone) Addresses(r *dns.Msg, rrtype uint16, addrs string, limit int) *dns.Msg {
	width := AddressSize(rrtype)
	fits := max(space(r, limit)/(pointerSize+fixedSize+width), 0)
	cut := len(addrs)/width > fits
	if cut {
		addrs = addrs[:fits*width]
	}
	m := answer(r, z.AddressRecords(r.Question[0].Name, rrtype, addrs)...)
	m.Truncated = cut
	return m
}

// AddressRecords returns the records of a packed list of addresses of one family.
func (z *Zone) AddressRecords(owner string, rrtype uint16, addrs string) []dns.RR {
	h := z.header(owner, rrtype)
	n := len(addrs) / AddressSize(rrtype)
	if rrtype == dns.TypeA {
		return fill4(make([]dns.RR, n), make([]address4, n), h, addrs)
	}
	return fill6(make([]dns.RR, n), make([]address6, n), h, addrs)
}

// AddressSize returns how many octets an address of dns.TypeA or dns.TypeAAAA takes.
func AddressSize(rrtype uint16) int {
	if rrtype == dns.TypeA {
		return 4
	}
	return 16
}

// fill4 makes len(rrs) A records of packed addresses, in the memory of as.
func fill4(rrs []dns.RR, as []address4, h dns.RR_Header, addrs string) []dns.RR {
	h.Rrtype = dns.TypeA
	for i := range rrs {
		a := &as[i]
		copy(a.ip[:], addrs[i*4:])
		a.rr.Hdr, a.rr.A = h, a.ip[:]
		rrs[i] = &a.rr
	}
	return rrs
}

// fill6 is fill4 for AAAA.
func fill6(rrs []dns.RR, as []address6, h dns.RR_Header, addrs string) []dns.RR {
	h.Rrtype = dns.TypeAAAA
	for i := range rrs {
		a := &as[i]
		copy(a.ip[:], addrs[i*16:])
		a.rr.Hdr, a.rr.AAAA = h, a.ip[:]
		rrs[i] = &a.rr
	}
	return rrs
}
