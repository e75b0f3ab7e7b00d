package reply

import "github.com/miekg/dns"

// message is a reply with the memory of its question section and of the OPT record that the server adds.
type message struct {
	dns.Msg
	question [1]dns.Question
	opt      [1]dns.RR
}

// begin makes m the authoritative reply to r, without records.
func (m *message) begin(r *dns.Msg) {
	m.question[0] = r.Question[0]
	m.Id = r.Id
	m.Response = true
	m.Opcode = r.Opcode
	m.Authoritative = true
	m.RecursionDesired = r.RecursionDesired
	m.CheckingDisabled = r.CheckingDisabled
	m.Question = m.question[:]
	m.Extra = m.opt[:0]
}

// Sizes in octets. Names that stand in the message already take a compression pointer (RFC 1035 §4.1.4).
const (
	headerSize  = 12
	pointerSize = 2
	fixedSize   = 10      // type, class, TTL and length of a record
	srvFixed    = 6       // priority, weight and port
	pointerEnd  = 1 << 14 // a pointer cannot reach a name from this offset on
)

// space returns how many octets of a client's buffer of limit octets are left for records: without
// header, question, and the OPT record that the server adds.
func space(r *dns.Msg, limit int) int {
	left := limit - headerSize - nameSize(r.Question[0].Name) - 4
	if opt := r.IsEdns0(); opt != nil {
		left -= dns.Len(opt)
	}
	return left
}

// nameSize returns the length of an uncompressed name on the wire, or more if it has escaped octets or is the root.
func nameSize(name string) int { return len(name) + 1 }

// Explain adds the cause of an error to the reply m, as code and text, if the question has EDNS and the client's buffer
// of limit octets takes it (RFC 8914). The server completes the OPT record.
func Explain(m, r *dns.Msg, code uint16, text string, limit int) {
	if r.IsEdns0() == nil {
		return
	}
	opt := &dns.OPT{
		Hdr:    dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT},
		Option: []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: code, ExtraText: text}},
	}
	if m.Len()+dns.Len(opt) <= limit {
		m.Extra = append(m.Extra, opt)
	}
}
