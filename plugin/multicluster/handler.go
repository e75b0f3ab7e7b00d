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
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/miekg/dns"
)

const pluginName = "multicluster"

// Multicluster answers the zones of one stanza of the Corefile.
type Multicluster struct {
	authority.Stanza[*catalog.Service]

	maxEndpoints  int  // M6; 0: all
	limitTransfer bool // maxEndpoints holds for transfers too
}

// ServeDNS implements plugin.Handler.
func (m *Multicluster) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	q, rcode, err := m.Begin(ctx, w, r, query.Parse)
	if q.Zone == nil {
		return rcode, err
	}
	msg := q.Common()
	if msg == nil {
		msg = m.answer(&q)
	}
	return m.End(ctx, w, &q, msg)
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
