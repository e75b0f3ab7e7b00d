package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// Check compares a message with the reply that the model demands, and says all that is wrong with it. msg is nil where
// the
// server handed the question to the next plugin. size is the largest message the client takes, 0 for no limit; with a
// limit, glue that does not fit may be missing, and answers too if TC says so (M3).
func Check(want Reply, q Question, msg *dns.Msg, size int) error {
	if want.Outcome == NotOurs || msg == nil {
		if want.Outcome == NotOurs && msg == nil {
			return nil
		}
		return fmt.Errorf("%s: want %s, got %s", q, want.Outcome, outcome(msg))
	}
	problems := []error{checkEnvelope(want.Outcome, want.Zone, q, msg)}
	switch want.Outcome {
	case NoData, NameError:
		for _, rr := range msg.Ns {
			if ttl := rr.Header().Ttl; ttl != want.NegativeTTL {
				problems = append(problems, fmt.Errorf("M2: TTL of SOA is %d, want %d", ttl, want.NegativeTTL))
			}
		}
	case Success:
		problems = append(problems, want.checkSections(q, msg, size))
	}
	return report(q, msg, errors.Join(problems...))
}

// report adds the message to what is wrong with it.
func report(q Question, msg *dns.Msg, problem error) error {
	if problem == nil {
		return nil
	}
	return fmt.Errorf("%s:\n%w\n%s", q, problem, msg)
}

func outcome(msg *dns.Msg) string {
	switch {
	case msg == nil:
		return NotOurs.String()
	case msg.Rcode == dns.RcodeSuccess && len(msg.Answer) == 0 && !msg.Truncated:
		return NoData.String()
	}
	return dns.RcodeToString[msg.Rcode]
}

// checkEnvelope checks all that does not depend on which records a reply holds.
func checkEnvelope(want Outcome, zone string, q Question, msg *dns.Msg) error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if got := outcome(msg); got != want.String() {
		wrong("outcome is %s, want %s", got, want)
	}
	if _, err := msg.Copy().Pack(); err != nil {
		wrong("M5: it does not pack: %v", err)
	}
	if !msg.Response {
		wrong("QR is not set")
	}
	if len(msg.Question) != 1 ||
		msg.Question[0] != (dns.Question{Name: dns.Fqdn(q.Name), Qtype: q.Type, Qclass: dns.ClassINET}) {
		wrong("M1: question is %v, want %s as it was asked", msg.Question, q)
	}
	if want == Refused {
		return errors.Join(problems...)
	}
	if !msg.Authoritative {
		wrong("M1: AA is not set")
	}
	if want == Success {
		if len(msg.Ns) > 0 {
			wrong("M2: a positive answer has an authority section")
		}
		problems = append(problems, checkRecords(q, msg))
		return errors.Join(problems...)
	}
	if len(msg.Answer) > 0 || len(records(msg.Extra)) > 0 || msg.Truncated {
		wrong("M2: a negative answer holds more than one SOA")
	}
	if len(msg.Ns) != 1 {
		wrong("M2: authority holds %d records, want one SOA", len(msg.Ns))
	}
	for _, rr := range msg.Ns {
		soa, ok := rr.(*dns.SOA)
		if !ok || dns.CanonicalName(soa.Hdr.Name) != zone {
			wrong("M2: authority holds %v, want the SOA of %s", rr, zone)
		} else if soa.Hdr.Ttl > soa.Minttl || soa.Serial == 0 {
			wrong("M2, M4: the SOA's TTL is above its minimum, or its serial is 0: %v", rr)
		}
	}
	return errors.Join(problems...)
}

// checkRecords checks what holds for the records of any positive reply.
func checkRecords(q Question, msg *dns.Msg) error {
	var problems []error
	seen := map[string]bool{}
	ttls := map[string]uint32{}
	for _, rr := range slices.Concat(msg.Answer, records(msg.Extra)) {
		text := Canonical(rr)
		if seen[text] {
			problems = append(problems, fmt.Errorf("M2: %s stands twice", text))
		}
		seen[text] = true
		set := dns.CanonicalName(rr.Header().Name) + dns.Type(rr.Header().Rrtype).String()
		if ttl, ok := ttls[set]; ok && ttl != rr.Header().Ttl {
			problems = append(problems, fmt.Errorf("M2: %s has another TTL than its RRset", text))
		}
		ttls[set] = rr.Header().Ttl
		if rr.Header().Class != dns.ClassINET {
			problems = append(problems, fmt.Errorf("%s is not of class IN", text))
		}
		if soa, ok := rr.(*dns.SOA); ok && soa.Serial == 0 {
			problems = append(problems, errors.New("M4: serial is 0"))
		}
	}
	for _, rr := range msg.Answer {
		if rr.Header().Name != dns.Fqdn(q.Name) {
			problems = append(problems, fmt.Errorf("M1: owner %s does not echo the question", rr.Header().Name))
		}
	}
	return errors.Join(problems...)
}

// checkSections compares Answer and Additional with the model's.
func (r Reply) checkSections(q Question, msg *dns.Msg, size int) error {
	var problems []error
	missing, foreign := difference(r.Answer, canonical(msg.Answer))
	if msg.Truncated {
		missing = nil // M3: whole records were cut
	}
	for _, text := range missing {
		problems = append(problems, fmt.Errorf("answer lacks   %s", text))
	}
	for _, text := range foreign {
		problems = append(problems, fmt.Errorf("answer must not hold %s", text))
	}
	problems = append(problems, r.checkOrder(msg.Answer))
	missing, foreign = difference(r.Extra, canonical(records(msg.Extra)))
	if msg.Truncated || !r.fits(q, msg, size) {
		missing = nil // M3: glue that does not fit is dropped
	}
	for _, text := range missing {
		problems = append(problems, fmt.Errorf("M3: additional lacks   %s", text))
	}
	for _, text := range foreign {
		problems = append(problems, fmt.Errorf("M3: additional must not hold %s", text))
	}
	for _, rr := range msg.Answer {
		if rr.Header().Ttl != r.TTL {
			problems = append(problems, fmt.Errorf("O1: TTL is %d, want %d: %s", rr.Header().Ttl, r.TTL, Canonical(rr)))
		}
	}
	for _, rr := range records(msg.Extra) {
		if rr.Header().Ttl != r.ExtraTTL {
			problems = append(
				problems,
				fmt.Errorf("O1: TTL is %d, want %d: %s", rr.Header().Ttl, r.ExtraTTL, Canonical(rr)),
			)
		}
	}
	if msg.Truncated && (Reply{Outcome: r.Outcome, Zone: r.Zone, Answer: r.Answer}).fits(q, msg, size) {
		problems = append(problems, errors.New("M3: TC is set though all answers fit"))
	}
	if length := compressed(msg); size > 0 && length > size {
		problems = append(problems, fmt.Errorf("M3: it takes %d octets, more than %d", length, size))
	}
	return errors.Join(problems...)
}

// checkOrder is T2: what is preferred stands before what is preferred less.
func (r Reply) checkOrder(answer []dns.RR) error {
	last, before := 0, ""
	for _, text := range canonical(answer) {
		tier := r.Tier[text]
		if tier < last {
			return fmt.Errorf("T2: %s stands behind %s, which is preferred less", text, before)
		}
		last, before = tier, text
	}
	return nil
}

// fits says whether the whole reply fits even without compression, which nothing asks of a small message.
func (r Reply) fits(q Question, got *dns.Msg, size int) bool {
	whole := r.Message(q)
	if opt := got.IsEdns0(); opt != nil {
		whole.Extra = append(whole.Extra, opt)
	}
	return size == 0 || whole.Len() <= size
}

func compressed(msg *dns.Msg) int {
	small := msg.Copy()
	small.Compress = true
	return small.Len()
}

// records is a section without the pseudo records of EDNS and TSIG.
func records(section []dns.RR) []dns.RR {
	return slices.DeleteFunc(slices.Clone(section), func(rr dns.RR) bool {
		return rr.Header().Rrtype == dns.TypeOPT || rr.Header().Rrtype == dns.TypeTSIG
	})
}

func canonical(section []dns.RR) []string {
	texts := make([]string, 0, len(section))
	for _, rr := range section {
		texts = append(texts, Canonical(rr))
	}
	return texts
}

// difference compares two bags of records.
func difference(want, got []string) (missing, foreign []string) {
	count := map[string]int{}
	for _, text := range want {
		count[text]++
	}
	for _, text := range got {
		if count[text]--; count[text] < 0 {
			foreign = append(foreign, text)
		}
	}
	for _, text := range want {
		if count[text]--; count[text] >= 0 {
			missing = append(missing, text)
		}
	}
	slices.Sort(missing)
	slices.Sort(foreign)
	return missing, foreign
}

// Diff says in lines how two sets of records differ, "-" for missing and "+" for foreign; "" if they do not.
func Diff(want, got []string) string {
	missing, foreign := difference(want, got)
	var lines strings.Builder
	for _, text := range missing {
		fmt.Fprintln(&lines, "-", text)
	}
	for _, text := range foreign {
		fmt.Fprintln(&lines, "+", text)
	}
	return lines.String()
}
