package multicluster

import (
	"errors"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/coredns/plugin/transfer"
	"github.com/miekg/dns"
)

var errNotSynced = errors.New(
	"zone is not transferred before the first complete list of ServiceImports and EndpointSlices",
)

const (
	unlimited = 1 << 30 // a buffer that every answer fits in
	chunk     = 500     // records that are made at a time; the transfer plugin fills messages with them
)

// Transfer implements transfer.Transferer (L6). It sends all endpoints, also those that max_endpoints or
// `prefer … subset` leaves out of an answer, unless limitTransfer is set.
func (m *Multicluster) Transfer(zone string, serial uint32) (<-chan []dns.RR, error) {
	i := slices.IndexFunc(m.origins, func(origin string) bool { return strings.EqualFold(origin, zone) })
	if i < 0 {
		return nil, transfer.ErrNotAuthoritative
	}
	if !m.source.Synced() {
		return nil, errNotSynced
	}
	index := m.source.Index()
	current, services := index.Snapshot()
	x := &xfr{zone: m.zones[i], out: make(chan []dns.RR)}
	// All endpoints, since another server's clients are elsewhere (T2), and always the same ones,
	// since one serial has one content.
	x.window = catalog.Window{Everyone: true}
	if m.limitTransfer {
		x.window.Max = m.maxEndpoints
	}
	soa := x.zone.SOA(x.question(zone, dns.TypeSOA), zone, current).Answer
	go func() {
		defer close(x.out)
		x.out <- soa
		if serial != 0 && !authority.Newer(current, serial) {
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

// serial returns the zones' serial, and whether there is anything to transfer.
func (m *Multicluster) serial() (uint32, bool) { return m.source.Index().Serial(), m.source.Synced() }

// xfr is one transfer.
type xfr struct {
	zone   *reply.Zone
	window catalog.Window
	out    chan []dns.RR
}

func (x *xfr) question(name string, qtype uint16) *dns.Msg {
	return &dns.Msg{Question: []dns.Question{{Name: name, Qtype: qtype, Qclass: dns.ClassINET}}}
}

// fixed sends the records that every zone has (N1–N3).
func (x *xfr) fixed() {
	zone := x.zone.Name()
	ns := x.zone.NS(x.question(zone, dns.TypeNS), zone, unlimited)
	x.out <- append(ns.Answer, ns.Extra...)
	x.out <- x.zone.VersionTXT(x.question("dns-version."+x.zone.Suffix(), dns.TypeTXT)).Answer
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
