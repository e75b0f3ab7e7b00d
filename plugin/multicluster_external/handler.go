// Package external answers clients outside the clusters: for a Service with load balancers in several clusters, those
// of the cluster that suits the client. README.md is its man page; docs/spec/DNS.md has the rules that comments name,
// X1 to X8.
//
// Package names decides which cluster answers; this package watches the EndpointSlices and makes the messages.
package external

import (
	"context"
	"math/rand/v2"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/miekg/dns"
)

const pluginName = "multicluster_external"

var log = clog.NewWithPlugin(pluginName)

// External answers the zones of one stanza of the Corefile.
type External struct {
	authority.Stanza[*names.Service]

	subnet bool // the EDNS client subnet is the client (X4)
}

// ServeDNS implements plugin.Handler.
func (e *External) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	q, rcode, err := e.Begin(ctx, w, r, parse)
	if q.Zone == nil {
		return rcode, err
	}
	who, ok := e.asker(w, r)
	if !ok {
		return dns.RcodeFormatError, nil
	}
	msg, tailored := q.Common(), false
	if msg == nil {
		l := lookup{&q, who}
		msg, tailored = l.service(ctx, q.Index.Service(q.Service))
	}
	who.mark(msg, tailored)
	return e.End(ctx, w, &q, msg)
}

// lookup is one question for a name at or below a Service.
type lookup struct {
	*authority.Question[*names.Service]
	who asker
}

// service returns the reply for a name at or below a Service, nil for none (X1, X2).
func (l *lookup) service(ctx context.Context, s *names.Service) (msg *dns.Msg, tailored bool) {
	if s == nil {
		return l.NameError(""), false
	}
	region := ""
	if l.Below != "" {
		switch kind, cluster := s.Find(l.Below); kind {
		case names.None:
			return l.NameError(""), false
		case names.Empty:
			return l.NoData(false), false
		case names.OneCluster:
			return l.cluster(cluster), false
		case names.Region:
			region = l.Below
		}
	}
	cluster, tailored := s.Choose(region, addressType(l.Type), l.who.client(ctx))
	return l.cluster(cluster), tailored
}

// cluster returns the reply of a cluster, nil for none. Its addresses take turns.
func (l *lookup) cluster(c *names.Cluster) *dns.Msg {
	if c == nil {
		return l.NoData(false)
	}
	if alias := c.Content().Alias; alias != "" && l.Type != dns.TypeSOA && l.Type != dns.TypeNS {
		return l.Zone.CNAME(l.R, alias)
	}
	addrs := c.Addrs(addressType(l.Type))
	if addrs == "" {
		return l.NoData(false)
	}
	size := reply.AddressSize(l.Type)
	if n := len(addrs) / size; n > 1 {
		at := size * rand.IntN(n)
		addrs = addrs[at:] + addrs[:at]
	}
	return l.Zone.Addresses(l.R, l.Type, addrs, l.Limit)
}

func addressType(qtype uint16) names.Type {
	switch qtype {
	case dns.TypeA:
		return names.V4
	case dns.TypeAAAA:
		return names.V6
	}
	return names.Other
}

// parse reads the part of a name in front of its zone: everything before the offset at.
func parse(name string, at int) query.Query {
	rel := strings.ToLower(strings.TrimSuffix(name[:at], "."))
	last := strings.LastIndexByte(rel, '.')
	switch {
	case rel == "":
		return query.Query{Kind: query.Apex}
	case strings.IndexByte(rel, '\\') >= 0: // an octet that needs escaping is in no name of an object
		return query.Query{}
	case rel == "dns":
		return query.Query{Kind: query.Empty}
	case rel == "ns.dns":
		return query.Query{Kind: query.NS}
	case last < 0:
		return query.Query{Kind: query.Namespace, Service: rel}
	}
	q := query.Query{Kind: query.Service, Service: rel}
	if second := strings.LastIndexByte(rel[:last], '.'); second >= 0 {
		q.Service, q.Below = rel[second+1:], rel[:second]
	}
	return q
}
