package integration

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// A Service of the churn is three objects, which come by two watches: its import, and a slice of each of two clusters.
// Each object has versions, written one after the other, and what it is in a version follows from the seed. Its
// addresses and ports name the version,
// so that an answer tells what it was made of.
const (
	theImport = iota
	firstSlice
	secondSlice
	parts

	churnZone  = "clusterset.local."
	churnAlias = "alias.test."

	lastVersion   = 1<<12 - 1 // that fits into an address
	mostEndpoints = 4
)

// versions of the objects of one Service.
type versions [parts]int

// state of an object in one of its versions.
type state struct {
	there    bool
	headless bool // an import
	ready    int  // endpoints of a slice
}

// stateOf is the state of a part of Service i. In version 0 every other import exists, and every twentieth Service is
// Headless.
func stateOf(seed uint64, i, part, v int) state {
	h := rand.NewPCG(seed, uint64(i<<16|part<<12|v)).Uint64()
	dice, other := h%8, int(h>>32)
	switch {
	case part == theImport && v == 0:
		return state{there: i%2 == 0, headless: i%20 == 0}
	case part == theImport:
		return state{there: dice > 0, headless: other%2 == 0}
	case v == 0 && i%20 == 0:
		return state{there: true, ready: 1 + other%mostEndpoints}
	case v == 0 || dice == 0:
		return state{}
	}
	return state{there: true, ready: other % (mostEndpoints + 1)}
}

func churnName(i int) string      { return fmt.Sprintf("s%d", i) }
func churnNamespace(i int) string { return fmt.Sprintf("churn%d", i%churnNamespaces) }
func churnPort(v int) int         { return 1000 + v }

// churnAddress is endpoint k of a part, in 32 bits: 2 of the part, 14 of the Service, 12 of the version, 4 of the
// endpoint.
func churnAddress(i, part, v, k int) netip.Addr {
	i += 256 // no address begins with 0
	return netip.AddrFrom4([4]byte{byte(part<<6 | i>>8), byte(i), byte(v >> 4), byte(v<<4 | k)})
}

func churnAddress6(i, part, v, k int) netip.Addr {
	four := churnAddress(i, part, v, k).As4()
	return netip.AddrFrom16([16]byte{0: 0xfd, 12: four[0], 13: four[1], 14: four[2], 15: four[3]})
}

// churnQuestion is one of those that are asked about a Service: labels before its name, and a type.
type churnQuestion struct {
	prefix string
	qtype  uint16
}

var churnQuestions = []churnQuestion{
	{"", dns.TypeA},
	{"", dns.TypeAAAA},
	{"", dns.TypeSRV},
	{"_http._tcp.", dns.TypeSRV},
	{"h0.c1.", dns.TypeA},
	{
		"h1.c1.",
		dns.TypeA,
	},
	{"h2.c1.", dns.TypeA},
	{"h3.c1.", dns.TypeA},
	{"h0.c2.", dns.TypeA},
	{"h3.c2.", dns.TypeA},
	{"h0.c2.", dns.TypeAAAA},
}

// churnAnswer is a reply, or what it should be: records by owner, type and data, sorted.
type churnAnswer struct {
	rcode         int
	answer, extra []string
}

// rightAnswer is what DNS.md says of Service i in these versions (N5 to N9).
func rightAnswer(seed uint64, i int, q churnQuestion, v versions) churnAnswer {
	type target struct {
		name   string
		part   int
		k      int
		number int
	}
	self := fmt.Sprintf("%s.%s.svc.%s", churnName(i), churnNamespace(i), churnZone)
	var targets []target
	switch imp := stateOf(seed, i, theImport, v[theImport]); {
	case imp.there && imp.headless:
		for part := firstSlice; part < parts; part++ {
			for k := range stateOf(seed, i, part, v[part]).ready {
				targets = append(targets, target{fmt.Sprintf("h%d.c%d.%s", k, part, self), part, k, churnPort(v[part])})
			}
		}
	case imp.there:
		targets = append(targets, target{self, theImport, 0, churnPort(v[theImport])})
	}
	if strings.HasPrefix(q.prefix, "h") { // a host name
		targets = slices.DeleteFunc(targets, func(t target) bool { return t.name != q.prefix+self })
	}
	if len(targets) == 0 {
		return churnAnswer{rcode: dns.RcodeNameError}
	}
	var out churnAnswer
	for _, t := range targets {
		four := fmt.Sprintf("A %v", churnAddress(i, t.part, v[t.part], t.k))
		six := fmt.Sprintf("AAAA %v", churnAddress6(i, t.part, v[t.part], t.k))
		switch {
		case q.qtype == dns.TypeA:
			out.answer = append(out.answer, q.prefix+self+" "+four)
		case q.qtype == dns.TypeAAAA && t.part == theImport:
			out.answer = append(out.answer, q.prefix+self+" "+six)
		case q.qtype == dns.TypeSRV:
			out.answer = append(out.answer, fmt.Sprintf("%s%s SRV %d %s", q.prefix, self, t.number, t.name))
			out.extra = append(out.extra, t.name+" "+four)
			if t.part == theImport {
				out.extra = append(out.extra, t.name+" "+six)
			}
		}
	}
	slices.Sort(out.answer)
	slices.Sort(out.extra)
	return out
}

func answerIn(m *dns.Msg) churnAnswer {
	return churnAnswer{m.Rcode, churnRecords(m.Answer), churnRecords(m.Extra)}
}

func churnRecords(section []dns.RR) (out []string) {
	// Of names that the cache has from somebody who asked in upper case, rewrite does not find the suffix that it is to
	// put back.
	inZone := func(name string) string {
		name = strings.ToLower(name)
		if labels, ok := strings.CutSuffix(name, churnAlias); ok {
			return labels + churnZone
		}
		return name
	}
	for _, rr := range section {
		owner := inZone(rr.Header().Name)
		switch rr := rr.(type) {
		case *dns.A:
			out = append(out, fmt.Sprintf("%s A %v", owner, rr.A))
		case *dns.AAAA:
			out = append(out, fmt.Sprintf("%s AAAA %v", owner, rr.AAAA))
		case *dns.SRV:
			out = append(out, fmt.Sprintf("%s SRV %d %s", owner, rr.Port, inZone(rr.Target)))
		case *dns.OPT, *dns.RRSIG:
		default:
			out = append(out, rr.String()) // nothing explains it
		}
	}
	slices.Sort(out)
	return out
}

func (a churnAnswer) equal(b churnAnswer) bool {
	return a.rcode == b.rcode && slices.Equal(a.answer, b.answer) && slices.Equal(a.extra, b.extra)
}

// explain looks for versions, none before least and none after most, whose right answer is this reply. Of each part it
// gives the least version among all that are: no later question may be answered from one before that. All parts are
// free of each other, since nothing
// says how two watches keep pace; but within a part no endpoint may be of another version than the rest (L3).
func explain(
	seed uint64,
	i int,
	q churnQuestion,
	m *dns.Msg,
	signed bool,
	least, most versions,
) (explained versions, ok bool) {
	got := answerIn(m)
	shown := versionsIn(m)
	var tries [parts][]int
	for part := range parts {
		switch {
		case shown[part] >= 0:
			if shown[part] >= least[part] && shown[part] <= most[part] {
				tries[part] = []int{shown[part]}
			}
		case shown[theImport] >= 0: // ClusterSetIP: slices do not matter
			tries[part] = []int{least[part]}
		default:
			tries[part] = differing(seed, i, part, least[part], most[part])
		}
	}
	for _, a := range tries[theImport] {
		for _, b := range tries[firstSlice] {
			for _, c := range tries[secondSlice] {
				want := rightAnswer(seed, i, q, versions{a, b, c})
				if signed && want.rcode == dns.RcodeNameError {
					want.rcode = dns.RcodeSuccess // dnssec denies by an NSEC record made for the question
				}
				if !got.equal(want) {
					continue
				}
				if !ok {
					explained, ok = versions{a, b, c}, true
				}
				explained = versions{min(a, explained[0]), min(b, explained[1]), min(c, explained[2])}
			}
		}
	}
	return explained, ok
}

// versionsIn are those that the addresses of a reply show, -1 for a part that it has none of. Of two versions of one
// part either will do:
// nothing explains such a reply.
func versionsIn(m *dns.Msg) versions {
	shown := versions{-1, -1, -1}
	for _, rr := range slices.Concat(m.Answer, m.Extra) {
		var addr []byte
		switch rr := rr.(type) {
		case *dns.A:
			addr = rr.A.To4()
		case *dns.AAAA:
			addr = rr.AAAA[12:]
		default:
			continue
		}
		if part := addr[0] >> 6; part < parts {
			shown[part] = int(addr[2])<<4 | int(addr[3])>>4
		}
	}
	return shown
}

// differing are versions of a part, the least of each state.
func differing(seed uint64, i, part, least, most int) (out []int) {
	var seen []state
	for v := least; v <= most; v++ {
		if s := stateOf(seed, i, part, v); !slices.Contains(seen, s) {
			seen, out = append(seen, s), append(out, v)
		}
	}
	return out
}
