package multicluster

import (
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/miekg/dns"
)

// lookup is one question and what its answer is made from.
type lookup struct {
	r      *dns.Msg
	zone   *reply.Zone
	owner  string // the zone, in the case of the question
	index  *catalog.Index
	window catalog.Window
	limit  int // octets of the client's buffer
}

// answer returns the reply for a name of the zone.
func (l *lookup) answer(q query.Query) *dns.Msg {
	qtype := l.r.Question[0].Qtype
	switch q.Kind {
	case query.None:
		return l.nameError()
	case query.Apex:
		return l.apex(qtype)
	case query.Empty:
		return l.noData(false)
	case query.Version:
		if qtype == dns.TypeTXT {
			return l.zone.VersionTXT(l.r)
		}
		return l.noData(false)
	case query.NS:
		if msg := l.zone.NSAddresses(l.r, qtype, l.limit); msg != nil {
			return msg
		}
		return l.noData(false)
	case query.Namespace:
		if l.index.HasNamespace(q.Service) {
			return l.noData(false)
		}
		return l.nameError()
	}
	svc := l.index.Service(q.Service)
	if svc == nil {
		return l.nameError()
	}
	return l.service(svc, q, qtype)
}

func (l *lookup) apex(qtype uint16) *dns.Msg {
	switch qtype {
	case dns.TypeSOA:
		return l.zone.SOA(l.r, l.owner, l.index.Serial())
	case dns.TypeNS:
		return l.zone.NS(l.r, l.owner, l.limit)
	}
	return l.noData(false)
}

// service returns the reply for a name at or below the Service.
func (l *lookup) service(svc *catalog.Service, q query.Query, qtype uint16) *dns.Msg {
	if q.Kind == query.Zoned {
		in, exists := svc.Zone(q.Below, q.Pin)
		if !exists {
			return l.nameError()
		}
		if in == nil {
			return l.noData(false)
		}
		svc, q = in, query.Query{Kind: query.Service, Service: q.Service}
	}
	res := find(svc, q, qtype, l.window)
	switch {
	case res.Outcome == catalog.NameError:
		return l.nameError()
	case res.Outcome == catalog.NoData:
		return l.noData(res.Pending)
	case res.Addrs != "":
		return l.zone.Addresses(l.r, qtype, res.Addrs, l.limit)
	}
	msg := l.zone.SRV(l.r, svc.Key(), svc.Targets(q.Below, q.Proto, l.window), l.limit)
	if len(msg.Answer) == 0 && !msg.Truncated {
		return l.noData(false) // no target's name fits into a name
	}
	return msg
}

// find returns what the Service has for a name at or below its own.
func find(svc *catalog.Service, q query.Query, qtype uint16, w catalog.Window) catalog.Result {
	wanted := catalog.Wanted(qtype)
	switch q.Kind {
	case query.Service:
		return svc.Self(wanted, w)
	case query.Proto:
		return svc.Proto(q.Proto)
	case query.Port:
		return svc.Port(q.Below, q.Proto, wanted)
	}
	return svc.Host(q.Below, wanted, w)
}

func (l *lookup) noData(pending bool) *dns.Msg {
	return l.zone.Negative(l.r, dns.RcodeSuccess, l.owner, l.index.Serial(), pending)
}

func (l *lookup) nameError() *dns.Msg {
	return l.zone.Negative(l.r, dns.RcodeNameError, l.owner, l.index.Serial(), false)
}
