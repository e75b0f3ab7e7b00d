package reply

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// Pack appends the wire format of a reply to buf (RFC 1035 §4), with all owner names compressed. It is for replies that this package
// made and the server added an OPT record to: it knows where their names repeat and looks none up. What it gives unpacks to the same
// message as what m.Pack gives. ok is false for a message that it cannot write.
func Pack(buf []byte, m *dns.Msg) (wire []byte, ok bool) {
	p := packer{buf: buf, start: len(buf), question: m.Question[0].Name}
	if strings.IndexByte(p.question, '\\') >= 0 || m.Rcode > 0xF {
		return buf, false
	}
	p.header(m)
	p.name(p.question)
	p.uint16(m.Question[0].Qtype)
	p.uint16(m.Question[0].Qclass)
	p.targets, p.targetAt = m.Answer, len(p.buf)-p.start
	for _, rrs := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range rrs {
			if !p.record(rr) {
				return buf, false
			}
		}
	}
	return p.buf, true
}

type packer struct {
	buf      []byte
	start    int    // of the message in buf
	question string // its name stands behind the header
	tail     string // the end of it that a name before ended in too: most do, in the zone

	// Glue stands in the order of the SRV records whose targets it belongs to: targets are those records from the one that the last
	// glue belonged to on, and targetAt is where that record begins in the message.
	targets  []dns.RR
	targetAt int
}

func (p *packer) header(m *dns.Msg) {
	bits := uint16(m.Opcode)<<11 | uint16(m.Rcode) |
		flag(m.Response, 15) | flag(m.Authoritative, 10) | flag(m.Truncated, 9) | flag(m.RecursionDesired, 8) |
		flag(m.RecursionAvailable, 7) | flag(m.AuthenticatedData, 5) | flag(m.CheckingDisabled, 4)
	for _, v := range [...]uint16{m.Id, bits, 1, uint16(len(m.Answer)), uint16(len(m.Ns)), uint16(len(m.Extra))} {
		p.uint16(v)
	}
}

func flag(set bool, bit int) uint16 {
	if set {
		return 1 << bit
	}
	return 0
}

func (p *packer) uint16(v uint16) { p.buf = binary.BigEndian.AppendUint16(p.buf, v) }

// pointer to an offset in the message (RFC 1035 §4.1.4).
func (p *packer) pointer(at int) { p.uint16(0xC000 | uint16(at)) }

// name writes a whole name.
func (p *packer) name(name string) {
	if name != "." {
		p.labels(name)
	}
	p.buf = append(p.buf, 0)
}

// target writes the name of an SRV target, whole: RFC 2782 wants no pointer. A ClusterSetIP's is what the question ends in.
func (p *packer) target(name string) {
	if at := len(p.question) - len(name); p.ends(at, name) {
		p.buf = append(p.buf, p.buf[p.start+headerSize+at:][:len(name)+1]...)
		return
	}
	p.name(name)
}

// ends tells whether these are the question's labels from an offset on.
func (p *packer) ends(at int, name string) bool {
	return (at == 0 || at > 0 && p.question[at-1] == '.') && p.question[at:] == name
}

// shortened writes a name, ending in a pointer to the part of it that the question ends in too.
func (p *packer) shortened(name string) {
	own := len(name) - len(p.tail)
	if p.tail == "" || own < 0 || name[own:] != p.tail || own > 0 && name[own-1] != '.' {
		own = p.join(name)
	}
	if own == len(name) {
		p.name(name)
		return
	}
	p.labels(name[:own])
	p.pointer(headerSize + len(p.question) - len(p.tail)) // a label and its dot take as many octets as a label and its length
}

// join finds the part of a name that the question ends in too, and keeps it: most names have it in common, the zone.
func (p *packer) join(name string) (own int) {
	for own < len(name)-1 {
		rest := name[own:]
		at := len(p.question) - len(rest)
		if p.ends(at, rest) {
			p.tail = rest
			return own
		}
		own += strings.IndexByte(rest, '.') + 1
	}
	return len(name)
}

// labels writes labels that each end in a dot: the octet before a label, or the dot before it, becomes its length.
func (p *packer) labels(labels string) {
	switch labels { // what every negative reply has
	case nsLabels:
		p.buf = append(p.buf, "\x02ns\x03dns"...)
		return
	case mboxLabels:
		p.buf = append(p.buf, "\x0ahostmaster"...)
		return
	}
	at := len(p.buf)
	p.buf = append(append(p.buf, 0), labels...)
	for labels != "" {
		n := strings.IndexByte(labels, '.')
		p.buf[at] = byte(n)
		at, labels = at+1+n, labels[n+1:]
	}
	p.buf = p.buf[:at]
}

// record writes one record. Those with addresses are written in one piece: large answers consist of them.
func (p *packer) record(rr dns.RR) bool {
	switch rr := rr.(type) {
	case *dns.A:
		p.owner(&rr.Hdr, 4)
		p.buf = append(p.buf, rr.A...)
	case *dns.AAAA:
		p.owner(&rr.Hdr, 16)
		p.buf = append(p.buf, rr.AAAA...)
	case *dns.SRV:
		p.owner(&rr.Hdr, srvFixed+len(rr.Target)+1)
		p.uint16(rr.Priority)
		p.uint16(rr.Weight)
		p.uint16(rr.Port)
		p.target(rr.Target)
	case *dns.NS:
		p.owner(&rr.Hdr, 0)
		data := len(p.buf)
		p.shortened(rr.Ns)
		p.size(data)
	case *dns.SOA:
		p.owner(&rr.Hdr, 0)
		data := len(p.buf)
		p.shortened(rr.Ns)
		p.shortened(rr.Mbox)
		var numbers [20]byte
		for i, v := range [...]uint32{rr.Serial, rr.Refresh, rr.Retry, rr.Expire, rr.Minttl} {
			binary.BigEndian.PutUint32(numbers[4*i:], v)
		}
		p.buf = append(p.buf, numbers[:]...)
		p.size(data)
	default: // OPT, and what is asked seldom
		at := len(p.buf)
		p.buf = slices.Grow(p.buf, dns.Len(rr))
		off, err := dns.PackRR(rr, p.buf[p.start:cap(p.buf)], at-p.start, nil, false)
		if err != nil {
			return false
		}
		p.buf = p.buf[:p.start+off]
	}
	return true
}

// size fills in the length of a record's data that began at an offset of the buffer.
func (p *packer) size(data int) { binary.BigEndian.PutUint16(p.buf[data-2:], uint16(len(p.buf)-data)) }

// owner writes what every record begins with; size is that of its data.
func (p *packer) owner(h *dns.RR_Header, size int) {
	switch {
	case h.Name == p.question:
		p.pointer(headerSize)
	case p.glue(h.Name):
	default:
		p.shortened(h.Name)
	}
	p.buf = append(p.buf, byte(h.Rrtype>>8), byte(h.Rrtype), byte(h.Class>>8), byte(h.Class),
		byte(h.Ttl>>24), byte(h.Ttl>>16), byte(h.Ttl>>8), byte(h.Ttl), byte(size>>8), byte(size))
}

// glue points to the SRV target of that name, if one from the last one on has it.
func (p *packer) glue(name string) bool {
	at := p.targetAt
	for i, rr := range p.targets {
		srv, ok := rr.(*dns.SRV)
		if !ok {
			return false
		}
		if target := at + pointerSize + fixedSize + srvFixed; srv.Target == name && target < pointerEnd {
			if target >= len(p.buf)-p.start { // not written yet: this is an answer
				return false
			}
			p.targets, p.targetAt = p.targets[i:], at
			p.pointer(target)
			return true
		}
		at += recordSize(len(srv.Target))
	}
	return false
}
