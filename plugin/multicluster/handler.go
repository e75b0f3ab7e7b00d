// Package multicluster answers clusterset.local, the names of multi-cluster Services (KEP-1645), from watches on
// ServiceImports and EndpointSlices. README.md is its man page; docs/spec/DNS.md has the rules that comments name.
//
// A question goes through three packages: query reads the name, catalog finds what it stands for, reply makes the
// message. Package kube keeps the catalog.
package multicluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reload"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/fall"
	"github.com/miekg/dns"
)

const pluginName = "multicluster"

// source provides what is answered: kube.Watch.
type source interface {
	Index() *catalog.Index
	Synced() bool
}

// Multicluster answers the zones of one stanza of the Corefile.
type Multicluster struct {
	Next plugin.Handler
	Fall fall.F

	origins       []string // fully qualified, lower case
	zones         []*reply.Zone
	source        source
	maxEndpoints  int  // M6; 0: all
	limitTransfer bool // maxEndpoints holds for transfers too
	load          *reload.Load
}

// Name implements plugin.Handler.
func (m *Multicluster) Name() string { return pluginName }

// Ready implements ready.Readiness for all stanzas together.
func (m *Multicluster) Ready() bool { return m.load.Ready() }

// CacheBypassZones implements cache.ZoneBypasser: answers come from memory, and a cache would make them older.
func (m *Multicluster) CacheBypassZones() []string { return m.origins }

// ServeDNS implements plugin.Handler.
func (m *Multicluster) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	zone, at := query.Zone(m.origins, r.Question[0].Name)
	if zone < 0 {
		return plugin.NextOrFailure(m.Name(), m.Next, ctx, w, r)
	}
	if rcode := authority.Refuse(r); rcode != dns.RcodeSuccess {
		return rcode, nil
	}
	rcode, next, err := m.serve(ctx, w, r, zone, at)
	if next {
		return plugin.NextOrFailure(m.Name(), m.Next, ctx, w, r)
	}
	return rcode, err
}

// serve answers a question for a name that m.zones[zone] begins in at the offset at. next reports that the question is
// for the next plugin, and that nothing was written.
func (m *Multicluster) serve(
	ctx context.Context, w dns.ResponseWriter, r *dns.Msg, zone, at int,
) (rcode int, next bool, err error) {
	name := r.Question[0].Name
	q := query.Parse(name, at)
	if !m.source.Synced() && q.Kind != query.Apex && q.Kind != query.Version {
		return dns.RcodeServerFailure, false, nil // L1
	}
	limit, signed := authority.Limit(ctx, w, r)
	z, index := m.zones[zone], m.source.Index()
	l := lookup{r: r, zone: z, owner: name[at:], index: index, window: m.window(z), limit: limit}
	msg := l.answer(q)
	if msg.Rcode == dns.RcodeNameError && m.Fall.Through(name) {
		return 0, true, nil
	}
	msg.Compress = signed
	if err := w.WriteMsg(msg); err != nil { // M5
		return dns.RcodeServerFailure, false, plugin.Error(pluginName, err)
	}
	return msg.Rcode, false, nil
}

// window returns which endpoints of a large Service this TTL's answers have (M6), and where this answer begins (M2),
// which is random: with a counter, a client that asks for A and AAAA in turns would meet every second endpoint only.
func (m *Multicluster) window(zone *reply.Zone) catalog.Window {
	w := catalog.Window{Turn: rand.Uint64()}
	if m.maxEndpoints > 0 {
		w.Max, w.Epoch = m.maxEndpoints, uint64(time.Now().Unix())/uint64(max(zone.TTL(), 1))
	}
	return w
}
