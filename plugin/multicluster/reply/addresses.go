package reply

import "github.com/miekg/dns"

type address4 struct {
	rr dns.A
	ip [4]byte
}

type address6 struct {
	rr dns.AAAA
	ip [16]byte
}

// few is how many records share the allocation of their message.
const few = 2

type few4 struct {
	m   dns.Msg
	q   [1]dns.Question
	opt [1]dns.RR
	rrs [few]dns.RR
	as  [few]address4
}

type few6 struct {
	m   dns.Msg
	q   [1]dns.Question
	opt [1]dns.RR
	rrs [few]dns.RR
	as  [few]address6
}

// Addresses makes the answer of a packed list of addresses of one family, dns.TypeA or dns.TypeAAAA, cut to the client's
// buffer of limit octets (M3).
func (z *Zone) Addresses(r *dns.Msg, rrtype uint16, addrs string, limit int) *dns.Msg {
	width := 4
	if rrtype == dns.TypeAAAA {
		width = 16
	}
	n := len(addrs) / width
	fits := max(room(r, limit)/(pointerSize+fixedSize+width), 0)
	m := z.addresses(r, rrtype, addrs, min(n, fits))
	m.Truncated = n > fits
	return m
}

func (z *Zone) addresses(r *dns.Msg, rrtype uint16, addrs string, n int) *dns.Msg {
	h := z.header(r.Question[0].Name, rrtype)
	if rrtype == dns.TypeA {
		s := new(few4)
		start(&s.m, &s.q, &s.opt, r)
		as, rrs := s.as[:], s.rrs[:]
		if n > few {
			as, rrs = make([]address4, n), make([]dns.RR, n)
		}
		s.m.Answer = fill4(rrs[:n:n], as, h, addrs)
		return &s.m
	}
	s := new(few6)
	start(&s.m, &s.q, &s.opt, r)
	as, rrs := s.as[:], s.rrs[:]
	if n > few {
		as, rrs = make([]address6, n), make([]dns.RR, n)
	}
	s.m.Answer = fill6(rrs[:n:n], as, h, addrs)
	return &s.m
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
