package multicluster

import (
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/miekg/dns"
)

// answer returns the reply for dns-version, or a name at or below that of a Service.
func (m *Multicluster) answer(q *authority.Question[*catalog.Service]) *dns.Msg {
	if q.Kind == query.Version {
		if q.Type == dns.TypeTXT {
			return q.Zone.VersionTXT(q.R)
		}
		return q.NoData(false)
	}
	svc := q.Index.Service(q.Service)
	if svc == nil {
		why, _ := q.Index.Why.Load(q.Service)
		text, _ := why.(string)
		return q.NameError(text)
	}
	window, of := m.window(q.Zone), q.Query
	window.Enough = q.Limit/reply.MinAddressRecord + 1 // too many, so that the reply is cut
	if q.Kind == query.Zoned {
		in, exists := svc.Zone(q.Below, q.Pin)
		if !exists {
			return q.NameError("")
		}
		if in == nil {
			return q.NoData(false)
		}
		svc, of = in, query.Query{Kind: query.Service, Service: q.Service}
	}
	res := find(svc, of, q.Type, window)
	switch {
	case res.Outcome == catalog.NameError && of.Kind == query.Host && svc.Type() != catalog.Headless:
		return q.NameError("the endpoints of a ClusterSetIP Service have no names")
	case res.Outcome == catalog.NameError:
		return q.NameError("the Service has no such port or ready endpoint")
	case res.Outcome == catalog.NoData:
		return q.NoData(res.Pending)
	case res.Addrs != "":
		return q.Zone.Addresses(q.R, q.Type, res.Addrs, q.Limit)
	}
	msg := q.Zone.SRV(q.R, svc.Key(), svc.Targets(of.Below, of.Proto, window), q.Limit)
	if len(msg.Answer) == 0 && !msg.Truncated {
		return q.NoData(false) // no target's name fits into a name
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
