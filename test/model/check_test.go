package model

import (
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// spoiled is a change to a right message, and the words by which Check must name what is wrong.
type spoiled struct {
	name  string
	q     Question
	size  int
	spoil func(msg *dns.Msg)
	want  string
}

var (
	dbA    = Question{"DB.test.svc.clusterset.local.", dns.TypeA}
	dbSRV  = Question{"_pg._tcp.db.test.svc.clusterset.local.", dns.TypeSRV}
	noName = Question{"absent.test.svc.clusterset.local.", dns.TypeA}
	noData = Question{"db.test.svc.clusterset.local.", dns.TypeTXT}
)

func spoiledMessages() []spoiled {
	again := func(rr dns.RR) dns.RR { return dns.Copy(rr) }
	return []spoiled{
		{"no AA", dbA, 0, func(m *dns.Msg) { m.Authoritative = false }, "AA is not set"},
		{"not a response", dbA, 0, func(m *dns.Msg) { m.Response = false }, "QR is not set"},
		{
			"question in another case",
			dbA,
			0,
			func(m *dns.Msg) { m.Question[0].Name = "db.test.svc.clusterset.local." },
			"M1: question",
		},
		{
			"owner in another case",
			dbA,
			0,
			func(m *dns.Msg) { m.Answer[1].Header().Name = "db.test.svc.clusterset.local." },
			"M1: owner",
		},
		{"an answer missing", dbA, 0, func(m *dns.Msg) { m.Answer = m.Answer[1:] }, "answer lacks"},
		{"an answer too many", dbA, 0, func(m *dns.Msg) {
			rr := again(m.Answer[0]).(*dns.A)
			rr.A = net.IPv4(10, 0, 0, 99)
			m.Answer = append(m.Answer, rr)
		}, "answer must not hold"},
		{
			"an answer twice",
			dbA,
			0,
			func(m *dns.Msg) { m.Answer = append(m.Answer, again(m.Answer[0])) },
			"stands twice",
		},
		{"glue twice", dbSRV, 0, func(m *dns.Msg) { m.Extra = append(m.Extra, again(m.Extra[0])) }, "stands twice"},
		{"two TTLs", dbA, 0, func(m *dns.Msg) { m.Answer[0].Header().Ttl = 4 }, "another TTL than its RRset"},
		{"wrong TTL", dbA, 0, func(m *dns.Msg) {
			for _, rr := range m.Answer {
				rr.Header().Ttl = 30
			}
		}, "TTL is 30, want 5"},
		{"class CH", dbA, 0, func(m *dns.Msg) { m.Answer[0].Header().Class = dns.ClassCHAOS }, "not of class IN"},
		{"weight of SRV", dbSRV, 0, func(m *dns.Msg) { m.Answer[0].(*dns.SRV).Weight = 0 }, "answer lacks"},
		{"positive with SOA", dbA, 0, func(m *dns.Msg) {
			m.Ns = Reply{Outcome: NoData, Zone: DefaultZone}.Message(noData).Ns
		}, "has an authority section"},
		{"NXDOMAIN for a positive answer", dbA, 0, func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }, "want NOERROR"},
		{"glue missing", dbSRV, 0, func(m *dns.Msg) { m.Extra = m.Extra[1:] }, "additional lacks"},
		{"glue missing that fits", dbSRV, 1232, func(m *dns.Msg) { m.Extra = m.Extra[1:] }, "additional lacks"},
		{
			"foreign glue",
			dbA,
			0,
			func(m *dns.Msg) { m.Extra = append(m.Extra, again(m.Answer[0])) },
			"additional must not hold",
		},
		{"TC without a limit", dbA, 0, func(m *dns.Msg) { m.Truncated = true }, "TC is set though all answers fit"},
		{
			"TC for glue alone",
			dbSRV,
			512,
			func(m *dns.Msg) { m.Truncated, m.Extra = true, nil },
			"TC is set though all answers fit",
		},
		{"too long", dbA, 60, func(*dns.Msg) {}, "more than 60"},
		{"an address that does not pack", dbA, 0, func(m *dns.Msg) { m.Answer[0].(*dns.A).A = net.IP{1} }, "M5"},
		{"NODATA for NXDOMAIN", noName, 0, func(m *dns.Msg) { m.Rcode = dns.RcodeSuccess }, "want NXDOMAIN"},
		{"NXDOMAIN for NODATA", noData, 0, func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }, "want NODATA"},
		{"SERVFAIL", noName, 0, func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure }, "want NXDOMAIN"},
		{"no SOA", noData, 0, func(m *dns.Msg) { m.Ns = nil }, "want one SOA"},
		{"two SOA", noData, 0, func(m *dns.Msg) { m.Ns = append(m.Ns, again(m.Ns[0])) }, "want one SOA"},
		{"SOA of another zone", noData, 0, func(m *dns.Msg) { m.Ns[0].Header().Name = "local." }, "want the SOA of"},
		{"NS for SOA", noData, 0, func(m *dns.Msg) {
			m.Ns[0] = &dns.NS{
				Hdr: dns.RR_Header{Name: DefaultZone, Rrtype: dns.TypeNS, Class: dns.ClassINET, Ttl: 5},
				Ns:  "ns.dns.clusterset.local.",
			}
		}, "want the SOA of"},
		{"TTL of SOA", noData, 0, func(m *dns.Msg) { m.Ns[0].Header().Ttl = 4 }, "TTL of SOA is 4"},
		{
			"TTL of SOA above its minimum",
			noData,
			0,
			func(m *dns.Msg) { m.Ns[0].(*dns.SOA).Minttl = 1 },
			"above its minimum",
		},
		{"serial 0", noData, 0, func(m *dns.Msg) { m.Ns[0].(*dns.SOA).Serial = 0 }, "serial is 0"},
		{
			"glue in NXDOMAIN",
			noName,
			0,
			func(m *dns.Msg) { m.Extra = append(m.Extra, again(m.Ns[0])) },
			"more than one SOA",
		},
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	m, _ := load(t)
	for _, test := range spoiledMessages() {
		t.Run(test.name, func(t *testing.T) {
			reply := m.Answer(test.q.Name, test.q.Type)
			if err := Check(reply, test.q, reply.Message(test.q), 0); err != nil {
				t.Fatalf("the right message is refused: %v", err)
			}
			msg := reply.Message(test.q)
			test.spoil(msg)
			if err := Check(reply, test.q, msg, test.size); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want an error with %q, got %v", test.want, err)
			}
		})
	}
}

func TestCheckKnowsTheNextPlugin(t *testing.T) {
	m, _ := load(t)
	foreign := Question{"example.org.", dns.TypeA}
	elsewhere := m.Answer(foreign.Name, foreign.Type)
	if err := Check(elsewhere, foreign, nil, 0); err != nil {
		t.Error(err)
	}
	ours := m.Answer(noName.Name, noName.Type)
	if err := Check(elsewhere, foreign, ours.Message(foreign), 0); err == nil {
		t.Error("a reply to a question of another zone is accepted")
	}
	if err := Check(ours, noName, nil, 0); err == nil {
		t.Error("silence about our own zone is accepted")
	}
}

func TestCheckGrantsWhatDoesNotFit(t *testing.T) {
	m, _ := load(t)
	srv := m.Answer(dbSRV.Name, dbSRV.Type)
	withoutGlue := srv.Message(dbSRV)
	withoutGlue.Extra = nil
	if err := Check(srv, dbSRV, withoutGlue, 512); err != nil {
		t.Errorf("M3: glue that does not fit: %v", err)
	}
	big := Question{"big.test.svc.clusterset.local.", dns.TypeA}
	reply := m.Answer(big.Name, big.Type)
	cut := reply.Message(big)
	cut.Truncate(1232)
	if err := Check(reply, big, cut, 1232); err != nil {
		t.Errorf("M3: answers that do not fit: %v", err)
	}
	cut.Truncated = false
	if err := Check(reply, big, cut, 1232); err == nil {
		t.Error("M3: answers are cut without TC, and it is accepted")
	}
}

func TestCheckReadsWhatCameFromTheWire(t *testing.T) {
	m, _ := load(t)
	for _, q := range []Question{dbA, dbSRV, noName, noData, {"DNS-version.clusterset.local.", dns.TypeTXT}} {
		reply := m.Answer(q.Name, q.Type)
		sent := reply.Message(q)
		sent.Compress = true
		sent.SetEdns0(1232, false)
		wire, err := sent.Pack()
		if err != nil {
			t.Fatal(err)
		}
		got := new(dns.Msg)
		if err := got.Unpack(wire); err != nil {
			t.Fatal(err)
		}
		if err := Check(reply, q, got, 1232); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusedTransferHasNoAuthority(t *testing.T) {
	q := Question{DefaultZone, dns.TypeAXFR}
	reply := Answer(
		Defaults(server),
		Objects{Imports: []Import{{Spec: mcsv1beta1.ServiceImportSpec{}}}},
		q.Name,
		q.Type,
	)
	if err := Check(reply, q, reply.Message(q), 0); err != nil || reply.Outcome != Refused {
		t.Errorf("%s: %v", reply.Outcome, err)
	}
}
