package reply

import "github.com/miekg/dns"

// Sizes in octets, with names that stand in the message already as compression pointers (RFC 1035 §4.1.4).
const (
	headerSize  = 12
	pointerSize = 2
	fixedSize   = 10      // type, class, TTL and length of a record
	srvFixed    = 6       // priority, weight and port
	pointerEnd  = 1 << 14 // a pointer cannot reach a name that begins at or behind this offset
)

// room is what a client's buffer of limit octets leaves for records: without header, question, and the OPT and TSIG
// records that the server will append.
func room(r *dns.Msg, limit int) int {
	left := limit - headerSize - nameSize(r.Question[0].Name) - 4
	for _, rr := range r.Extra {
		if t := rr.Header().Rrtype; t == dns.TypeOPT || t == dns.TypeTSIG {
			left -= dns.Len(rr)
		}
	}
	return left
}

// nameSize is the length of an uncompressed name on the wire; an escaped octet counts for more than it takes.
func nameSize(name string) int {
	if name == "." {
		return 1
	}
	return len(name) + 1
}
