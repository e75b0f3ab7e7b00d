// Package multicluster answers clusterset.local, the names of multi-cluster Services (KEP-1645), from watches on
// ServiceImports and EndpointSlices. README.md is its man page; docs/spec/DNS.md holds the rules that comments here name.
//
// A query goes query → catalog → reply: the name is read, the Service is found in an index by loading one pointer, and a
// message is made of it. kube keeps the index.
package multicluster

import (
	"context"
	"net"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/fall"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

const pluginName = "multicluster"

// source is where answers come from: kube.Watch.
type source interface {
	Index() *catalog.Index
	Synced() bool
}

// Multicluster is one stanza of the Corefile.
type Multicluster struct {
	Next plugin.Handler
	Fall fall.F

	origins      []string // zones, fully qualified, lower case
	zones        []*reply.Zone
	source       source
	maxEndpoints int      // M6; 0: all
	streams      *streams // nil: as many as come
	generation   *generation
}

// Name implements plugin.Handler.
func (m *Multicluster) Name() string { return pluginName }

// ServeDNS implements plugin.Handler.
func (m *Multicluster) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	name := r.Question[0].Name
	i, at := query.Zone(m.origins, name)
	if i < 0 {
		return plugin.NextOrFailure(m.Name(), m.Next, ctx, w, r)
	}
	switch qtype := r.Question[0].Qtype; qtype {
	case dns.TypeAXFR, dns.TypeIXFR: // the transfer plugin, which stands before us, did not take it (L6)
		return dns.RcodeRefused, nil
	}
	rcode, through, err := m.serve(w, r, i, at)
	if through {
		return plugin.NextOrFailure(m.Name(), m.Next, ctx, w, r)
	}
	return rcode, err
}

// serve answers a question for the name at at below m.zones[i], unless it is for the next plugin.
func (m *Multicluster) serve(w dns.ResponseWriter, r *dns.Msg, i, at int) (rcode int, through bool, err error) {
	if m.streams != nil && overStream(w) {
		if !m.streams.enter() {
			return dns.RcodeRefused, false, nil
		}
		defer m.streams.leave()
	}
	name := r.Question[0].Name
	q := query.Parse(name, at)
	if !m.source.Synced() && q.Kind != query.Apex && q.Kind != query.Version {
		return dns.RcodeServerFailure, false, nil // L1
	}
	a := asked{r: r, zone: m.zones[i], owner: name[at:], index: m.source.Index()}
	a.window, a.limit = m.window(a.zone), limit(w, r)
	msg := a.answer(q)
	if msg.Rcode == dns.RcodeNameError && m.Fall.Through(name) {
		return 0, true, nil
	}
	if err := w.WriteMsg(msg); err != nil { // M5
		return dns.RcodeServerFailure, false, plugin.Error(pluginName, err)
	}
	return msg.Rcode, false, nil
}

// window is the subset of large Services that this TTL's answers are taken from (M6).
func (m *Multicluster) window(zone *reply.Zone) catalog.Window {
	w := catalog.Window{Zone: zone.Octets()}
	if m.maxEndpoints > 0 {
		w.Max, w.Epoch = m.maxEndpoints, uint64(time.Now().Unix())/uint64(max(zone.TTL(), 1))
	}
	return w
}

// maxDatagram is the most octets that UDP over IPv4 carries: 65,535 less the headers (RFC 768, RFC 791).
const maxDatagram = 65507

// overStream reports whether a client asks over TCP. The address may be wrapped, as proxyproto's tlv_metadata does. The
// cache plugin's own refreshes have an empty address: no client waits for them.
func overStream(w dns.ResponseWriter) bool {
	addr := w.RemoteAddr()
	if wrapped, ok := addr.(interface{ Unwrap() net.Addr }); ok {
		addr = wrapped.Unwrap()
	}
	tcp, ok := addr.(*net.TCPAddr)
	return ok && (tcp.IP != nil || tcp.Port != 0)
}

// limit is the size of the client's buffer, in octets, as far as what carries it there goes.
func limit(w dns.ResponseWriter, r *dns.Msg) int {
	state := request.Request{W: w, Req: r}
	size := max(state.Size(), dns.MinMsgSize)
	if size > maxDatagram && !overStream(w) {
		return maxDatagram
	}
	return size
}

// asked is one question with what its answer is made from.
type asked struct {
	r      *dns.Msg
	zone   *reply.Zone
	owner  string // the zone, in the case of the question
	index  *catalog.Index
	window catalog.Window
	limit  int
}

func (a *asked) answer(q query.Query) *dns.Msg {
	qtype := a.r.Question[0].Qtype
	switch q.Kind {
	case query.Apex:
		return a.apex(qtype)
	case query.Version:
		if qtype == dns.TypeTXT {
			return a.zone.VersionTXT(a.r)
		}
		return a.noData(false)
	case query.NS:
		if msg := a.zone.NSAddresses(a.r, qtype, a.limit); msg != nil {
			return msg
		}
		return a.noData(false)
	case query.Empty:
		return a.noData(false)
	case query.Namespace:
		if a.index.HasNamespace(q.Service) {
			return a.noData(false)
		}
		return a.nameError()
	case query.None:
		return a.nameError()
	}
	svc := a.index.Service(q.Service)
	if svc == nil {
		return a.nameError()
	}
	if q.Kind == query.Zoned {
		in, exists := svc.Zone(q.Below, q.Pin)
		if !exists {
			return a.nameError()
		}
		if in == nil {
			return a.noData(false)
		}
		svc, q = in, query.Query{Kind: query.Service, Service: q.Service}
	}
	res := find(svc, q, qtype, a.window)
	switch res.Outcome {
	case catalog.NameError:
		return a.nameError()
	case catalog.NoData:
		return a.noData(res.Pending)
	}
	return a.success(svc, q, res.Addrs)
}

func (a *asked) apex(qtype uint16) *dns.Msg {
	switch qtype {
	case dns.TypeSOA:
		return a.zone.SOA(a.r, a.owner, a.index.Serial())
	case dns.TypeNS:
		return a.zone.NS(a.r, a.owner, a.limit)
	}
	return a.noData(false)
}

// find asks the Service for what stands at or below its name.
func find(svc *catalog.Service, q query.Query, qtype uint16, w catalog.Window) catalog.Result {
	wanted := catalog.Other
	switch qtype {
	case dns.TypeA:
		wanted = catalog.V4
	case dns.TypeAAAA:
		wanted = catalog.V6
	case dns.TypeSRV:
		wanted = catalog.SRV
	}
	switch q.Kind {
	case query.Service:
		return svc.Self(wanted, w)
	case query.Proto:
		return svc.Proto(q.Proto, w)
	case query.Port:
		return svc.Port(q.Below, q.Proto, wanted, w)
	}
	return svc.Host(q.Below, wanted, w)
}

// success is the reply of addresses, where find gave some, else that of the targets.
func (a *asked) success(svc *catalog.Service, q query.Query, addrs string) *dns.Msg {
	if addrs != "" {
		return a.zone.Addresses(a.r, a.r.Question[0].Qtype, addrs, a.limit)
	}
	m := a.zone.SRV(a.r, svc.Key(), svc.Targets(q.Below, q.Proto, a.window), a.limit)
	if len(m.Answer) == 0 && !m.Truncated {
		return a.noData(false) // no target's name fits into a name
	}
	return m
}

func (a *asked) noData(pending bool) *dns.Msg {
	return a.zone.Negative(a.r, dns.RcodeSuccess, a.owner, a.index.Serial(), pending)
}

func (a *asked) nameError() *dns.Msg {
	return a.zone.Negative(a.r, dns.RcodeNameError, a.owner, a.index.Serial(), false)
}
