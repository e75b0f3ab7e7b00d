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

// fewSRV is an SRV reply in one allocation, with as many records as a ClusterSetIP Service answers.
type fewSRV struct {
	message
	srvBuilder
	srvs    [1]dns.SRV
	answers [1]dns.RR
	extra   [3]dns.RR // two addresses and the OPT record
	as4     [1]address4
	as6     [1]address6
}

// SRV returns the answer of the targets of a Service, with their addresses in Additional. What does not fit into the
// client's buffer of limit octets is cut: glue before answers, by whole RRsets, and only cut answers set TC (M3,
// RFC 2181 §9).
func (z *Zone) SRV(r *dns.Msg, key string, targets catalog.Walk, limit int) *dns.Msg {
	owner := r.Question[0].Name
	s := new(fewSRV)
	s.begin(r)
	b := &s.srvBuilder
	b.suffix, b.left, b.offset = z.serviceName(owner, key), space(r, limit), headerSize+nameSize(owner)+4
	targets.Below(b.suffix)
	b.walk = targets
	b.measure()
	b.srv, b.rrs = atLeast(s.srvs[:], b.records), atLeast(s.answers[:], b.records)[:0]
	b.a4, b.a6 = atLeast(s.as4[:], b.most4), atLeast(s.as6[:], b.most6)
	b.glue = atLeast(s.extra[:], b.most4+b.most6+1)[:0]
	b.walk = targets // from the first again
	b.fill(z.header(owner, dns.TypeSRV))
	s.Truncated, s.Answer, s.Extra = b.cut, b.rrs, b.glue
	return &s.Msg
}

// atLeast returns few, or if that is too short, a new slice of length n.
func atLeast[T any](few []T, n int) []T {
	if n <= len(few) {
		return few
	}
	return make([]T, n)
}

// SRVRecords returns the next records of a walk over the targets of a Service, at most n, without
// the addresses of the targets. It returns none at the end.
func (z *Zone) SRVRecords(owner, key string, walk *catalog.Walk, n int) []dns.RR {
	suffix, h := z.serviceName(owner, key), z.header(owner, dns.TypeSRV)
	var rrs []dns.RR
	name, host := "", -1
	walk.Below(suffix)
	for len(rrs) < n && walk.Next() {
		if walk.HostNumber() != host {
			host, name = walk.HostNumber(), targetName(new(strings.Builder), walk, suffix)
		}
		s := newSRV(h, walk.Number(), name)
		rrs = append(rrs, &s)
	}
	return rrs
}

func newSRV(h dns.RR_Header, port uint16, target string) dns.SRV {
	return dns.SRV{Hdr: h, Priority: srvPriority, Weight: srvWeight, Port: port, Target: target}
}

// serviceName returns the name of a Service: the end of owner, without a copy, if that is in lower case.
func (z *Zone) serviceName(owner, key string) string {
	const svc = ".svc."
	zone := z.Suffix()
	if end := owner[len(owner)-len(key)-len(svc)-len(zone):]; end[:len(key)] == key &&
		end[len(key):len(key)+len(svc)] == svc && end[len(key)+len(svc):] == zone {
		return end
	}
	return key + svc + zone
}

// targetSize returns the length of a target's name, with its last dot.
func targetSize(walk *catalog.Walk, suffix string) int {
	label, cluster := walk.Host()
	if label == "" {
		return len(suffix)
	}
	return len(label) + 1 + len(cluster) + 1 + len(suffix)
}

// targetName returns a target's name, in the memory of names.
func targetName(names *strings.Builder, walk *catalog.Walk, suffix string) string {
	label, cluster := walk.Host()
	if label == "" {
		return suffix
	}
	start := names.Len()
	for _, s := range [...]string{label, ".", cluster, ".", suffix} {
		names.WriteString(s)
	}
	return names.String()[start:]
}

// srvBuilder makes an SRV answer in two walks over the targets: measure finds what fits, fill makes the records.
type srvBuilder struct {
	walk   catalog.Walk
	suffix string // of every target: the Service's own name
	left   int    // octets of the client's buffer that are not used yet
	offset int    // of the next record in the message

	records      int  // that fit
	nameOctets   int  // of the names of their targets
	most4, most6 int  // addresses of their targets, as far as they can fit
	cut          bool // some records do not fit

	srv  []dns.SRV
	rrs  []dns.RR
	glue []dns.RR
	a4   []address4
	a6   []address6
}

func recordSize(name int) int { return pointerSize + fixedSize + srvFixed + name + 1 }

func (b *srvBuilder) measure() {
	for host := -1; b.walk.Next(); {
		size := targetSize(&b.walk, b.suffix)
		if b.cut = b.left < recordSize(size); b.cut {
			break
		}
		b.left -= recordSize(size)
		b.records++
		if b.walk.HostNumber() != host {
			host = b.walk.HostNumber()
			b.nameOctets += size
			v4, v6 := b.walk.Addrs()
			b.most4 += len(v4) / 4
			b.most6 += len(v6) / 16
		}
	}
	b.most4 = min(b.most4, b.left/(pointerSize+fixedSize+4))
	b.most6 = min(b.most6, b.left/(pointerSize+fixedSize+16))
}

func (b *srvBuilder) fill(h dns.RR_Header) {
	var names strings.Builder
	name, host := "", -1
	for i := 0; i < b.records && b.walk.Next(); i++ {
		if b.walk.HostNumber() == host {
			b.add(i, h, name)
			continue
		}
		if host < 0 && b.records > 1 {
			names.Grow(b.nameOctets)
		}
		host = b.walk.HostNumber()
		name = targetName(&names, &b.walk, b.suffix)
		at := b.offset
		b.add(i, h, name)
		b.addGlue(at, h, name)
	}
}

func (b *srvBuilder) add(i int, h dns.RR_Header, target string) {
	b.srv[i] = newSRV(h, b.walk.Number(), target)
	b.rrs = append(b.rrs, &b.srv[i])
	b.offset += recordSize(len(target))
}

// addGlue adds the addresses of a target whose record begins at an offset of the message, each
// family if all of it fits.
func (b *srvBuilder) addGlue(at int, h dns.RR_Header, target string) {
	owner := pointerSize
	if at+pointerSize+fixedSize+srvFixed >= pointerEnd {
		owner = len(target) + 1
	}
	h.Name = target
	v4, v6 := b.walk.Addrs()
	if rrs := b.takeGlue(len(v4)/4, owner+fixedSize+4, len(b.a4)); rrs != nil {
		fill4(rrs, b.a4, h, v4)
		b.a4 = b.a4[len(rrs):]
	}
	if rrs := b.takeGlue(len(v6)/16, owner+fixedSize+16, len(b.a6)); rrs != nil {
		fill6(rrs, b.a6, h, v6)
		b.a6 = b.a6[len(rrs):]
	}
}

// takeGlue extends the glue by n records of a size, or returns nil if they do not fit or are more than most.
func (b *srvBuilder) takeGlue(n, size, most int) []dns.RR {
	if n == 0 || n > most || n*size > b.left {
		return nil
	}
	b.left -= n * size
	at := len(b.glue)
	b.glue = b.glue[:at+n]
	return b.glue[at:]
}
