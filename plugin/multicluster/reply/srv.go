package reply

import (
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/miekg/dns"
)

const (
	srvPriority = 0
	srvWeight   = 100
)

// few records of each kind share the allocation of an SRV reply: what a ClusterSetIP Service answers. So does the work on it, which a
// new goroutine's stack would have to grow for.
type fewSRV struct {
	b    srvBuilder
	m    dns.Msg
	q    [1]dns.Question
	opt  [1]dns.RR
	srv  [1]dns.SRV
	rrs  [1]dns.RR
	glue [3]dns.RR // two addresses and the OPT record
	a4   [1]address4
	a6   [1]address6
}

// SRV makes the answer of the targets of a Service, with the addresses of the targets in Additional, cut to the client's
// buffer of limit octets: glue goes before answers do, and only answers that went set TC (M3, RFC 2181 §9). Glue goes by
// whole RRsets.
func (z *Zone) SRV(r *dns.Msg, key string, targets catalog.Targets, limit int) *dns.Msg {
	owner := r.Question[0].Name
	s := new(fewSRV)
	start(&s.m, &s.q, &s.opt, r)
	b := &s.b
	b.suffix, b.left, b.off = z.serviceName(owner, key), room(r, limit), headerSize+nameSize(owner)+4
	b.walk = targets.Walk()
	b.plan()
	b.srv, b.rrs, b.glue, b.a4, b.a6 = s.srv[:], s.rrs[:0], s.glue[:0], s.a4[:], s.a6[:]
	if b.records > len(s.srv) {
		b.srv, b.rrs = make([]dns.SRV, b.records), make([]dns.RR, 0, b.records)
	}
	if b.most4 > len(s.a4) {
		b.a4 = make([]address4, b.most4)
	}
	if b.most6 > len(s.a6) {
		b.a6 = make([]address6, b.most6)
	}
	if b.most4+b.most6 >= len(s.glue) {
		b.glue = make([]dns.RR, 0, b.most4+b.most6+1)
	}
	b.fill(z.header(owner, dns.TypeSRV))
	s.m.Truncated, s.m.Answer, s.m.Extra = b.cut, b.rrs, b.glue
	return &s.m
}

// serviceName is the name of a Service: the end of the owner's where that is in lower case, without a copy.
func (z *Zone) serviceName(owner, key string) string {
	const svc = ".svc."
	zone := z.name
	if zone == "." {
		zone = ""
	}
	if end := owner[len(owner)-len(key)-len(svc)-len(zone):]; end[:len(key)] == key &&
		end[len(key):len(key)+len(svc)] == svc && end[len(key)+len(svc):] == zone {
		return end
	}
	return key + svc + zone
}

// srvBuilder makes an SRV answer in two walks over the targets: plan measures, fill makes.
type srvBuilder struct {
	walk   catalog.Walk
	suffix string // of every target: the Service's own name
	left   int    // octets of the client's buffer that are not used yet
	off    int    // of the next record in the message

	records      int  // that fit
	names        int  // octets of the names of their targets
	most4, most6 int  // addresses of their targets, as far as they can fit
	cut          bool // some records do not fit

	srv  []dns.SRV
	rrs  []dns.RR
	glue []dns.RR
	a4   []address4
	a6   []address6
}

// size is the length of a target's name, with its last dot; more than catalog.MaxName if DNS cannot have it.
func (b *srvBuilder) size() int {
	label, cluster := b.walk.Host()
	if label == "" {
		return len(b.suffix)
	}
	return len(label) + 1 + len(cluster) + 1 + len(b.suffix)
}

func recordSize(name int) int { return pointerSize + fixedSize + srvFixed + name + 1 }

func (b *srvBuilder) plan() {
	t := &b.walk
	for last := -1; t.Next(); {
		size := b.size()
		if size > catalog.MaxName {
			continue
		}
		if b.left < recordSize(size) {
			b.cut = true
			break
		}
		b.left -= recordSize(size)
		b.records++
		if t.Index() != last {
			last = t.Index()
			b.names += size
			v4, v6 := t.Addrs()
			b.most4 += len(v4) / 4
			b.most6 += len(v6) / 16
		}
	}
	b.most4 = min(b.most4, b.left/(pointerSize+fixedSize+4))
	b.most6 = min(b.most6, b.left/(pointerSize+fixedSize+16))
}

func (b *srvBuilder) fill(h dns.RR_Header) {
	t := &b.walk
	t.Restart()
	var names strings.Builder
	name, last := "", -1
	for i := 0; i < b.records && t.Next(); {
		size := b.size()
		if size > catalog.MaxName {
			continue
		}
		first := t.Index() != last
		if first {
			last = t.Index()
			name = b.name(&names)
		}
		s := &b.srv[i]
		*s = dns.SRV{Hdr: h, Priority: srvPriority, Weight: srvWeight, Port: t.Number(), Target: name}
		b.rrs = append(b.rrs, s)
		if first {
			b.addGlue(name, h)
		}
		b.off += recordSize(size)
		i++
	}
}

// name is the target's. All names share one allocation.
func (b *srvBuilder) name(names *strings.Builder) string {
	label, cluster := b.walk.Host()
	if label == "" {
		return b.suffix
	}
	if names.Cap() == 0 {
		names.Grow(b.names)
	}
	start := names.Len()
	names.WriteString(label)
	names.WriteByte('.')
	names.WriteString(cluster)
	names.WriteByte('.')
	names.WriteString(b.suffix)
	return names.String()[start:]
}

// addGlue adds the addresses of a target whose record begins at b.off, each family if all of it fits.
func (b *srvBuilder) addGlue(name string, h dns.RR_Header) {
	owner := pointerSize
	if b.off+pointerSize+fixedSize+srvFixed >= pointerEnd {
		owner = len(name) + 1
	}
	h.Name = name
	v4, v6 := b.walk.Addrs()
	if n := len(v4) / 4; n > 0 && n <= len(b.a4) && n*(owner+fixedSize+4) <= b.left {
		b.left -= n * (owner + fixedSize + 4)
		at := len(b.glue)
		b.glue = b.glue[:at+n]
		fill4(b.glue[at:], b.a4, h, v4)
		b.a4 = b.a4[n:]
	}
	if n := len(v6) / 16; n > 0 && n <= len(b.a6) && n*(owner+fixedSize+16) <= b.left {
		b.left -= n * (owner + fixedSize + 16)
		at := len(b.glue)
		b.glue = b.glue[:at+n]
		fill6(b.glue[at:], b.a6, h, v6)
		b.a6 = b.a6[n:]
	}
}
