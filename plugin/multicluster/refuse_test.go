package multicluster

import (
	"context"
	"testing"

	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"
)

// What is no question for our records is never answered with them.
func TestM7OtherClassesAndOperationsAreRefused(t *testing.T) {
	const name = "web.test.svc.clusterset.local."
	for title, tc := range map[string]struct {
		name          string
		opcode        int
		qclass, qtype uint16
		want          int
	}{
		"class CH":           {name, dns.OpcodeQuery, dns.ClassCHAOS, dns.TypeA, dns.RcodeRefused},
		"class ANY":          {name, dns.OpcodeQuery, dns.ClassANY, dns.TypeA, dns.RcodeRefused},
		"NOTIFY":             {defaultZone, dns.OpcodeNotify, dns.ClassINET, dns.TypeSOA, dns.RcodeNotImplemented},
		"UPDATE":             {defaultZone, dns.OpcodeUpdate, dns.ClassINET, dns.TypeSOA, dns.RcodeNotImplemented},
		"AXFR":               {defaultZone, dns.OpcodeQuery, dns.ClassINET, dns.TypeAXFR, dns.RcodeRefused},
		"NOTIFY, other zone": {"example.org.", dns.OpcodeNotify, dns.ClassINET, dns.TypeSOA, handedOn},
		"CH, other zone":     {"version.bind.", dns.OpcodeQuery, dns.ClassCHAOS, dns.TypeTXT, handedOn},
		"a question":         {name, dns.OpcodeQuery, dns.ClassINET, dns.TypeA, dns.RcodeSuccess},
	} {
		m := large()
		m.Next = test.NextHandler(handedOn, nil)
		r := question(tc.name, tc.qtype, 0)
		r.Opcode, r.Question[0].Qclass = tc.opcode, tc.qclass
		w := dnstest.NewRecorder(&test.ResponseWriter{})
		if rcode, err := m.ServeDNS(context.Background(), w, r); rcode != tc.want || err != nil {
			t.Errorf("%s: %s, %v, want %s", title, dns.RcodeToString[rcode], err, dns.RcodeToString[tc.want])
		}
		if answered := w.Msg != nil; answered != (tc.want == dns.RcodeSuccess) {
			t.Errorf("%s: answered with\n%v", title, w.Msg)
		}
	}
}
