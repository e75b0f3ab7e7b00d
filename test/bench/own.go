package main

import (
	"fmt"
	"net"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/miekg/dns"
)

const aboutOwn = "" +
	"The names of the cluster itself, and those that CoreDNS forwards: what changes for them if a cluster takes " +
	"our program and adds the stanza. Both sides are kubeadm's Corefile, measured as above. Its cache leaves " +
	"the cluster's own names to kubernetes, which is uncached here. For the first rows, cache takes all names; for " +
	"the last one, none. The server that is forwarded to answers at once."

// own measures the cluster's own names.
func (b *bench) own() ([]row, error) {
	upstream, err := answerAll()
	if err != nil {
		return nil, err
	}
	defer func() { _ = upstream.Shutdown() }() // the process ends soon
	to := upstream.PacketConn.LocalAddr().String()
	var all []setting
	for _, s := range []setting{
		{program: image, block: ours, cache: ownUncached},
		{program: stock, cache: ownUncached},
	} {
		for _, cache := range []string{ownUncached, "", "disable success\n\t\tdisable denial"} {
			s.name, s.cache, s.forward = fmt.Sprintf("%s %q", s.program, cache), cache, to
			all = append(all, s)
		}
	}
	servers, stop, err := b.settings(0, all...)
	if err != nil {
		return nil, err
	}
	defer stop()
	const services = 1000
	each := func(line string) (lines []string) {
		for i := range services {
			name, ns := stub.ClusterSetIP(i)
			lines = append(lines, fmt.Sprintf(line, name, ns))
		}
		return lines
	}
	of := func(kind string) []string { return each("%s.%s." + kind) }
	var rows []row
	for _, m := range []struct {
		socketCase
		at  int // of the caches above
		bar float64
	}{
		{socketCase{what: "A, from cache", lines: of("svc.cluster.local. A")}, 1, 0.85},
		{socketCase{what: "NXDOMAIN, from cache", lines: of("none.svc.cluster.local. A")}, 1, 0.85},
		{socketCase{what: "A", lines: of("svc.cluster.local. A")}, 0, 0.95},
		{socketCase{what: "NXDOMAIN", lines: of("none.svc.cluster.local. A")}, 0, 0.95},
		{socketCase{what: "A, forwarded", lines: of("example.org. A")}, 2, 0.95},
	} {
		us, them := all[m.at], all[m.at+len(all)/2]
		median, err := b.eachPerQuery(servers, []socketCase{m.socketCase}, 2, us, them)
		if err != nil {
			return nil, err
		}
		x, y := median(us, m.socketCase), median(them, m.socketCase)
		rows = append(rows, row{What: m.what, Ours: microseconds(x), Theirs: microseconds(y), Ratio: number(x / y)}.
			atMost(x/y, m.bar, ""))
	}
	return rows, nil
}

// answerAll is a server that has an address for every name.
func answerAll() (*dns.Server, error) {
	at, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &dns.Server{PacketConn: at, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		header := dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30}
		m.Answer = []dns.RR{&dns.A{Hdr: header, A: net.IPv4(192, 0, 2, 1)}}
		_ = w.WriteMsg(m) // who asked asks again
	})}
	go func() { _ = s.ActivateAndServe() }() // it ends with Shutdown, and is missed if it ends before
	return s, nil
}
