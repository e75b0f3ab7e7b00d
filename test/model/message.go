package model

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// Question is a question of class IN.
type Question struct {
	Name string
	Type uint16
}

func (q Question) String() string { return q.Name + " " + dns.TypeToString[q.Type] }

// Message is the whole reply as a server without a limit of size would send it. It is nil for NotOurs.
func (r Reply) Message(q Question) *dns.Msg {
	if r.Outcome == NotOurs {
		return nil
	}
	msg := new(dns.Msg)
	msg.SetQuestion(dns.Fqdn(q.Name), q.Type)
	msg.Response = true
	if r.Outcome == Refused {
		msg.Rcode = dns.RcodeRefused
		return msg
	}
	msg.Authoritative = true // M1
	if r.Outcome == NameError {
		msg.Rcode = dns.RcodeNameError
	}
	if r.Outcome != Success {
		msg.Ns = []dns.RR{r.parse(r.Zone+" SOA *", r.NegativeTTL)} // M2
		return msg
	}
	for _, text := range r.Answer {
		rr := r.parse(text, r.TTL)
		rr.Header().Name = msg.Question[0].Name // M1
		msg.Answer = append(msg.Answer, rr)
	}
	for _, text := range r.Extra {
		msg.Extra = append(msg.Extra, r.parse(text, r.ExtraTTL))
	}
	return msg
}

// parse reads a record of the model; it panics where the model wrote what is no record.
func (r Reply) parse(text string, ttl uint32) dns.RR {
	if owner, ok := strings.CutSuffix(text, " SOA *"); ok {
		text = fmt.Sprintf("%s SOA ns.dns.%s hostmaster.%s 1 60 30 86400 %d", owner, r.Zone, r.Zone, r.NegativeTTL)
	}
	rr, err := dns.NewRR(text)
	if err != nil {
		panic(fmt.Sprintf("model: %q is no record: %v", text, err))
	}
	rr.Header().Ttl = ttl
	return rr
}

// Canonical writes a record the way the model does: "owner TYPE data" with owner and names in lower case, no TTL, and
// nothing of a SOA but that it is one. Use it to compare a transfer with Zone.
func Canonical(rr dns.RR) string {
	head := dns.CanonicalName(rr.Header().Name) + " " + dns.Type(rr.Header().Rrtype).String() + " "
	switch rr := rr.(type) {
	case *dns.SOA:
		return head + "*"
	case *dns.A:
		if addr, ok := netip.AddrFromSlice(rr.A); ok {
			return head + addr.Unmap().String()
		}
		return head + "without address"
	case *dns.AAAA:
		if addr, ok := netip.AddrFromSlice(rr.AAAA); ok {
			return head + addr.String()
		}
		return head + "without address"
	case *dns.NS:
		return head + dns.CanonicalName(rr.Ns)
	case *dns.SRV:
		return head + fmt.Sprintf("%d %d %d %s", rr.Priority, rr.Weight, rr.Port, dns.CanonicalName(rr.Target))
	}
	return head + strings.TrimPrefix(rr.String(), rr.Header().String())
}
