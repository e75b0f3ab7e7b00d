package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/miekg/dns"
)

// remember keeps, by the second, what had been seen before the cache took up anything that it still holds.
func (c *churn) remember(ctx context.Context) {
	var seconds []*[churned]versions
	for ctx.Err() == nil {
		now := new([churned]versions)
		for i := range now {
			now[i] = load(&c.seen[i])
		}
		if seconds = append(seconds, now); len(seconds) > churnCached {
			c.aged.Store(seconds[0])
			seconds = seconds[1:]
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func load(from *[parts]atomic.Int32) (v versions) {
	for part := range parts {
		v[part] = int(from[part].Load())
	}
	return v
}

// way is how a question is asked.
type way struct {
	chained, signed bool
	network         string
	zone            string
}

// askSomething asks one question. What is answered directly is not older than any answer before; from the cache it may
// be.
func (c *churn) askSomething(r *rand.Rand) {
	i := r.IntN(churned)
	if r.IntN(4) > 0 {
		i = r.IntN(churnedHot)
	}
	w := way{network: "udp", zone: churnZone}
	if r.IntN(8) == 0 {
		w.network = "tcp"
	}
	least := load(&c.seen[i])
	if w.chained = r.IntN(2) == 0; w.chained {
		w.signed = r.IntN(3) == 0
		if r.IntN(3) == 0 {
			w.zone = churnAlias
		}
		least = versions{}
		if aged := c.aged.Load(); aged != nil {
			least = aged[i]
		}
	}
	q := churnQuestions[r.IntN(len(churnQuestions))]
	m, err := c.ask(r, i, q, w)
	if err != nil {
		c.Error(err)
		return
	}
	c.asked.Add(1)
	most := load(&c.tried[i])
	explained, ok := explain(c.seed, i, q, m, w.signed, least, most)
	if !ok {
		c.Errorf(
			"%+v: no versions from %v to %v of its import and slices give this answer (L3):\n%v",
			w,
			least,
			most,
			m,
		)
		return
	}
	for part := range parts {
		raise(&c.seen[i][part], int32(explained[part]))
	}
	switch {
	case len(m.Answer) > 0 && w.signed:
		c.kinds[3].Add(1)
	case len(m.Answer) > 0:
		c.kinds[0].Add(1)
	case m.Rcode == dns.RcodeSuccess:
		c.kinds[1].Add(1)
	default:
		c.kinds[2].Add(1)
	}
}

func raise(v *atomic.Int32, to int32) {
	for now := v.Load(); now < to && !v.CompareAndSwap(now, to); now = v.Load() {
	}
}

// ask asks with letters of random case, and looks at all of the reply but at what it says of the Service.
func (c *churn) ask(r *rand.Rand, i int, q churnQuestion, w way) (*dns.Msg, error) {
	name := strings.Map(func(letter rune) rune {
		if r.IntN(3) == 0 {
			return unicode.ToUpper(letter)
		}
		return letter
	}, fmt.Sprintf("%s%s.%s.svc.%s", q.prefix, churnName(i), churnNamespace(i), w.zone))
	addr := c.direct
	if w.chained {
		addr = c.chain
	}
	m, err := exchange(addr, w.network, name, q.qtype, w.signed)
	if err != nil {
		return nil, fmt.Errorf(
			"%s %s, %+v: %w",
			name,
			dns.TypeToString[q.qtype],
			w,
			err,
		) // what cannot be packed is not answered, either (M5)
	}
	soas := 0
	for _, rr := range m.Ns {
		if rr.Header().Rrtype == dns.TypeSOA {
			soas++
		}
	}
	switch {
	case len(m.Question) != 1 || m.Question[0].Name != name || m.Question[0].Qtype != q.qtype:
		return nil, fmt.Errorf("%s %s came back as another question (M1):\n%v", name, dns.TypeToString[q.qtype], m)
	case !m.Authoritative || m.Truncated || len(m.Answer) == 0 && soas != 1 || len(m.Answer) > 0 && len(m.Ns) > 0:
		return nil, fmt.Errorf("not a whole and authoritative answer with or without an SOA (M1, M2):\n%v", m)
	}
	for _, rr := range m.Answer {
		if !w.chained && rr.Header().Name != name { // the cache gives records in the case in which it was asked first
			return nil, fmt.Errorf("%s is answered with records of another (M1):\n%v", name, m)
		}
	}
	if w.signed && w.zone == churnZone { // under the alias the names are not those that were signed
		return m, verify(c.key, m)
	}
	return m, nil
}

// verify checks the signatures of an answer: records that were changed after they were signed do not fit theirs.
func verify(key *dns.DNSKEY, m *dns.Msg) error {
	var set []dns.RR
	var signatures []*dns.RRSIG
	for _, rr := range m.Answer {
		if s, ok := rr.(*dns.RRSIG); ok {
			signatures = append(signatures, s)
		} else {
			set = append(set, rr)
		}
	}
	if len(set) > 0 && len(signatures) != 1 {
		return fmt.Errorf("%d signatures of one RRset:\n%v", len(signatures), m)
	}
	for _, s := range signatures {
		if err := s.Verify(key, set); err != nil {
			return fmt.Errorf("a signature of other records: %w:\n%v", err, m)
		}
	}
	return nil
}

// exchange asks one question, over a socket of its own. A reply that cannot be unpacked is an error.
func exchange(addr, network, name string, qtype uint16, signed bool) (*dns.Msg, error) {
	r := new(dns.Msg)
	r.SetQuestion(name, qtype)
	r.SetEdns0(4096, signed)
	m, _, err := (&dns.Client{Net: network, Timeout: answerLimit}).Exchange(r, addr)
	return m, err
}
