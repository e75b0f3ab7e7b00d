package multicluster

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/model"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/cache"
	"github.com/coredns/coredns/request"
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
	msg, _ := ask(t, m, question(q.Name, q.Type, size), tcp)
	if err := model.Check(want.Answer(q.Name, q.Type), q, msg, limit); err != nil {
		t.Errorf("%v (EDNS %d, TCP %v): %v", q, size, tcp, err)
	}
}

// FuzzQuery: whatever bytes come as a query, nothing panics, every reply packs and fits, and the answer is the model's.
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
		// What the server does not hand to plugins: no question, several, another class or operation, another version of EDNS.
		if r.Unpack(b) != nil || len(r.Question) != 1 || r.Question[0].Qclass != dns.ClassINET || r.Opcode != dns.OpcodeQuery || r.Response {
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

// TestM3AStaleAnswerIsLeftAlone: while the cache plugin verifies what is stale, it may serve that through the client's ScrubWriter at the same
// time. A reply to it must not touch that one; a reply through the cache is compressed.
func TestM3AStaleAnswerIsLeftAlone(t *testing.T) {
	setup, err := caddy.DirectiveAction("dns", "cache")
	if err != nil {
		t.Fatal(err)
	}
	c := caddy.NewTestController("dns", "cache clusterset.local {\n success 100 1 0\n serve_stale 1h verify 1m\n}")
	if err := setup(c); err != nil {
		t.Fatal(err)
	}
	m, r := large(), question("h1000.test.svc.clusterset.local.", dns.TypeA, 0)
	asked := 0
	client := &streamClient{client{t: t}}
	var scrub *request.ScrubWriter
	cache := dnsserver.GetConfig(c).Plugin[0](plugin.HandlerFunc(func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		asked++
		code, err := m.ServeDNS(ctx, w, r)
		if altered := scrub.ResponseWriter != dns.ResponseWriter(client); altered != (asked == 1) {
			t.Errorf("question %d through %T: the ScrubWriter below is altered: %v", asked, w, altered)
		}
		return code, err
	}))
	for ; asked < 2; time.Sleep(10 * time.Millisecond) { // until the TTL of 1 s is over
		scrub = request.NewScrubWriter(r, client)
		if _, err := cache.ServeDNS(context.Background(), scrub, r); err != nil {
			t.Fatal(err)
		}
		if asked == 1 && scrub.ResponseWriter != dns.ResponseWriter(client) && client.len > 12+48+1000*16 {
			t.Errorf("%d octets: not compressed", client.len)
		}
	}
}

// A reply over a stream is the whole answer, compressed (M3), whether or not a plugin's writer stands between.
func TestM3LargeRepliesOverTCPAreCompressed(t *testing.T) {
	m := large()
	for range 8 { // ask puts a writer between at random
		msg, size := askSized(t, m, question("h1000.test.svc.clusterset.local.", dns.TypeA, 0), true)
		if len(msg.Answer) != 1000 || msg.Truncated {
			t.Fatalf("%d answers, TC %v", len(msg.Answer), msg.Truncated)
		}
		if size > 12+48+1000*16 {
			t.Errorf("%d octets: not compressed", size)
		}
	}
}
