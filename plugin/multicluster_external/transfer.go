package external

import (
	"errors"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	"github.com/coredns/coredns/plugin/transfer"
	"github.com/miekg/dns"
)

var errNotSynced = errors.New("zone is not transferred before the first complete list of EndpointSlices")

// unlimited is a buffer that every answer fits in.
const unlimited = 1 << 30

// serial returns the zones' serial, and whether there is anything to transfer.
func (e *External) serial() (uint32, bool) { return e.source.table().serial(), e.source.Synced() }

// Transfer implements transfer.Transferer (X6).
func (e *External) Transfer(zone string, serial uint32) (<-chan []dns.RR, error) {
	i := slices.IndexFunc(e.origins, func(origin string) bool { return strings.EqualFold(origin, zone) })
	if i < 0 {
		return nil, transfer.ErrNotAuthoritative
	}
	if !e.source.Synced() {
		return nil, errNotSynced
	}
	t := e.source.table()
	x := &xfr{zone: e.zones[i], out: make(chan []dns.RR)}
	soa := x.zone.SOA(question(zone, dns.TypeSOA), zone, t.serial()).Answer
	go func() {
		defer close(x.out)
		x.out <- soa
		if serial != 0 && !authority.Newer(t.serial(), serial) {
			return
		}
		ns := x.zone.NS(question(x.zone.Name(), dns.TypeNS), x.zone.Name(), unlimited)
		x.out <- append(ns.Answer, ns.Extra...)
		for _, s := range t.services {
			x.service(s)
		}
		x.out <- soa
	}()
	return x.out, nil
}

func question(name string, qtype uint16) *dns.Msg {
	return &dns.Msg{Question: []dns.Question{{Name: name, Qtype: qtype, Qclass: dns.ClassINET}}}
}

// xfr is one transfer.
type xfr struct {
	zone *reply.Zone
	out  chan []dns.RR
}

// service sends the records of a Service and of every name below it.
func (x *xfr) service(s *names.Service) {
	name := s.Key() + "." + x.zone.Name()
	x.name(name, s.Everyone(""))
	for _, region := range s.Regions() {
		x.name(region+"."+name, s.Everyone(region))
	}
	for i := range s.Clusters() {
		c := &s.Clusters()[i]
		x.name(c.ID+"."+name, c.Content())
	}
}

// name sends the records of a name. One that is too long for DNS has none.
func (x *xfr) name(name string, c names.Content) {
	if len(name) > catalog.MaxName {
		return
	}
	records := slices.Concat(
		x.zone.AddressRecords(name, dns.TypeA, c.V4), x.zone.AddressRecords(name, dns.TypeAAAA, c.V6),
	)
	if c.Alias != "" {
		records = x.zone.CNAME(question(name, dns.TypeCNAME), c.Alias).Answer
	}
	x.out <- records
}
