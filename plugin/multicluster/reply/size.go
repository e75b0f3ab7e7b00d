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

// plain is the size, in octets, up to which a message is sent without compression: below it, time is worth more than
// space; above it, a datagram may be fragmented (RFC 9715), and a stream is spared names that repeat (M3).
const plain = 1220

// compress decides on compression by the size that records would have without it.
func compress(m *dns.Msg, r *dns.Msg, limit, records int) {
	m.Compress = records > room(r, min(limit, plain))
}

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
