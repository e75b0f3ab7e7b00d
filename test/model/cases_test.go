package model

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"
)

var server = netip.MustParseAddr("127.0.0.1")

func load(t *testing.T) (*Model, []Case) {
	t.Helper()
	objs, err := LoadFixture("../cases/fixture.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := LoadCases("../cases/dns.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) < 90 || len(objs.Imports) < 24 || len(objs.Slices) < 20 {
		t.Fatalf("only %d cases, %d imports and %d slices were read", len(cases), len(objs.Imports), len(objs.Slices))
	}
	return New(Defaults(server), objs), cases
}

// The cases were written by others from the sources; that the model passes them is independent evidence for it.
func TestModelAnswersEveryCase(t *testing.T) {
	m, cases := load(t)
	for _, c := range cases {
		t.Run(c.Title(), func(t *testing.T) {
			q := c.Question()
			reply := m.Answer(q.Name, q.Type)
			msg := reply.Message(q)
			if c.ID == 136 {
				msg.Truncate(c.Size())
			}
			if err := CheckCase(c, msg, server); err != nil {
				t.Error(err)
			}
			if err := Check(reply, q, msg, c.Size()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCaseRefusesEveryOtherReply(t *testing.T) {
	m, cases := load(t)
	compared := 0
	for _, c := range cases {
		q := c.Question()
		own := m.Answer(q.Name, q.Type)
		if own.Outcome == NotOurs {
			continue
		}
		for _, other := range cases {
			foreign := m.Answer(other.Question().Name, other.Question().Type)
			if foreign.Outcome == NotOurs || own.Outcome == foreign.Outcome &&
				Diff(brief(own.Message(q).Answer), brief(foreign.Message(q).Answer)) == "" {
				continue
			}
			compared++
			if err := CheckCase(c, foreign.Message(q), server); err == nil {
				t.Errorf("case %d accepts the reply to case %d", c.ID, other.ID)
			}
		}
	}
	if compared == 0 {
		t.Error("no two cases have different replies")
	}
}

func TestCaseLimitsWhatMayBeMissing(t *testing.T) {
	m, cases := load(t)
	reply := func(id int) (Case, *dns.Msg) {
		at := slices.IndexFunc(cases, func(c Case) bool { return c.ID == id })
		q := cases[at].Question()
		return cases[at], m.Answer(q.Name, q.Type).Message(q)
	}
	for name, test := range map[string]struct {
		id     int
		spoil  func(*dns.Msg)
		accept bool
	}{
		"glue that fits":          {54, func(msg *dns.Msg) { msg.Extra = nil }, false},
		"glue that may not fit":   {98, func(msg *dns.Msg) { msg.Extra = nil }, true},
		"foreign glue":            {80, func(msg *dns.Msg) { msg.Extra = msg.Answer[:1] }, false},
		"TC on few answers":       {80, func(msg *dns.Msg) { msg.Truncated = true }, false},
		"300 answers over UDP":    {136, func(*dns.Msg) {}, false},
		"300 answers with TC":     {136, func(msg *dns.Msg) { msg.Truncated = true }, false},
		"answers cut without TC":  {136, func(msg *dns.Msg) { msg.Truncate(1232); msg.Truncated = false }, false},
		"answers cut to 1232":     {136, func(msg *dns.Msg) { msg.Truncate(1232) }, true},
		"answers cut to 4096":     {136, func(msg *dns.Msg) { msg.Truncate(4096) }, false},
		"answers cut over TCP":    {137, func(msg *dns.Msg) { msg.Truncate(4096) }, false},
		"299 answers over TCP":    {137, func(msg *dns.Msg) { msg.Answer = msg.Answer[1:] }, false},
		"SRV with another weight": {54, func(msg *dns.Msg) { msg.Answer[0].(*dns.SRV).Weight = 7 }, true},
	} {
		c, msg := reply(test.id)
		test.spoil(msg)
		if err := CheckCase(c, msg, server); (err == nil) != test.accept {
			t.Errorf("%s: accepted is %t, want %t: %v", name, err == nil, test.accept, err)
		}
	}
	next, _ := reply(28)
	claim := (Reply{Outcome: NameError, Zone: DefaultZone}).Message(next.Question())
	if CheckCase(next, claim, server) == nil {
		t.Error("an authoritative reply to a question of another zone is accepted")
	}
	claim.Authoritative = false
	if err := CheckCase(next, claim, server); err != nil {
		t.Errorf("the next plugin's reply is refused: %v", err)
	}
	ours, _ := reply(54)
	if CheckCase(ours, nil, server) == nil {
		t.Error("silence about our own zone is accepted")
	}
}
