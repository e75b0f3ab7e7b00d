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
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reload"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/fall"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/miekg/dns"
)

const pluginName = "multicluster_external"

var log = clog.NewWithPlugin(pluginName)

// source provides what is answered: watch.
type source interface {
	Index() *catalog.Table[*names.Service]
	Synced() bool
}

// External answers the zones of one stanza of the Corefile.
type External struct {
	Next plugin.Handler
	Fall fall.F

	origins []string // fully qualified, lower case
	zones   []*reply.Zone
	source  source
	subnet  bool // the EDNS client subnet is the client (X4)
	load    *reload.Load
}

// Name implements plugin.Handler.
func (e *External) Name() string { return pluginName }

// Ready implements ready.Readiness for all stanzas together.
func (e *External) Ready() bool { return e.load.Ready() }

// CacheBypassZones implements cache.ZoneBypasser: the cache plugin would give a client what another one was answered.
func (e *External) CacheBypassZones() []string { return e.origins }

// ServeDNS implements plugin.Handler.
func (e *External) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	name := r.Question[0].Name
	zone, at := query.Zone(e.origins, name)
	if zone < 0 {
		return plugin.NextOrFailure(pluginName, e.Next, ctx, w, r)
	}
	if rcode := authority.Refuse(r); rcode != dns.RcodeSuccess {
		return rcode, nil
	}
	who, ok := e.asker(w, r)
	if !ok {
		return dns.RcodeFormatError, nil
	}
	p := parse(name, at)
	if !e.source.Synced() && p.kind != apex {
		return dns.RcodeServerFailure, nil // L1
	}
	limit, signed := authority.Limit(ctx, w, r)
	l := lookup{r: r, who: who, zone: e.zones[zone], owner: name[at:], index: e.source.Index(), limit: limit}
	msg, tailored := l.answer(ctx, p)
	if msg.Rcode == dns.RcodeNameError && e.Fall.Through(name) {
		return plugin.NextOrFailure(pluginName, e.Next, ctx, w, r)
	}
	who.mark(msg, tailored)
	msg.Compress = signed
	if err := w.WriteMsg(msg); err != nil { // M5
		return dns.RcodeServerFailure, plugin.Error(pluginName, err)
	}
	return msg.Rcode, nil
}

// lookup is one question and what its answer is made from.
type lookup struct {
	r     *dns.Msg
	who   asker
	zone  *reply.Zone
	owner string // the zone, in the case of the question
	index *catalog.Table[*names.Service]
	limit int // octets of the client's buffer
}

// answer returns the reply for a name of the zone, and whether it depends on the client.
func (l *lookup) answer(ctx context.Context, p place) (msg *dns.Msg, tailored bool) {
	switch qtype := l.r.Question[0].Qtype; p.kind {
	case apex:
		return l.apex(qtype), false
	case empty:
		return l.noData(), false
	case nameServer:
		if msg := l.zone.NSAddresses(l.r, qtype, l.limit); msg != nil {
			return msg, false
		}
		return l.noData(), false
	case namespace:
		if l.index.HasNamespace(p.key) {
			return l.noData(), false
		}
	case service:
		if s := l.index.Service(p.key); s != nil {
			return l.service(ctx, s, p.below, qtype)
		}
	}
	return l.nameError(), false
}

func (l *lookup) apex(qtype uint16) *dns.Msg {
	switch qtype {
	case dns.TypeSOA:
		return l.zone.SOA(l.r, l.owner, l.index.Serial())
	case dns.TypeNS:
		return l.zone.NS(l.r, l.owner, l.limit)
	}
	return l.noData()
}

// service returns the reply for a name at or below a Service (X1, X2).
func (l *lookup) service(
	ctx context.Context, s *names.Service, below string, qtype uint16,
) (msg *dns.Msg, tailored bool) {
	region := ""
	if below != "" {
		switch kind, cluster := s.Find(below); kind {
		case names.None:
			return l.nameError(), false
		case names.Empty:
			return l.noData(), false
		case names.OneCluster:
			return l.cluster(cluster, qtype), false
		case names.Region:
			region = below
		}
	}
	cluster, tailored := s.Choose(region, addressType(qtype), l.who.client(ctx))
	return l.cluster(cluster, qtype), tailored
}

// cluster returns the reply of a cluster, nil for none. Its addresses take turns.
func (l *lookup) cluster(c *names.Cluster, qtype uint16) *dns.Msg {
	if c == nil {
		return l.noData()
	}
	if alias := c.Content().Alias; alias != "" && qtype != dns.TypeSOA && qtype != dns.TypeNS {
		return l.zone.CNAME(l.r, alias)
	}
	addrs := c.Addrs(addressType(qtype))
	if addrs == "" {
		return l.noData()
	}
	size := reply.AddressSize(qtype)
	if n := len(addrs) / size; n > 1 {
		at := size * rand.IntN(n)
		addrs = addrs[at:] + addrs[:at]
	}
	return l.zone.Addresses(l.r, qtype, addrs, l.limit)
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

func (l *lookup) noData() *dns.Msg {
	return l.zone.Negative(l.r, dns.RcodeSuccess, l.owner, l.index.Serial(), false)
}

func (l *lookup) nameError() *dns.Msg {
	return l.zone.Negative(l.r, dns.RcodeNameError, l.owner, l.index.Serial(), false)
}

// kind is the form of a name within its zone.
type kind uint8

const (
	none       kind = iota // a name that cannot exist
	apex                   // the zone (N1)
	empty                  // dns, which only has a name below it (N4)
	nameServer             // ns.dns (N2)
	namespace              // <ns> (N4)
	service                // <svc>.<ns>, or a name below it (X1, X2)
)

// place is a name of a zone, in lower case.
type place struct {
	kind  kind
	key   string // "<svc>.<ns>" of a service, else the namespace
	below string // what stands in front of the service
}

// parse reads the part of a name in front of its zone: everything before the offset at.
func parse(name string, at int) place {
	rel := strings.ToLower(strings.TrimSuffix(name[:at], "."))
	last := strings.LastIndexByte(rel, '.')
	switch {
	case rel == "":
		return place{kind: apex}
	case strings.IndexByte(rel, '\\') >= 0: // an octet that needs escaping is in no name of an object
		return place{}
	case rel == "dns":
		return place{kind: empty}
	case rel == "ns.dns":
		return place{kind: nameServer}
	case last < 0:
		return place{kind: namespace, key: rel}
	}
	p := place{kind: service, key: rel}
	if second := strings.LastIndexByte(rel[:last], '.'); second >= 0 {
		p.key, p.below = rel[second+1:], rel[:second]
	}
	return p
}
