package multicluster

import (
	"math/rand/v2"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/model"
	"github.com/miekg/dns"
)

func fixtureObjects(t testing.TB) model.Objects {
	t.Helper()
	objs, err := model.LoadFixture("../../test/cases/fixture.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return objs
}

// agree asks the handler and the model.
func agree(t *testing.T, m *Multicluster, want *model.Model, q model.Question, size uint16, tcp bool) {
	t.Helper()
	limit := int(max(size, dns.MinMsgSize))
	if tcp {
		limit = 0
	}
	r := question(q.Name, q.Type, size)
	msg, rcode := ask(t, m, r, tcp)
	if msg == nil && rcode == dns.RcodeRefused { // the server writes it
		msg = new(dns.Msg).SetRcode(r, rcode)
	}
	if err := model.Check(want.Answer(q.Name, q.Type), q, msg, limit); err != nil {
		t.Errorf("%v (EDNS %d, TCP %v): %v", q, size, tcp, err)
	}
}

// FuzzQuery: whatever bytes come as a query, nothing panics, every reply packs and fits, and the answer is the
// model's.
func FuzzQuery(f *testing.F) {
	objs := fixtureObjects(f)
	m, want := handler(objs), model.New(model.Defaults(nameserver), objs)
	cases, err := model.LoadCases("../../test/cases/dns.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		q := c.Question()
		b, err := question(q.Name, q.Type, uint16(c.EDNS)).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, c.Proto == "tcp")
	}
	f.Fuzz(func(t *testing.T, b []byte, tcp bool) {
		r := new(dns.Msg)
		// What the server does not hand to plugins: no question, several, another class or operation, another
		// version of EDNS.
		if r.Unpack(b) != nil || len(r.Question) != 1 || r.Question[0].Qclass != dns.ClassINET ||
			r.Opcode != dns.OpcodeQuery ||
			r.Response {
			t.Skip()
		}
		var size uint16
		if o := r.IsEdns0(); o != nil {
			if o.Version() != 0 {
				t.Skip()
			}
			size = o.UDPSize()
		}
		if _, err := r.Pack(); err != nil {
			t.Skip()
		}
		q := model.Question{Name: r.Question[0].Name, Type: r.Question[0].Qtype}
		agree(t, m, want, q, size, tcp)
		ask(t, m, r, tcp) // as it came, with all its records
	})
}

// FuzzName: every name, also one that no packet can carry so, is answered as the model does.
func FuzzName(f *testing.F) {
	objs := fixtureObjects(f)
	m, want := handler(objs), model.New(model.Defaults(nameserver), objs)
	for _, q := range model.Questions(rand.New(rand.NewPCG(1, 1)), objs, 200) {
		f.Add(q.Name, q.Type)
	}
	f.Add(`a\.b.test.svc.clusterset.local.`, dns.TypeA)
	f.Add(`web.test.svc\.clusterset.local.`, dns.TypeA)
	f.Add("Clusterset.loCAl.", dns.TypeAXFR)
	f.Add("web.test.svc.clusterset.local.", dns.TypeIXFR)
	f.Fuzz(func(t *testing.T, name string, qtype uint16) {
		wire := make([]byte, 256)
		n, err := dns.PackDomainName(name, wire, 0, nil, false)
		if err != nil {
			t.Skip()
		}
		name, _, err = dns.UnpackDomainName(wire[:n], 0) // as the server would read it
		if err != nil || qtype == dns.TypeNone {
			t.Skip()
		}
		agree(t, m, want, model.Question{Name: name, Type: qtype}, 1232, false)
	})
}

// FuzzObjects: on random objects, spoiled ones among them, every answer is the model's.
func FuzzObjects(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint16(512), false)
	f.Fuzz(func(t *testing.T, a, b uint64, size uint16, tcp bool) {
		r := rand.New(rand.NewPCG(a, b))
		objs := model.Random(r, 1+r.IntN(10))
		if a%2 == 0 {
			model.Malform(r, &objs)
		}
		topology, config := randomTopology(r)
		m, want := handlerIn(topology, objs), model.New(config, objs)
		for _, q := range model.Questions(r, objs, 40) {
			agree(t, m, want, q, size, tcp)
		}
	})
}

// M3: a reply over TCP is the whole answer, compressed as far as the server does that.
func TestM3LargeRepliesOverTCPAreWhole(t *testing.T) {
	msg, _ := ask(t, large(), question("h1000.test.svc.clusterset.local.", dns.TypeA, 0), true)
	if len(msg.Answer) != 1000 || msg.Truncated {
		t.Fatalf("%d answers, TC %v", len(msg.Answer), msg.Truncated)
	}
}
