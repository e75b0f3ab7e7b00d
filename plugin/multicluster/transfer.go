package multicluster

import (
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/miekg/dns"
)

// chunk is how many records are made at a time; the transfer plugin fills messages with them.
const chunk = 500

// Transfer implements transfer.Transferer (L6). It sends all endpoints, also those that max_endpoints or
// `prefer … subset` leaves out of an answer, unless limitTransfer is set.
func (m *Multicluster) Transfer(zone string, serial uint32) (<-chan []dns.RR, error) {
	// All endpoints, since another server's clients are elsewhere (T2), and always the same ones,
	// since one serial has one content.
	window := catalog.Window{Everyone: true}
	if m.limitTransfer {
		window.Max = m.maxEndpoints
	}
	return m.Send(zone, serial, func(z *reply.Zone, services []*catalog.Service, out chan<- []dns.RR) {
		out <- z.VersionTXT(new(dns.Msg).SetQuestion("dns-version."+z.Suffix(), dns.TypeTXT)).Answer // N3
		x := &xfr{z, window, out}
		for _, s := range services {
			x.service(s)
		}
	})
}

// xfr is one transfer.
type xfr struct {
	zone   *reply.Zone
	window catalog.Window
	out    chan<- []dns.RR
}

// service sends the records of every name of a Service.
func (x *xfr) service(s *catalog.Service) {
	name := s.Key() + ".svc." + x.zone.Suffix()
	x.name(s, query.Query{Kind: query.Service}, name)
	for port, proto := range s.NamedPorts() {
		x.name(s, query.Query{Kind: query.Port, Below: port, Proto: proto}, "_"+port+"._"+proto+"."+name)
	}
	for label, cluster := range s.Hosts() {
		host := label + "." + cluster
		x.name(s, query.Query{Kind: query.Host, Below: host}, host+"."+name)
	}
}

// name sends the records of one name, of each type that it has. One that is too long for DNS has none.
func (x *xfr) name(s *catalog.Service, q query.Query, name string) {
	if len(name) > catalog.MaxName {
		return
	}
	for _, rrtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		addrs := find(s, q, rrtype, x.window).Addrs
		for size := chunk * reply.AddressSize(rrtype); addrs != ""; {
			n := min(size, len(addrs))
			x.out <- x.zone.AddressRecords(name, rrtype, addrs[:n])
			addrs = addrs[n:]
		}
	}
	if find(s, q, dns.TypeSRV, x.window).Outcome != catalog.Success {
		return
	}
	walk := s.Targets(q.Below, q.Proto, x.window)
	for {
		rrs := x.zone.SRVRecords(name, s.Key(), &walk, chunk)
		if len(rrs) == 0 {
			return
		}
		x.out <- rrs
	}
}
