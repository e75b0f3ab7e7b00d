package authority

import (
	"context"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reload"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/fall"
	"github.com/coredns/coredns/plugin/transfer"
	"github.com/miekg/dns"
)

// Server answers the zones of one stanza of the Corefile. A plugin brings the names of its Services.
type Server[S catalog.Answers[S]] struct {
	Plugin  string
	Next    plugin.Handler
	Fall    fall.F
	Origins []string // fully qualified, lower case
	Zones   []*reply.Zone
	Source  Source[S] // from the start on
	load    *reload.Load
}

// Source provides what is answered: a watch.
type Source[S catalog.Answers[S]] interface {
	Index() *catalog.Table[S]
	Synced() bool
	Unready() string // why it is not synced, in words for clients; "": they are not told
}

// Name implements plugin.Handler.
func (s *Server[S]) Name() string { return s.Plugin }

// Ready implements ready.Readiness for all stanzas together.
func (s *Server[S]) Ready() bool { return s.load.Ready() }

// CacheBypassZones implements cache.ZoneBypasser: a cache would keep old answers, and give them to other clients.
func (s *Server[S]) CacheBypassZones() []string { return s.Origins }

// Serial returns the zones' serial, and whether there is anything to transfer.
func (s *Server[S]) Serial() (uint32, bool) { return s.Source.Index().Serial(), s.Source.Synced() }

// Setup adds the handler of a stanza to its server block. open returns the Source when the server starts.
func Setup[S catalog.Answers[S], W interface {
	reload.Watch
	Source[S]
}](c *caddy.Controller, s *Stanza[S], loads *reload.Loads, handler plugin.Handler, open func() (W, error)) {
	config := dnsserver.GetConfig(c)
	s.load = loads.Of(c)
	c.OnStartup(func() error {
		if s.Nameservers == nil {
			s.Nameservers = Nameservers(s.Config, config.ListenHosts)
		}
		for _, origin := range s.Origins {
			s.Zones = append(s.Zones, reply.NewZone(origin, s.TTL, s.Nameservers))
		}
		w, err := reload.Open(s.load, open, s.StartupTimeout)
		if err != nil {
			return plugin.Error(s.Plugin, err)
		}
		s.Source = w
		if t, ok := config.Handler("transfer").(*transfer.Transfer); ok {
			go Notify(s.Plugin, s.Origins, s.Serial, t.Notify, s.load.Closed())
		}
		return nil
	})
	config.AddPlugin(func(next plugin.Handler) plugin.Handler {
		s.Next = next
		return handler
	})
}

// Question is a question in one of the zones.
type Question[S catalog.Answers[S]] struct {
	query.Query
	R      *dns.Msg
	Type   uint16
	Zone   *reply.Zone // nil: nothing is left to do
	Index  *catalog.Table[S]
	Limit  int    // octets of the client's buffer
	owner  string // the zone, in the case of the question
	signed bool
}

// Begin reads a question, whose name parse reads. If it has no Zone, the caller returns rcode and err: it is the next
// plugin's, or no question for records, or there is no answer yet (L1).
func (s *Server[S]) Begin(
	ctx context.Context, w dns.ResponseWriter, r *dns.Msg, parse func(name string, at int) query.Query,
) (q Question[S], rcode int, err error) {
	name := r.Question[0].Name
	zone, at := query.Zone(s.Origins, name)
	if zone < 0 {
		rcode, err = plugin.NextOrFailure(s.Plugin, s.Next, ctx, w, r)
		return q, rcode, err
	}
	if rcode = refuse(r); rcode != dns.RcodeSuccess {
		return q, rcode, nil
	}
	q = Question[S]{Query: parse(name, at), R: r, Type: r.Question[0].Qtype, owner: name[at:]}
	q.Limit, q.signed = limit(ctx, w, r)
	if !s.Source.Synced() && q.Kind != query.Apex {
		if r.IsEdns0() == nil {
			return q, dns.RcodeServerFailure, nil // the server writes it
		}
		m := new(dns.Msg).SetRcode(r, dns.RcodeServerFailure)
		reply.Explain(m, r, dns.ExtendedErrorCodeNotReady, s.Source.Unready(), q.Limit)
		return q, dns.RcodeSuccess, w.WriteMsg(m)
	}
	q.Zone, q.Index = s.Zones[zone], s.Source.Index()
	return q, dns.RcodeSuccess, nil
}

// Common returns the reply for a name that every zone has, or none can have; nil for the plugin's.
func (q *Question[S]) Common() *dns.Msg {
	switch q.Kind {
	case query.None:
		return q.NameError("")
	case query.Apex:
		switch q.Type {
		case dns.TypeSOA:
			return q.Zone.SOA(q.R, q.owner, q.Index.Serial())
		case dns.TypeNS:
			return q.Zone.NS(q.R, q.owner, q.Limit)
		}
	case query.NS:
		if msg := q.Zone.NSAddresses(q.R, q.Type, q.Limit); msg != nil {
			return msg
		}
	case query.Namespace:
		if !q.Index.HasNamespace(q.Service) {
			return q.NameError("")
		}
	case query.Empty:
	default:
		return nil
	}
	return q.NoData(false)
}

// NoData returns the reply for a name that has nothing of the type. If pending, it will have an address soon (N5).
func (q *Question[S]) NoData(pending bool) *dns.Msg {
	m := q.Zone.Negative(q.R, dns.RcodeSuccess, q.owner, q.Index.Serial(), pending)
	if pending {
		reply.Explain(m, q.R, dns.ExtendedErrorCodeOther, "the ServiceImport has no address yet", q.Limit)
	}
	return m
}

// NameError returns the reply for a name that does not exist, and says why; "": nothing is known (M8).
func (q *Question[S]) NameError(why string) *dns.Msg {
	m := q.Zone.Negative(q.R, dns.RcodeNameError, q.owner, q.Index.Serial(), false)
	if why != "" {
		reply.Explain(m, q.R, dns.ExtendedErrorCodeOther, why, q.Limit)
	}
	return m
}

// End writes a reply, or hands a question for a name that does not exist on.
func (s *Server[S]) End(ctx context.Context, w dns.ResponseWriter, q *Question[S], m *dns.Msg) (int, error) {
	if m.Rcode == dns.RcodeNameError && s.Fall.Through(q.R.Question[0].Name) {
		return plugin.NextOrFailure(s.Plugin, s.Next, ctx, w, q.R)
	}
	m.Compress = q.signed
	if err := w.WriteMsg(m); err != nil { // M5
		return dns.RcodeServerFailure, plugin.Error(s.Plugin, err)
	}
	return m.Rcode, nil
}
