package multicluster

import (
	"errors"
	"slices"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/coredns/plugin/transfer"
	"github.com/miekg/dns"
)

var errNotSynced = errors.New("zone is not transferred before the first complete list of ServiceImports and EndpointSlices")

const unlimited = 1 << 30 // a buffer that every answer fits in: transfer cuts messages itself

// Transfer implements transfer.Transferer (L6). It asks the questions that queries ask, so it gives exactly what they give, over time
// where max_endpoints gives them a part.
func (m *Multicluster) Transfer(zone string, serial uint32) (<-chan []dns.RR, error) {
	i := slices.Index(m.origins, zone)
	if i < 0 {
		return nil, transfer.ErrNotAuthoritative
	}
	if !m.source.Synced() {
		return nil, errNotSynced
	}
	index := m.source.Index()
	current, services := index.Snapshot()
	// All endpoints: another server's clients are elsewhere (T2), and one serial has one content, whenever it is transferred (decision 0002).
	window := catalog.Window{Everyone: true, Zone: m.zones[i].Octets()}
	x := &xfr{zone: m.zones[i], index: index, window: window, out: make(chan []dns.RR)}
	soa := x.zone.SOA(x.question(zone, dns.TypeSOA), zone, current).Answer
	go func() {
		defer close(x.out)
		x.out <- soa
		if serial != 0 && !newer(current, serial) {
			return
		}
		x.fixed()
		for _, s := range services {
			x.service(s)
		}
		x.out <- soa
	}()
	return x.out, nil
}

// newer compares serials as RFC 1982 §3.2 does.
func newer(a, b uint32) bool { return int32(a-b) > 0 }

type xfr struct {
	zone   *reply.Zone
	index  *catalog.Index
	window catalog.Window
	out    chan []dns.RR
}

func (x *xfr) question(name string, qtype uint16) *dns.Msg {
	return &dns.Msg{Question: []dns.Question{{Name: name, Qtype: qtype, Qclass: dns.ClassINET}}}
}

// fixed are the records that every zone has (N1–N3).
func (x *xfr) fixed() {
	zone := x.zone.Name()
	ns := x.zone.NS(x.question(zone, dns.TypeNS), zone, unlimited)
	x.out <- append(ns.Answer, ns.Extra...)
	x.out <- x.zone.VersionTXT(x.question("dns-version."+x.under(), dns.TypeTXT)).Answer
}

// under is what stands behind a relative name of the zone.
func (x *xfr) under() string {
	if x.zone.Name() == "." {
		return ""
	}
	return x.zone.Name()
}

func (x *xfr) service(s *catalog.Service) {
	name := s.Key() + ".svc." + x.under()
	types := []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV}
	x.send(s, query.Query{Kind: query.Service}, name, types)
	for port, proto := range s.NamedPorts() {
		q := query.Query{Kind: query.Port, Below: port, Proto: proto}
		x.send(s, q, "_"+port+"._"+proto+"."+name, types)
	}
	for label, cluster := range s.Hosts() {
		q := query.Query{Kind: query.Host, Below: label + "." + cluster}
		x.send(s, q, q.Below+"."+name, types)
	}
}

// send asks a name for its types and sends the answers. A name too long for DNS has none.
func (x *xfr) send(s *catalog.Service, q query.Query, name string, types []uint16) {
	if len(name) > catalog.MaxName {
		return
	}
	for _, t := range types {
		a := asked{r: x.question(name, t), zone: x.zone, index: x.index, window: x.window, limit: unlimited}
		if res := find(s, q, t, x.window); res.Outcome == catalog.Success {
			x.out <- a.success(s, q, res.Addrs).Answer
		}
	}
}
